# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What identifies a process of this machine: whether a recorded one has ended."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
ENDED_STATES = "ZX"
"""of /proc/<pid>/stat: the process has ended, and its parent has not asked for its exit code"""
STOPPED_STATES = "Tt"
_START_FIELD = 22
"""of /proc/<pid>/stat: the process's start, in ticks since the boot"""


@dataclass(frozen=True)
class HolderProcess:
    """A process that can be recognized later, also by another process of its machine."""

    host: str
    boot: str
    """the kernel's id of this boot; empty where the system has none, as on macOS"""
    namespace: str
    """of process ids: containers of one machine have different ones"""
    pid: int
    started: str
    """its start in ticks since the boot, as another process may get its number later"""


def describe(pid: int) -> HolderProcess:
    return HolderProcess(
        host=socket.gethostname()[:200],
        boot=_boot(),
        namespace=_namespace(),
        pid=pid,
        started=start_of(pid),
    )


def has_ended(process: HolderProcess) -> bool:
    """Return whether the process is known to be gone. What runs elsewhere, or is hidden from us, is not known."""
    is_described = bool(process.boot and process.namespace and process.started)
    is_here = process.boot == _boot() and process.namespace == _namespace()
    if not is_described or not is_here:
        return False
    return not is_running(process.pid, process.started)


def is_running(pid: int, started: str) -> bool:
    """Return whether the process that had this start may still run. `started`: empty where there is no /proc."""
    status = _status(pid)
    if status is None or not started:
        # Some systems hide the processes of other users.
        return _exists(pid)
    return status.state not in ENDED_STATES and status.started == started


def is_stopped(pid: int) -> bool:
    """Return whether a process is suspended, as by Ctrl-Z."""
    status = _status(pid)
    return status is not None and status.state in STOPPED_STATES


def start_of(pid: int) -> str:
    """Return when a process started, in ticks since the boot; empty if that is not known."""
    status = _status(pid)
    return status.started if status else ""


@dataclass(frozen=True)
class _Status:
    state: str
    started: str


def _status(pid: int) -> _Status | None:
    """Return what /proc says about a process; None if there is no such process, if it is hidden, or without /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name, in parentheses, may have blanks and parentheses itself. It is the second field.
    after_name = stat.rpartition(")")[2].split()
    return _Status(state=after_name[0], started=after_name[_START_FIELD - 3])


def _exists(pid: int) -> bool:
    """Return whether there is a process of this number. A signal of 0 only asks."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink(_NAMESPACE)
    except OSError:
        return ""
