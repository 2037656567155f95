# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The process that renews a lock for as long as ansible-playbook runs, and reports whether the lock is still its own.

Ansible runs each task in a process of its own, so none of these can hold a lock for the next. The keeper is a child of
none of them. It ends when the lock is released (its folder is removed), lost, or when ansible-playbook has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ...module_utils.contract import schema
from ...module_utils.contract.atomic_file import replace as replace_file
from ...module_utils.contract.errors import UserError
from . import process
from .record import RENEW_SECONDS, LockRecord
from .store import LockStore

STATE = "state.json"
TICK_SECONDS = 0.5
"""How often the keeper looks whether it has to end."""
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that goes on while the machine sleeps. Only Linux has the first one; that of macOS goes on as well."""


@dataclass(frozen=True)
class KeptLock:
    """What the keeper tells the tasks, in its folder's file."""

    renewed_at: float
    """by CLOCK: when the lock was known to be ours"""
    lost: str = ""
    """why the lock is no longer ours; empty while it is"""
    stop_requested_by: str = ""


def now() -> float:
    return time.clock_gettime(CLOCK)


def write_state(folder: Path, state: KeptLock) -> None:
    content = json.dumps(asdict(state))
    replace_file(str(folder / STATE), content.encode(), 0o600)


def read_state(folder: Path) -> KeptLock | None:
    """Return what the keeper last wrote, or None if there is nothing that can be read."""
    try:
        fields = schema.json_object((folder / STATE).read_bytes())
        return KeptLock(**fields)
    except (OSError, TypeError):
        return None


@dataclass(frozen=True)
class Renewal:
    """The result of one attempt to renew."""

    record: LockRecord
    etag: str
    lost: str = ""


def renew(store: LockStore, record: LockRecord, etag: str) -> Renewal:
    """Write the lock once more. If another has changed it, say whether it is still ours."""
    renewed = replace(record, renewals=record.renewals + 1)
    new_etag = store.replace(renewed, etag)
    if new_etag:
        return Renewal(renewed, new_etag)
    observed = store.read()
    current = observed.record
    if current is not None and current.id == record.id and current.is_held:
        # Another operator has asked us to stop, or the answer to an earlier renewal was lost.
        return Renewal(current, observed.etag)
    if current is not None and current.id != record.id:
        return Renewal(record, "", lost=f"{current.holder()} has taken it over")
    return Renewal(record, "", lost="its object was removed or replaced")


class Keeper:
    """Renews the lock until it has to end."""

    def __init__(self, store: LockStore, folder: Path, playbook_pid: int, record: LockRecord, etag: str) -> None:
        self._store = store
        self._folder = folder
        self._playbook_pid = playbook_pid
        self._playbook_started = process.start_of(playbook_pid)
        self._record = record
        self._etag = etag

    def run(self) -> None:
        due = now() + RENEW_SECONDS
        while self._is_needed():
            time.sleep(TICK_SECONDS)
            if now() < due:
                continue
            if process.is_stopped(self._playbook_pid):
                # Whoever suspends a playbook does not keep others waiting. Its tasks ask S3 when it goes on.
                continue
            if not self._renew():
                return
            due = now() + RENEW_SECONDS
        # ansible-playbook has ended: nobody reads the state any more.
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_needed(self) -> bool:
        return self._folder.exists() and process.is_running(self._playbook_pid, self._playbook_started)

    def _renew(self) -> bool:
        """Renew once, and return whether the lock is still ours. A call that fails is repeated at the next renewal."""
        try:
            renewal = renew(self._store, self._record, self._etag)
        except UserError:
            return True
        self._record, self._etag = renewal.record, renewal.etag
        state = KeptLock(now(), renewal.lost, renewal.record.stop_requested_by)
        # On a full disk the state becomes old, and the tasks ask S3 themselves.
        with contextlib.suppress(OSError):
            write_state(self._folder, state)
        return not renewal.lost


def start(keeper: Keeper) -> None:
    """Run the keeper in a process of its own, which survives the task that starts it and holds none of its files.

    The keeper's store must have connections of its own.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            _close_files()
            keeper.run()
    finally:
        # Neither this process nor the keeper may run what Ansible's worker does at its end.
        os._exit(0)


def _close_files() -> None:
    """Give up all open files: whoever waits for the end of Ansible's output must not wait for the keeper."""
    highest = os.sysconf("SC_OPEN_MAX")
    os.closerange(0, min(highest, 65536))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        if descriptor != null:
            os.dup2(null, descriptor)
