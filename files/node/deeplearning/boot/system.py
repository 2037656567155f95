"""Prepare the operating system: no updates meanwhile, and a Python that Ansible supports."""

from __future__ import annotations

import glob
import json
import os
import zipfile

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
DROP_INS = "/run/systemd/system"
UNUSED = ("ansible_test/",)
UPDATES = ("apt-daily.service", "apt-daily-upgrade.service", "dnf-automatic.service", "dnf-automatic-install.service")


def defer_updates() -> None:
    """Let the system's automatic updates begin when this machine is configured. A reboot forgets this."""
    text = f"[Unit]\nConditionPathExists={CONFIGURED}\n"
    changed = [atomic_file.write_if_changed(f"{DROP_INS}/{unit}.d/deeplearning.conf", text) for unit in UPDATES]
    if any(changed):
        programs.run("systemctl", "daemon-reload")


def find_python() -> str:
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


def _existing_python() -> str | None:
    for path in PYTHONS:
        if os.path.exists(path) and tuple(json.loads(programs.run(path, "-I", "-c", VERSION).stdout)) >= OLDEST:
            return path
    return None


def unpack_wheels(folder: str) -> str:
    """Return a folder with the packages of the bundle's wheels. Compiled parts for another Python are not used."""
    target = f"{folder}/python"
    for wheel in sorted(glob.glob(f"{folder}/wheels/*.whl")):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(target, [name for name in file.namelist() if not name.startswith(UNUSED)])
    return target
