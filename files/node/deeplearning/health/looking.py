"""The measurements behind the checks, all of this node."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deeplearning import files, machine
from deeplearning.bounded import Late, within
from deeplearning.environment import installed
from deeplearning.paths import ENVIRONMENTS

EFS_SECONDS = 20.0
KEPT_SECONDS = 3600
SSH_AT_ONCE = 16
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "LogLevel=ERROR")


def as_user(user: str) -> list[str]:
    """ssh as training code uses it: root has other rights there."""
    ours = ["runuser", "-u", user, "--"] if os.geteuid() == 0 else []
    return [*ours, "ssh", *SSH_OPTIONS]


def ssh_failures(ssh: Sequence[str], aliases: Sequence[str]) -> dict[str, str]:
    """Those that cannot be logged in to, and ssh's last word on each."""

    def last_word(alias: str) -> str:
        try:
            done = subprocess.run(
                [*ssh, alias, "true"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=40, check=False
            )
        except subprocess.TimeoutExpired:
            return "no answer"
        return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["ssh failed"])[-1]

    with ThreadPoolExecutor(SSH_AT_ONCE) as pool:
        said = dict(zip(aliases, pool.map(last_word, aliases)))
    return {alias: word for alias, word in said.items() if word}


def wrong_names(addresses: Mapping[str, str]) -> dict[str, str]:
    """Names that do not lead where they should, with where they lead."""
    wrong = {}
    for name, address in addresses.items():
        try:
            found = socket.gethostbyname(name)
        except OSError:
            found = ""
        if found != address:
            wrong[name] = found
    return wrong


def memory_available_kib() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def disk() -> tuple[int, int]:
    usage = shutil.disk_usage("/")
    return usage.free, usage.total


def timer_states(names: Sequence[str]) -> dict[str, str]:
    done = subprocess.run(["systemctl", "is-active", *names], capture_output=True, text=True, check=False)
    return dict(zip(names, done.stdout.split("\n")))


def leave_word(mount: str, folder: Path, name: str) -> float:
    """Write a file for the others to see. How far this clock is ahead of the file system's.

    Each time in a folder of a new name: of a name that it has never looked up, an NFS client has nothing in its cache.
    """

    def write() -> float:
        if not os.path.ismount(mount):
            raise OSError(0, f"nothing is mounted at {mount}")
        # What is old is removed here: a link that some member's root has put in the way must not lead that elsewhere.
        if folder.resolve() != Path(mount).resolve() / folder.relative_to(mount):
            raise OSError(0, f"there is a link on the way to {folder}, which leads elsewhere")
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.parent.iterdir():
            # All nodes do this at the same time.
            with contextlib.suppress(FileNotFoundError):
                if time.time() - old.lstat().st_mtime > KEPT_SECONDS:
                    shutil.rmtree(old, ignore_errors=True)
        before = time.time()
        # Written beside and renamed: a link in the file's place is replaced, and no reader finds half of it.
        new = folder / f"{name}.new"
        files.write(str(new), name.encode(), 0o644)
        os.rename(new, folder / name)
        return before - (folder / name).lstat().st_mtime

    return float(within(EFS_SECONDS, write))


def missing_words(folder: Path, names: Sequence[str]) -> list[str]:
    """Those whose file is not there, or does not say what they wrote. Each writes its own again while others look."""

    def read() -> list[str]:
        return [name for name in names if not _says(folder / name, name)]

    return list(within(EFS_SECONDS, read))


def _says(file: Path, word: str) -> bool:
    try:
        return files.settled(file.read_text) == word
    except FileNotFoundError:
        return False


def environments() -> dict[str, str]:
    """Each framework that is installed here, and a word that is the same wherever the very same versions are."""
    found = {}
    for name in installed():
        try:
            marker = json.loads(Path(ENVIRONMENTS, name, ".deeplearning.json").read_text())
            found[name] = str(marker["requirements_sha256"])
        except (OSError, ValueError, KeyError, TypeError):
            found[name] = "unknown"
    return found


def problem_of(error: Exception) -> str:
    if isinstance(error, Late):
        return f"it does not answer within {EFS_SECONDS:.0f} s"
    return str(getattr(error, "strerror", "") or error)


def driver() -> tuple[str, str]:
    """The driver's version, or what nvidia-smi says instead."""
    try:
        code, said, errors = machine.ask_driver("--query-gpu=driver_version", "--format=csv,noheader")
    except OSError as error:
        return "", f"nvidia-smi: {problem_of(error)}"
    except Late:
        return "", f"nvidia-smi does not end within {machine.DRIVER_SECONDS:g} s: has a GPU fallen off the bus (dmesg)?"
    lines = (said.strip() or errors.strip() or "nvidia-smi says nothing").splitlines()
    return (lines[0], "") if code == 0 else ("", lines[-1])


def xid_lines() -> list[str]:
    command = ["journalctl", "--dmesg", "--boot", "--quiet", "--no-pager", "--output=cat", "--grep=NVRM: Xid"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
