"""Programs of Debian's packages that only tests use. They are installed when they are missing, as root."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def installed_program(name: str, *packages: str) -> str:
    """Return the path of a program. Install it with its dependencies if it is missing."""
    # Several test processes may need the same.
    with Path(tempfile.gettempdir(), f"localcloud-install-{os.getuid()}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shutil.which(name):
            _apt_get("update")
            _apt_get("install", "-y", "--no-install-recommends", *packages)
    path = shutil.which(name)
    assert path, f"{' '.join(packages)} did not bring {name}"
    return path


def _apt_get(*words: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["apt-get", "-q", *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"apt-get {' '.join(words)}: {done.stderr[-2000:]}"
