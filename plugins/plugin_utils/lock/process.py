# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What identifies a process of this machine: whether a recorded one has ended."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
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
    """Return whether the process is known to be gone. What runs elsewhere is not known."""
    is_known = bool(process.boot and process.namespace and process.started)
    is_here = process.boot == _boot() and process.namespace == _namespace()
    if not is_known or not is_here:
        return False
    return start_of(process.pid) != process.started


def start_of(pid: int) -> str:
    """Return when a process started, in ticks since the boot; empty if there is no such process, or no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The command's name, in parentheses, may have blanks and parentheses itself. It is the second field.
    after_name = stat.rpartition(")")[2].split()
    return after_name[_START_FIELD - 3]


def is_running(pid: int, started: str) -> bool:
    """Return whether the process that had this start is still running."""
    if started:
        return start_of(pid) == started
    # There is no /proc. A signal of 0 only asks whether the process exists.
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
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
