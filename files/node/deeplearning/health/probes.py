"""Measure this node for the checks."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from deeplearning import concurrency, programs, safe_files
from deeplearning.contract import atomic_file, bounded_program
from deeplearning.contract.errors import UserError
from deeplearning.contract.paths import ENVIRONMENTS, MARKER
from deeplearning.deadline import DeadlineExceeded, within
from deeplearning.environment import installed
from deeplearning.safe_paths import json_object

Answer = TypeVar("Answer")

EFS_SECONDS = 20.0
KEPT_SECONDS = 3600
REPLACED_SECONDS = 5.0
SSH_AT_ONCE, SSH_SECONDS = 16, 40.0
ANSWER_SECONDS = 30.0
"""For the part of a node in a measurement."""
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "LogLevel=ERROR")


def as_user(user: str) -> list[str]:
    """Return an ssh command that runs as the user, as training code does. Root has other rights."""
    prefix = ["runuser", "-u", user, "--"] if os.geteuid() == 0 else []
    return [*prefix, "ssh", *SSH_OPTIONS]


def ssh_failures(ssh: Sequence[str], aliases: Sequence[str]) -> dict[str, str]:
    """Return the members to which ssh fails, with the last line that it printed."""

    def reason(alias: str) -> str:
        try:
            done = bounded_program.run([*ssh, alias, "true"], SSH_SECONDS)
        except subprocess.TimeoutExpired:
            return "no answer"
        except bounded_program.TooMuchOutput as error:
            return f"its login {error}"
        return "" if done.returncode == 0 else programs.last_line(done.stderr, "ssh failed")

    with ThreadPoolExecutor(SSH_AT_ONCE) as pool:
        reasons = dict(zip(aliases, pool.map(reason, aliases)))
    return {alias: text for alias, text in reasons.items() if text}


def ask_nodes(
    ssh: Sequence[str], words: Mapping[str, Sequence[str]], parse: Callable[[str, str], Answer]
) -> dict[str, Answer]:
    """Return what `deeplearning health` prints on each node. `words`: its arguments, by the names of the nodes.

    A node without a valid answer in time is missing: training code may be root there. `parse`: by its name and text.
    """

    def ask(alias: str, seconds: float) -> list[Answer]:
        try:
            done = bounded_program.run([*ssh, alias, "deeplearning", "health", *words[alias]], seconds)
            return [parse(alias, done.stdout)]
        except (subprocess.TimeoutExpired, bounded_program.TooMuchOutput, ValueError, RecursionError, UserError):
            return []

    answers = zip(words, concurrency.ask_nodes(ask, list(words), ANSWER_SECONDS))
    return {alias: answer for alias, valid in answers for answer in valid}


def wrong_names(addresses: Mapping[str, str]) -> dict[str, str]:
    """Return the names that resolve to a wrong address, with that address."""
    wrong = {}
    for name, address in addresses.items():
        try:
            resolved = socket.gethostbyname(name)
        except OSError:
            resolved = ""
        if resolved != address:
            wrong[name] = resolved
    return wrong


def disk() -> tuple[int, int]:
    usage = shutil.disk_usage("/")
    return usage.free, usage.total


def write_token_file(mount: str, folder: Path, name: str) -> float:
    """Write a file for the other nodes to see. Return how many seconds this clock is ahead of the file system's.

    The folder has a new name each time, because an NFS client has nothing cached for a name that it never looked up.
    """

    def write() -> float:
        if not os.path.ismount(mount):
            raise OSError(0, f"nothing is mounted at {mount}")
        with safe_files.open_folder(mount, str(folder.parent), create=True) as handle:
            _remove_old(Path(f"/proc/self/fd/{handle}"))
        with safe_files.open_folder(mount, str(folder), create=True) as handle:
            file = f"/proc/self/fd/{handle}/{name}"
            before = time.time()
            # A link in the file's place is replaced, and not followed.
            atomic_file.replace(file, name.encode())
            return before - os.lstat(file).st_mtime

    return float(within(EFS_SECONDS, write))


def _remove_old(folder: Path) -> None:
    for old in folder.iterdir():
        # All nodes do this at the same time.
        with contextlib.suppress(FileNotFoundError):
            if time.time() - old.lstat().st_mtime > KEPT_SECONDS:
                shutil.rmtree(old, ignore_errors=True)


def missing_token_files(folder: Path, names: Sequence[str]) -> list[str]:
    """Return the nodes whose file stays missing, or has other content.

    Each node rewrites its own while others read it, and NFS may show no file meanwhile, on a busy machine for long.
    """

    def read() -> list[str]:
        end = time.monotonic() + REPLACED_SECONDS
        contents = {name: _content(folder / name) for name in names}
        while None in contents.values() and time.monotonic() < end:
            time.sleep(0.2)  # between two readings
            contents |= {name: _content(folder / name) for name, content in contents.items() if content is None}
        return [name for name in names if contents[name] != name.encode()]

    return list(within(EFS_SECONDS, read))


def _content(file: Path) -> bytes | None:
    """Return a file's content, None if there is no file, and nothing of what is not to be read."""
    try:
        return safe_files.read(str(file))
    except UserError:
        return b""
    except OSError as error:
        if error.errno in atomic_file.BEING_REPLACED:
            return None
        raise


def environments() -> dict[str, str]:
    """Return a digest of each installed framework, which is the same where the same versions are installed."""
    markers = {name: json_object(Path(ENVIRONMENTS, name, MARKER)) for name in installed()}
    return {name: str(marker.get("requirements_sha256", "unknown")) for name, marker in markers.items()}


def problem_of(error: Exception) -> str:
    if isinstance(error, DeadlineExceeded):
        return f"it does not answer within {EFS_SECONDS:.0f} s"
    return str(getattr(error, "strerror", "") or error)
