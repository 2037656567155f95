"""The systemd units of a run: one that supervises it on the master, and one per attempt on each node."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Sequence
from typing import NoReturn

from deeplearning import programs
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.errors import UserError
from deeplearning.identity import as_root

RECOVERY_UNIT = "deeplearning-recover.service"
SUPERVISOR_STOP_SECONDS = 14
"""TimeoutStopSec in deeplearning-run@.service."""


class Unfit(Exception):
    """This node cannot take part in a run, as the text says."""


class Preparing(Exception):
    """This node cannot take part in a run yet: it does what the text says, and the next survey asks again."""


def supervisor_unit(run_id: str) -> str:
    return f"deeplearning-run@{run_id}.service"


def attempt_unit(run_id: str, attempt: int) -> str:
    """The unit of mpirun and its daemons, and so of all processes of an attempt. No run id has a colon."""
    return f"deeplearning-run-{run_id}:{attempt}.service"


def is_active(run_id: str) -> bool:
    return bool(active_units(supervisor_unit(run_id)))


def may_continue(run_id: str) -> bool:
    """Return True if it is active, was stopped because all machines are about to end, or if this master has booted and
    not yet resumed interrupted runs."""
    if is_active(run_id) or run_id in (atomic_file.read_or_none(paths.STOPPED_RUNS) or "").split():
        return True
    shown = programs.run("systemctl", "show", "--value", "--property=ExecMainExitTimestampMonotonic", RECOVERY_UNIT)
    return shown.stdout.strip() == "0"


def active_runs() -> list[str]:
    """Return the ids of the runs that this master supervises."""
    return [name[len("deeplearning-run@") : -len(".service")] for name in active_units(supervisor_unit("*"))]


def active_units(pattern: str) -> list[str]:
    """Return the names of the units that have begun to start and have not ended."""
    states = "--state=active,activating,deactivating,reloading"
    listed = programs.run("systemctl", "list-units", "--plain", "--no-legend", states, pattern)
    return [line.split()[0] for line in listed.stdout.splitlines() if line.strip()]


def control(verb: str, *units: str, options: Sequence[str] = ()) -> None:
    """Start or stop units, and wait for that. `options` are systemctl's."""
    done = programs.run(*as_root("systemctl", verb, *options, *units))
    if done.returncode:
        # All of it: the last line of systemctl's only says where to look.
        raise UserError(f"systemd did not {verb} {', '.join(units)}: {done.stderr.strip()}")


def extend_stop(seconds: int) -> None:
    """Have systemd wait so much longer for the end of this unit, which it stops now: see sd_notify(3).

    In a forced reboot it listens no more, and grants nothing.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    microseconds = (SUPERVISOR_STOP_SECONDS + seconds) * 10**6
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, contextlib.suppress(OSError):
        # A name that begins with @ is an abstract one.
        place = f"\0{address[1:]}" if address.startswith("@") else address
        notify.sendto(f"EXTEND_TIMEOUT_USEC={microseconds}".encode(), place)


def prepare(unit: str, argv: Sequence[str], doing: str, failing: str, *options: str) -> NoReturn:
    """Start a unit that does what takes longer than a survey, unless it runs. Raise Preparing with what it is doing.

    Raise Unfit with the reason if it has failed or cannot be started. `options` are systemd-run's.
    """
    state = programs.run("systemctl", "show", "--value", "--property=ActiveState", unit).stdout.strip()
    if state == "failed":
        printed = programs.run(*as_root("journalctl", "--output=cat", f"_SYSTEMD_UNIT={unit}")).stdout
        # The next start of the run tries again.
        programs.run(*as_root("systemctl", "reset-failed", unit))
        raise Unfit(f"{failing}: {programs.last_line(printed).removeprefix('deeplearning: ')}")
    if state not in ("active", "activating"):
        started = programs.run(*as_root("systemd-run", "--quiet", f"--unit={unit}", *options, "--", *argv))
        if started.returncode:
            raise Unfit(f"{failing}: {programs.last_line(started.stderr)}")
    raise Preparing(doing)


def stop_attempt(run_id: str, attempt: int) -> subprocess.Popen[bytes]:
    """Begin to stop an attempt's processes on all nodes: mpirun passes the signal on, and kills them a second later."""
    return _begin("stop", attempt_unit(run_id, attempt))


def request_stacks(run_id: str, attempt: int) -> subprocess.Popen[bytes]:
    """Begin to ask the wrappers of an attempt for stacks: mpirun passes the signal on to them."""
    return _begin("kill", "--kill-who=main", "--signal=SIGUSR1", attempt_unit(run_id, attempt))


def request_end(run_id: str, attempt: int) -> subprocess.Popen[bytes]:
    """Begin to ask the wrappers of an attempt to end its processes: mpirun passes the signal on to them."""
    return _begin("kill", "--kill-who=main", "--signal=SIGUSR2", attempt_unit(run_id, attempt))


def _begin(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(as_root("systemctl", *words), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
