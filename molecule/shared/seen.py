"""What is seen of a machine from outside, by ssh and nothing of ours."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])


def ssh(command: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["ssh", "-F", str(FOLDER / "ssh_config"), "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", *options]
    return subprocess.run([*words, "machine", command], capture_output=True, text=True, timeout=60, check=False)


def says(command: str, *options: str) -> str:
    done = ssh(command, *options)
    assert done.returncode == 0, f"{command}: {done}"
    return done.stdout.strip()


def reboot() -> None:
    before = says("cat /proc/sys/kernel/random/boot_id; systemctl show -P ActiveEnterTimestamp basic.target")
    ssh("sudo systemctl reboot")
    deadline = time.monotonic() + 60
    while True:
        done = ssh("cat /proc/sys/kernel/random/boot_id; systemctl show -P ActiveEnterTimestamp basic.target")
        if done.returncode == 0 and done.stdout.strip() != before:
            return
        assert time.monotonic() < deadline, "it did not come back"
        time.sleep(0.5)  # between two looks
