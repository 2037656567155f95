"""Log in to the scenario's machine as a person does, with ssh alone."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

FOLDER = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "machines", os.environ["MOLECULE_SCENARIO_NAME"])


def run(command: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["ssh", "-F", str(FOLDER / "ssh_config"), "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", *options]
    return subprocess.run([*words, "machine", command], capture_output=True, text=True, timeout=60, check=False)


def output(command: str, *options: str) -> str:
    """Return what a command prints. It has to succeed."""
    done = run(command, *options)
    assert done.returncode == 0, f"{command}: {done}"
    return done.stdout.strip()


def reboot() -> None:
    boot = "cat /proc/sys/kernel/random/boot_id; systemctl show -P ActiveEnterTimestamp basic.target"
    before = output(boot)
    run("sudo systemctl reboot")
    deadline = time.monotonic() + 60
    while (done := run(boot)).returncode != 0 or done.stdout.strip() == before:
        assert time.monotonic() < deadline, "the machine did not come back"
        time.sleep(0.5)  # between two logins
