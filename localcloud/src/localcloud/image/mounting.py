"""The mounts that a build of an image needs, and their removal."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from localcloud.core.errors import Refusal
from localcloud.machines.host import mounts_below, unmount


@contextmanager
def overlay(base: Path, upper: Path, prefix: str) -> Iterator[Path]:
    """Mount the base with a layer over it that receives all writes. `prefix` begins the paths of temporary folders."""
    work, merged = Path(f"{prefix}.work"), Path(f"{prefix}.merged")
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
def bind_mounts(sources: Mapping[Path, Path]) -> Iterator[None]:
    """Mount each source at its target as well."""
    mounted: list[Path] = []
    try:
        for target, source in sources.items():
            target.mkdir(parents=True, exist_ok=True)
            run(["mount", "--bind", str(source), str(target)])
            mounted.append(target)
        yield
    finally:
        for target in reversed(mounted):
            unmount(target)


def remove(folder: Path) -> None:
    for mount_point in mounts_below(folder):
        unmount(mount_point)
    if mounts_below(folder):
        raise Refusal(f"{folder} is not removed, as something is still mounted below it. Unmount it and try again.")
    shutil.rmtree(folder, ignore_errors=True)


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    return subprocess.run(command, check=True, capture_output=True, env=env).stdout.decode(errors="replace")
