"""The Pythons that layers run on, and their virtual environments."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.layers.commands import ROOT

PYTHONS = ("3.11", "3.12", "3.13")


class UserError(Exception):
    """A sentence for the person who runs the tests."""


def version_of(python: Path | str) -> str:
    """Return the version of an interpreter that can make virtual environments, or nothing."""
    words = [python, "-c", "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"]
    with contextlib.suppress(OSError):
        return str(subprocess.run(words, capture_output=True, text=True, check=False).stdout).strip()
    return ""


def find_python(version: str) -> str:
    """Return the path of an interpreter of this version. pyenv has commands in PATH for versions that are off, too."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [
        *(shutil.which(name) or "" for name in (f"python{version}", "python3")),
        f"/usr/bin/python{version}",
        *sorted(map(str, pyenv.glob(f"versions/{version}*/bin/python"))),
    ]
    return next((path for path in candidates if path and version_of(path) == version), "")


def venv_of(version: str) -> Path:
    """Return the virtual environment of a Python version, and make it if needed; with no version, the usual one."""
    usual = ROOT / ".venv"
    if not version or version_of(usual / "bin/python") == version:
        return usual
    if version not in PYTHONS:
        raise UserError(f"Python {version} is not supported: choose {', '.join(PYTHONS[:-1])} or {PYTHONS[-1]}")
    python = find_python(version)
    if not python:
        raise UserError(
            f"Python {version} is in none of PATH, /usr/bin and pyenv's versions: install it, for example with "
            f"apt-get install python{version}-venv or pyenv install {version}"
        )
    venv = ROOT / f".venv-{version}"
    words = ["make", "-s", "-C", str(ROOT), "venv", f"VENV={venv.name}", f"python={python}"]
    if subprocess.run(words, check=False).returncode:
        raise UserError(f"{venv.name} could not be made: see above")
    return venv


def newest_python() -> str:
    """Return the newest version with the newer set of packages."""
    newer = sorted(PYTHONS[1:], reverse=True)
    version = next((version for version in newer if find_python(version)), "")
    if not version:
        raise UserError(f"The parts newest-… need Python {' or '.join(newer)}: none is installed")
    return version
