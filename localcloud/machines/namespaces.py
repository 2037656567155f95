"""Network namespaces with a name in a folder of our own, and work done inside them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def create(path: Path) -> None:
    """A new network namespace, kept alive by a file. (Not `ip netns`: that leaves mounts of its own behind.)"""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    subprocess.run(["unshare", f"--net={path}", "true"], check=True)


def remove(path: Path) -> None:
    """Let go of it: it ends, with its links, when the last process in it has ended."""
    if path.exists():
        subprocess.run(["umount", "--lazy", str(path)], check=False, stderr=subprocess.DEVNULL)
        path.unlink(missing_ok=True)


def run(path: Path | None, command: Sequence[str], text: str = "") -> None:
    """A command inside the namespace (or in the host's own); what it reads is given as text."""
    inside = ["nsenter", f"--net={path}", *command] if path else list(command)
    done = subprocess.run(inside, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(inside)} failed with {done.returncode}: {done.stderr.strip()}\n{text}")


def within(path: Path, action: Callable[[], T]) -> T:
    """What the action returns when it is run inside the namespace: a socket made there stays there."""
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

    # A namespace belongs to a thread: this one ends, and nobody else is moved.
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if problem:
        raise problem[0]
    return outcome[0]
