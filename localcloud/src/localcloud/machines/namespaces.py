"""Network namespaces, each kept by a file, and calls inside them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from localcloud.machines.host import unmount

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def create(path: Path) -> None:
    """Create a network namespace that a file keeps. (Not by `ip netns`, which leaves mounts of its own.)"""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    subprocess.run(["unshare", f"--net={path}", "true"], check=True)


def remove(path: Path) -> None:
    """Release a namespace. It ends with its links when its last process has ended."""
    if path.exists():
        unmount(path)
        path.unlink(missing_ok=True)


def run(path: Path | None, command: Sequence[str], text: str = "") -> None:
    """Run a command in a namespace, or in the host's own. `text` is its input."""
    entered = ["nsenter", f"--net={path}", *command] if path else list(command)
    result = subprocess.run(entered, input=text, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(entered)} failed with {result.returncode}: {result.stderr.strip()}\n{text}")


def within(path: Path, action: Callable[[], T]) -> T:
    """Call an action inside a namespace, and return its result: a socket that it opens belongs to the namespace."""
    outcome: list[T] = []
    problem: list[BaseException] = []

    def enter() -> None:
        try:
            with path.open("rb") as handle:
                if _libc.setns(handle.fileno(), _CLONE_NEWNET) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), str(path))
            outcome.append(action())
        except BaseException as error:
            problem.append(error)

    # setns moves only the calling thread, so a thread of its own enters the namespace.
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if problem:
        raise problem[0]
    return outcome[0]


def inside(pid: int) -> list[str]:
    """Return the arguments before a command that run it in the namespaces of a machine, as root."""
    variables = (
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "LANG=C.UTF-8",
        f"TERM={os.environ.get('TERM', 'dumb')}",
    )
    spaces = ("--mount", "--uts", "--ipc", "--pid", "--net", "--root", "--wd")
    return ["nsenter", "--target", str(pid), *spaces, "env", "-i", *variables]
