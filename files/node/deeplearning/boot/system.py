"""Prepare the operating system: no updates meanwhile, and a Python that Ansible supports."""

from __future__ import annotations

import glob
import json
import os
import re
import time
import zipfile
from collections.abc import Callable

from deeplearning import programs
from deeplearning.contract import atomic_file
from deeplearning.contract.boot import CONFIGURED, NETWORK_SECONDS
from deeplearning.contract.errors import UserError

OLDEST = (3, 11)
PYTHONS = ("/usr/bin/python3", *(f"/usr/bin/python3.{minor}" for minor in (13, 12, 11)))
"""The system's own, or a package of the distribution. Ansible supports no newer ones yet."""
VERSION = "import sys, json; print(json.dumps(sys.version_info[:2]))"
APT_GET = "apt-get -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3"
INSTALLERS = {
    "/usr/bin/apt-get": (
        f"{APT_GET} update",
        # A machine that went down during an installation needs this first.
        "dpkg --configure -a --force-confdef --force-confold",
        f"{APT_GET} install -y --no-install-recommends python3.11",
    ),
    "/usr/bin/dnf": ("dnf --setopt=retries=10 --setopt=timeout=30 install -y python3.11",),
}
"""apt-get does not wait for another process that updates the package lists: the calls are repeated."""
PASSING = {
    "another process holds the package manager's lock": r"\block(ed)?\b|Waiting for process",
    "the network or the package mirror does not answer": r"Failed to (fetch|download)|Could not (connect|resolve)|"
    r"Temporary failure|Cannot (download|initiate)|Curl error|Connection (failed|timed out|refused)|unreachable",
}
"""What ends by itself, and how package managers print it."""
PAUSE_SECONDS = 5
DROP_INS = "/run/systemd/system"
UNUSED = ("ansible_test/",)
UPDATES = ("apt-daily.service", "apt-daily-upgrade.service", "dnf-automatic.service", "dnf-automatic-install.service")


def defer_updates() -> None:
    """Let the system's automatic updates begin when this machine is configured. A reboot forgets this."""
    text = f"[Unit]\nConditionPathExists={CONFIGURED}\n"
    changed = [atomic_file.write_if_changed(f"{DROP_INS}/{unit}.d/deeplearning.conf", text) for unit in UPDATES]
    if any(changed):
        programs.run("systemctl", "daemon-reload")


def find_python(log: Callable[[str], None]) -> str:
    """Return a Python that Ansible supports, and install it if needed.

    Its package may have to wait for the image's own updates and for the network, which come up with the machine.
    """
    deadline = time.monotonic() + NETWORK_SECONDS
    while not (python := _existing_python()):
        output = _install_python(deadline)
        if python := _existing_python():
            break
        cause, reason = _passing_failure(output)
        if not cause or time.monotonic() + PAUSE_SECONDS >= deadline:
            end = f" within {NETWORK_SECONDS} s, as {cause}: {reason}" if cause else f": {reason}"
            raise UserError(f"this image has no Python 3.11 or newer, and the package python3.11 is not installed{end}")
        log(f"python3.11: {cause}: {reason}; retrying")
        time.sleep(PAUSE_SECONDS)
    return python


def _install_python(deadline: float) -> str:
    """Return what the package manager prints."""
    output = ""
    for installer, commands in INSTALLERS.items():
        for command in commands if os.path.exists(installer) else ():
            limit = max(1, round(deadline - time.monotonic()))
            done = programs.run(
                *f"timeout {limit} {command}".split(), env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            )
            output += done.stdout + done.stderr
    return output


def _passing_failure(output: str) -> tuple[str, str]:
    """Return what ends by itself, or nothing, and the line that states it or the last one."""
    for cause, pattern in PASSING.items():
        lines = [line.strip() for line in output.splitlines() if re.search(pattern, line)]
        if lines:
            return cause, lines[-1]
    return "", programs.last_line(output, "its package manager is not known, or printed nothing")


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
