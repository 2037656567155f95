"""Programs of Debian's packages that only tests use. They are fetched when they are missing, and kept."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deeplearning-tests"
QUIET = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}


def unpacked_program(name: str, package: str) -> str:
    """Return the path of a program that needs nothing but its file. Its package is unpacked, not installed: that would
    start its services on this machine."""
    installed = shutil.which(name)
    if installed:
        return installed
    folder = CACHE / package
    with _alone(package):
        if not folder.exists():
            incomplete = folder.with_suffix(".incomplete")
            shutil.rmtree(incomplete, ignore_errors=True)
            incomplete.mkdir()
            _run("apt-get", "download", "-q", package, cwd=incomplete, update=True)
            (archive,) = incomplete.glob("*.deb")
            _run("dpkg", "-x", str(archive), str(incomplete), cwd=incomplete)
            incomplete.rename(folder)
    return str(folder / "usr/bin" / name)


def installed_program(name: str, *packages: str) -> str:
    """Return the path of a program. Install it with its dependencies if it is missing, as root."""
    with _alone("install"):
        if not shutil.which(name):
            words = ("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages)
            _run(*words, cwd=CACHE, update=True)
    path = shutil.which(name)
    assert path, f"{' '.join(packages)} did not bring {name}"
    return path


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Several test processes may need the same."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*words: str, cwd: Path, update: bool = False) -> None:
    """Run a command. With `update`, and if it fails, refresh the package lists, which may be old, and run it again."""
    done = subprocess.run(words, cwd=cwd, env=QUIET, capture_output=True, text=True, check=False)
    if done.returncode and update:
        _run("apt-get", "update", "-q", cwd=cwd)
        _run(*words, cwd=cwd)
    else:
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-2000:]}"
