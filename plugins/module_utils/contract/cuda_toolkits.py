# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The toolkits of CUDA on a machine, each with the compiler nvcc, and the one that fits a framework's packages."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# The node and the local cloud use it without Ansible, so there is no run_command of a module.
# pylint: disable=ansible-bad-function

FOLDER = Path("/usr/local")
"""It has cuda-12.8, cuda-13.0 and so on, and cuda, which is one of them or a link: on AWS's images to the newest."""
RUNTIME = "nvidia-cuda-runtime"
"""The package of a framework's environment whose version is that of its CUDA. Its name may end with CUDA's version."""


class Toolkit(NamedTuple):
    folder: Path
    version: str


def toolkits() -> list[Toolkit]:
    return [_toolkit(nvcc.parents[1]) for nvcc in sorted(FOLDER.glob("cuda*/bin/nvcc"))]


def fitting(cuda: str) -> Toolkit | None:
    """Return the toolkit of this version of CUDA, or of the nearest minor version.

    Another major version does not fit, as its runtime would be in one process with the framework's.
    """
    major, minor = numbers(cuda)[:2]
    of_major = [toolkit for toolkit in toolkits() if numbers(toolkit.version)[:1] == (major,)]
    return min(of_major, key=lambda toolkit: abs(numbers(toolkit.version)[1] - minor), default=None)


def version_of(package: str, versions: Mapping[str, str]) -> str:
    """Return the version of a package of NVIDIA's, whose name ends with CUDA's version, or does not; empty if none."""
    return next((version for name, version in versions.items() if name.startswith(package)), "")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _toolkit(folder: Path) -> Toolkit:
    command = [str(folder / "bin/nvcc"), "--version"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    release = re.search(r"release (\d+\.\d+)", output)
    return Toolkit(folder, release[1] if release else "unknown")
