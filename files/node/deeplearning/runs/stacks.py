"""The stacks of a process that does not go on: its Python processes write them into a file when they get a signal.

`startup/sitecustomize.py` has each Python register for the signal as it starts. Only processes that have the file open
and a handler are sent it: it would end others. A process that is stopped, or waits for a device, does not handle it,
but the kernel reports that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from typing import IO

SIGNAL = signal.SIGRTMIN + 8
"""Programs use the signals with names for their own purposes."""
SECONDS = 2.0
"""How long processes have to write."""
MOST_BYTES = 32 * 1024
MOST_PROCESSES = 32
MOST_LINES = 2048
VARIABLE = "DEEPLEARNING_STACKS"
STARTUP = f"{os.path.dirname(__file__)}/startup"
STATES = {
    "D": "waiting for a device or a file system",
    "R": "running",
    "S": "sleeping",
    "T": "stopped by a signal",
    "Z": "ended, and not waited for",
    "t": "stopped by a debugger",
}
"""By the kernel's letters: see proc_pid_stat(5)."""


class Stacks:
    """The stacks of the processes in one session."""

    def __init__(self) -> None:
        self._file = _memory_file()
        """None if this system has none: then only what the kernel says is reported."""
        self._due = 0.0
        self._session = 0

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return what Python needs in its environment. Other folders with modules come before ours."""
        if self._file is None:
            return {}
        folders = [environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else []
        path = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"
        return {VARIABLE: f"{int(SIGNAL)}:{path}", "PYTHONPATH": os.pathsep.join([*folders, STARTUP])}

    def request(self, session: int) -> None:
        """Have the processes of a session write their stacks."""
        self._session, self._due = session, time.monotonic() + SECONDS
        if self._file is None:
            return
        self._file.truncate(0)
        for pid in _processes(session):
            if self._is_registered(pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, SIGNAL)

    @property
    def is_due(self) -> bool:
        return bool(self._due) and time.monotonic() >= self._due

    def take(self) -> list[str]:
        """Return what the kernel says about each process, followed by what the processes have written."""
        self._due = 0.0
        lines = [self._described(pid) for pid in list(_processes(self._session))[:MOST_PROCESSES]]
        written = "" if self._file is None else os.pread(self._file.fileno(), MOST_BYTES, 0).decode(errors="replace")
        return [line for line in (*lines, *written.splitlines()) if line][:MOST_LINES]

    def _described(self, pid: int) -> str:
        program, fields = _stat(pid)
        if not fields:
            return ""
        known = "" if self._is_registered(pid) else ", and is no Python that can write its stacks"
        return f"process {pid} ({program}) is {STATES.get(fields[0], fields[0])}{known}"

    def _is_registered(self, pid: int) -> bool:
        if self._file is None:
            return False
        own = os.readlink(f"/proc/self/fd/{self._file.fileno()}")
        try:
            has_file = any(_target(f"/proc/{pid}/fd/{name}") == own for name in os.listdir(f"/proc/{pid}/fd"))
            return has_file and bool(_caught(pid) >> (int(SIGNAL) - 1) & 1)
        except OSError:
            return False


def _memory_file() -> IO[bytes] | None:
    """Open a file that ends with this process, and needs no disk. /proc leads to it as long as this process lives."""
    try:
        # The pid tells it from the files of other wrappers, which a process may have open as well.
        return open(os.memfd_create(f"deeplearning-stacks-{os.getpid()}"), "r+b", buffering=0)
    except (OSError, AttributeError):
        return None


def _target(path: str) -> str:
    """Return what a link of /proc names. To open the file could wait for a file system."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _caught(pid: int) -> int:
    """Return the signals that a process has handlers for, as bits."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return next((int(line.split()[1], 16) for line in file if line.startswith("SigCgt:")), 0)


def _processes(session: int) -> Iterator[int]:
    for name in filter(str.isdecimal, os.listdir("/proc")):
        fields = _stat(int(name))[1]
        if len(fields) > 3 and fields[3] == str(session):
            yield int(name)


def state_of(pid: int) -> str:
    """Return the kernel's letter for the state of a process; empty if it is gone."""
    return next(iter(_stat(pid)[1]), "")


def _stat(pid: int) -> tuple[str, list[str]]:
    """Return the program of a process, and the fields that follow it: its state, parent, group, session and others."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            begin, _paren, fields = file.read().rpartition(")")
    except OSError:
        return "", []
    return begin.partition("(")[2], fields.split()
