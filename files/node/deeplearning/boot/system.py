"""Prepare the operating system: no updates meanwhile, and a Python that Ansible supports."""

from __future__ import annotations

import glob
import json
import os
import platform
import re
import shutil
import zipfile
from dataclasses import dataclass

from deeplearning import programs
from deeplearning.boot.first_stage import CONFIGURED
from deeplearning.contract import atomic_file
from deeplearning.contract.errors import UserError

OLDEST = (3, 11)
PYTHONS = ("/usr/bin/python3", "/usr/bin/python3.11")
"""The system's own, or the distribution's package."""
VERSION = "import sys, json; print(json.dumps(sys.version_info[:2]))"
INSTALLERS = {
    "/usr/bin/apt-get": ("apt-get update", "apt-get install -y --no-install-recommends python3.11"),
    "/usr/bin/dnf": ("dnf install -y python3.11",),
}
UPDATES = ("apt-daily.service", "apt-daily-upgrade.service", "dnf-automatic.service", "dnf-automatic-install.service")


@dataclass(frozen=True)
class Python:
    path: str
    version: tuple[int, int]


def defer_updates() -> None:
    """Let the system's automatic updates begin when this machine is configured. A reboot forgets this."""
    text = f"[Unit]\nConditionPathExists={CONFIGURED}\n"
    changed = [
        atomic_file.write_if_changed(f"/run/systemd/system/{unit}.d/deeplearning.conf", text) for unit in UPDATES
    ]
    if any(changed):
        programs.run("systemctl", "daemon-reload")


def find_python() -> Python:
    """Return a Python that Ansible supports, and install it if needed."""
    python = _existing_python()
    if python:
        return python
    output = ""
    for installer, commands in INSTALLERS.items():
        for words in commands if os.path.exists(installer) else ():
            done = programs.run(*words.split(), env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
            output = done.stdout + done.stderr
    python = _existing_python()
    if not python:
        reason = programs.last_line(output, "its package manager is not known")
        raise UserError(
            f"this image has no Python 3.11 or newer, and the package python3.11 is not installed: {reason}"
        )
    return python


def _existing_python() -> Python | None:
    for path in PYTHONS:
        if os.path.exists(path):
            major, minor = json.loads(programs.run(path, "-I", "-c", VERSION).stdout)
            if (major, minor) >= OLDEST:
                return Python(path, (major, minor))
    return None


def unpack_wheels(folder: str, python: Python) -> str:
    """Return a folder with the packages of the bundle's wheels that fit this Python and machine."""
    target = f"{folder}/python"
    if os.path.isdir(target):
        return target
    shutil.rmtree(f"{target}.part", ignore_errors=True)
    for wheel in sorted(glob.glob(f"{folder}/wheels/*.whl")):
        if fits(os.path.basename(wheel), python.version, platform.machine()):
            with zipfile.ZipFile(wheel) as file:
                file.extractall(f"{target}.part", [name for name in file.namelist() if not name.startswith(UNUSED)])
    if not os.path.isdir(f"{target}.part/ansible"):
        version = ".".join(map(str, python.version))
        raise UserError(f"the bundle has no ansible-core for Python {version}: configure this image with push")
    os.rename(f"{target}.part", target)
    return target


UNUSED = ("ansible_test/",)


def fits(wheel: str, version: tuple[int, int], machine: str) -> bool:
    """Return whether a wheel is for this Python and machine, by its name."""
    tags = re.fullmatch(r".*-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl", wheel)
    if not tags or not (tags["platform"] == "any" or tags["platform"].endswith(machine)):
        return False
    pythons = tags["python"].split(".")
    if "py3" in pythons or f"cp{version[0]}{version[1]}" in pythons:
        return True
    oldest = [int(name[3:]) for name in pythons if re.fullmatch(r"cp3\d+", name)]
    return tags["abi"] == "abi3" and any(minor <= version[1] for minor in oldest)
