"""Layers, what is mounted while they are made, and how they go again."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from localcloud.core.errors import Refusal
from localcloud.machines.host import mounts_below


@contextmanager
def overlay(base: Path, upper: Path, beside: str) -> Iterator[Path]:
    """The base with a layer over it, mounted; what is written goes into the layer. `beside` begins the names of the
    folders that are needed meanwhile."""
    work, merged = Path(f"{beside}.work"), Path(f"{beside}.merged")
    try:
        for folder in (upper, work, merged):
            folder.mkdir(parents=True, exist_ok=True)
        run(
            ["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={base},upperdir={upper},workdir={work}", str(merged)]
        )
        yield merged
    finally:
        remove(merged)
        remove(work)


@contextmanager
def bound(places: Mapping[Path, Path]) -> Iterator[None]:
    """Folders seen at other places too."""
    done: list[Path] = []
    try:
        for target, source in places.items():
            target.mkdir(parents=True, exist_ok=True)
            run(["mount", "--bind", str(source), str(target)])
            done.append(target)
        yield
    finally:
        for target in reversed(done):
            subprocess.run(["umount", "--lazy", str(target)], check=False)


def remove(folder: Path) -> None:
    for mounted in mounts_below(folder):
        subprocess.run(["umount", "--lazy", mounted], check=False)
    if mounts_below(folder):
        raise Refusal(f"something is still mounted below {folder}: it is not removed, since that would remove it too.")
    shutil.rmtree(folder, ignore_errors=True)


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    return subprocess.run(command, check=True, capture_output=True, env=env).stdout.decode(errors="replace")
