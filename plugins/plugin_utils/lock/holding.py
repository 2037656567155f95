# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Take, verify and release a cluster's lock."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...module_utils.aws.client import Aws
from ...module_utils.contract.errors import UserError
from ...module_utils.contract.schema import format_time
from ..runs.run_events import clock
from ..untrusted import one_line
from . import keeper, process
from .record import (
    FREE,
    HELD,
    LOCK_KINDS,
    RENEW_SECONDS,
    LockName,
    LockRecord,
    ObservedLock,
    Verdict,
    decide,
    timeout_sentence,
)
from .store import LockStore, NoBucket, NoLocking

POLL_SECONDS = 2.0
VERIFY_SECONDS = 2 * RENEW_SECONDS + 15
"""After this long without a renewal, the keeper has missed one, or the machine was asleep: S3 is asked itself."""
DESTROY = "destroy"
"""The playbook that removes a cluster."""
NOTICE_SECONDS = RENEW_SECONDS + 5
"""After this long, a live holder whose lock was taken over knows that, as its next renewal has failed."""
NEVER_LOCKED = "never locked"
IN_USE = "in use"


@dataclass(frozen=True)
class LockRequest:
    """Who wants the lock, and how long to wait for it."""

    user: str
    playbook: str
    playbook_pid: int
    wait_seconds: float
    break_lock: str = ""
    asks_to_stop: bool = False
    """Ask a live holder to stop, and take over at the end of the wait: only destroy does."""


@dataclass(frozen=True)
class HeldLock:
    """A lock that this playbook holds: what its later tasks need to know. A fact of the playbook."""

    cluster: str
    kind: str
    """the name of its LockKind"""
    id: str
    folder: str
    """where the keeper writes its state"""
    region: str
    profile: str
    role_arn: str

    @property
    def name(self) -> LockName:
        return LockName(self.cluster, LOCK_KINDS[self.kind])

    def store(self) -> LockStore:
        """Return the lock's store, with a session of its own."""
        return LockStore(Aws(self.region, self.profile, self.role_arn), self.cluster, LOCK_KINDS[self.kind])


def held_lock(fact: Mapping[str, Any]) -> HeldLock | None:
    """Return the lock in a fact, or None if the playbook holds none."""
    lock = fact.get("lock")
    if not lock:
        return None
    return HeldLock(**{name: str(value) for name, value in lock.items()})


@dataclass(frozen=True)
class Taken:
    """A lock that was just taken."""

    record: LockRecord
    etag: str
    before: ObservedLock
    """what the lock was before"""


def version_of(observed: ObservedLock) -> str:
    """Return what changes whenever another playbook takes the lock. While one holds it, no version is a stable one."""
    if not observed.exists:
        return NEVER_LOCKED
    return IN_USE if is_live(observed) else observed.id


def current_version(store: LockStore) -> str:
    try:
        return version_of(store.read())
    except NoBucket:
        return NEVER_LOCKED


def is_live(observed: ObservedLock) -> bool:
    """Return whether a playbook holds the lock that may still run."""
    record = observed.record
    if record is None or not record.is_held or observed.is_abandoned:
        return False
    return not process.has_ended(record.process)


def has_changed(expected: str, observed: ObservedLock) -> bool:
    """Return whether another playbook may have changed the cluster since its lock had the version `expected`."""
    if expected == IN_USE:
        return True
    version = NEVER_LOCKED if not observed.exists else observed.id
    return version != expected


def take(store: LockStore, request: LockRequest, display: Callable[[str], None]) -> Taken:
    """Wait until the lock can be taken, and take it. Raise UserError if it cannot."""
    waiting = _Waiting(store, request, display)
    while True:
        taken = waiting.attempt()
        if taken is not None:
            return taken
        time.sleep(POLL_SECONDS)


class _Waiting:
    """One wait for a lock."""

    def __init__(self, store: LockStore, request: LockRequest, display: Callable[[str], None]) -> None:
        self._store = store
        self._request = request
        self._display = display
        self._started = time.monotonic()
        self._announced = ""
        """the id of the holder that was announced"""
        self._has_live_holder = False

    def attempt(self) -> Taken | None:
        """Take the lock if it can be taken now. Return None if the next attempt may take it."""
        is_late = time.monotonic() - self._started >= self._request.wait_seconds
        try:
            return self._attempt(is_late)
        except NoLocking:
            # destroy goes on without a lock, but not beside a playbook that is known to hold it.
            if self._request.asks_to_stop and self._has_live_holder and not is_late:
                return None
            raise

    def _attempt(self, is_late: bool) -> Taken | None:
        store, request = self._store, self._request
        observed = store.read()
        decision = decide(observed, store.name, request.break_lock, process.has_ended)
        if decision.verdict is Verdict.REFUSE:
            raise UserError(decision.note)
        self._has_live_holder = is_live(observed)
        if decision.verdict is Verdict.TAKE:
            if decision.note:
                self._display(decision.note)
            return self._take(observed)
        if _is_to_stop(observed, request):
            _ask_to_stop(store, observed, request.user)
        if is_late and request.asks_to_stop:
            return self._take(store.read())
        if is_late:
            raise UserError(timeout_sentence(observed, store.name, clock(request.wait_seconds)))
        if observed.id != self._announced:
            self._announced = observed.id
            self._display(_waiting_line(observed, store.name, request))
        return None

    def _take(self, observed: ObservedLock) -> Taken | None:
        taken = _try_to_take(self._store, self._request, observed)
        if taken is not None and is_live(observed):
            self._display(f"Waiting for {clock(NOTICE_SECONDS)} until the former holder has noticed it.")
            time.sleep(NOTICE_SECONDS)
        return taken


def _is_to_stop(observed: ObservedLock, request: LockRequest) -> bool:
    """Return whether the holder is to be asked to stop. Another destroy does what we want."""
    is_destroy = observed.record is not None and observed.record.playbook == DESTROY
    return request.asks_to_stop and not is_destroy


def _waiting_line(observed: ObservedLock, lock: LockName, request: LockRequest) -> str:
    holder = observed.record.holder() if observed.record else "another playbook"
    line = f"{lock.title} is locked by {holder}: waiting for up to {clock(request.wait_seconds)}"
    if _is_to_stop(observed, request):
        return f"{line}. It is asked to stop."
    return f"{line}. The lock's id is {observed.id}."


def _try_to_take(store: LockStore, request: LockRequest, observed: ObservedLock) -> Taken | None:
    """Write our lock in place of the observed one. Return None if it has changed meanwhile."""
    record = LockRecord(
        id=secrets.token_hex(8),
        state=HELD,
        user=request.user,
        playbook=request.playbook,
        since=format_time(),
        process=process.describe(request.playbook_pid),
    )
    etag = store.replace(record, observed.etag) if observed.exists else store.create(record)
    if etag:
        return Taken(record, etag, observed)
    # If S3's answer to our request was lost, the repeated request has met our own lock.
    current = store.read()
    if current.id == record.id:
        return Taken(record, current.etag, observed)
    return None


def _ask_to_stop(store: LockStore, observed: ObservedLock, user: str) -> None:
    record = observed.record
    if record is None or record.stop_requested_by:
        return
    # If the holder has renewed it meanwhile, the next poll asks again.
    store.replace(replace(record, stop_requested_by=user), observed.etag)


def keep(store: LockStore, aws: Aws, options: Mapping[str, Any], taken: Taken, playbook_pid: int) -> HeldLock:
    """Start the process that renews the lock until it is released or the playbook has ended."""
    folder = Path(tempfile.mkdtemp(prefix="deeplearning-lock-"))
    keeper.write_state(folder, keeper.KeptLock(keeper.now()))
    # A connection must not be shared by two processes.
    own_store = LockStore(aws.in_region(aws.region), store.name.cluster, store.name.kind)
    keeper.start(keeper.Keeper(own_store, folder, playbook_pid, taken.record, taken.etag))
    return HeldLock(
        cluster=store.name.cluster,
        kind=store.name.kind.name,
        id=taken.record.id,
        folder=str(folder),
        region=options["region"],
        profile=options["profile"],
        role_arn=options["role_arn"],
    )


def verify(lock: HeldLock) -> None:
    """Raise UserError if the lock is no longer ours, or if its holder was asked to stop."""
    state = keeper.read_state(Path(lock.folder))
    if state is None or keeper.now() - state.renewed_at > VERIFY_SECONDS:
        state = _ask_s3(lock)
    if state.lost:
        raise UserError(
            f"This playbook no longer has the lock of {lock.name.subject}: {one_line(state.lost)}. It stops "
            "here, so that two playbooks do not change the cluster at once. Run it again to continue."
        )
    if state.stop_requested_by:
        raise UserError(
            f"{one_line(state.stop_requested_by)} removes the cluster {lock.cluster} with destroy.yml and has asked "
            "this playbook to stop, so it stops here."
        )


def _ask_s3(lock: HeldLock) -> keeper.KeptLock:
    """Read the lock, and renew it if it is still ours."""
    store = lock.store()
    observed = store.read()
    record = observed.record
    if record is not None and record.id != lock.id:
        return keeper.KeptLock(keeper.now(), lost=f"{record.holder()} has taken it over")
    if record is None or not record.is_held:
        return keeper.KeptLock(keeper.now(), lost="its object was removed or replaced")
    renewal = keeper.renew(store, record, observed.etag)
    state = keeper.KeptLock(keeper.now(), renewal.lost, renewal.record.stop_requested_by)
    with contextlib.suppress(OSError):
        keeper.write_state(Path(lock.folder), state)
    return state


MOST_ATTEMPTS = 5


def end_keeper(lock: HeldLock) -> None:
    """Let the process end that renews the lock, without releasing the lock."""
    shutil.rmtree(lock.folder, ignore_errors=True)


def release(store: LockStore, lock: HeldLock) -> None:
    """Write that the lock is free, if it is still ours."""
    end_keeper(lock)
    for _attempt in range(MOST_ATTEMPTS):
        observed = store.read()
        record = observed.record
        if record is None or record.id != lock.id or not record.is_held:
            return
        if store.replace(replace(record, state=FREE), observed.etag):
            return


def change_since(store: LockStore, version: str) -> str:
    """Return who has changed the cluster since its lock had this version; empty if nobody has."""
    try:
        observed = store.read()
    except NoBucket:
        return f"The cluster {store.name.cluster} was removed"
    if not has_changed(version, observed):
        return ""
    if observed.record is None:
        return f"The lock of the cluster {store.name.cluster} was replaced"
    return f"{observed.record.holder()} has changed the cluster {store.name.cluster}"


def removal_since(store: LockStore, version: str) -> str:
    """Return who has removed the cluster, or begun to, since its lock had this version; empty if nobody has."""
    try:
        observed = store.read()
    except NoBucket:
        return f"The cluster {store.name.cluster} was removed"
    record = observed.record
    if record is None or record.playbook != DESTROY or not has_changed(version, observed):
        return ""
    return f"{record.holder()} has removed the cluster {store.name.cluster}"


def describe(store: LockStore) -> str:
    """Return who holds the lock, as text; empty if nobody does."""
    try:
        observed = store.read()
    except NoBucket:
        return ""
    except UserError as problem:
        return f"unknown: {problem}"
    record = observed.record
    if observed.is_foreign:
        return f"unknown: {store.name.kind.object} is not a lock of this version of the collection (id {observed.id})"
    if record is None or not record.is_held:
        return ""
    if is_live(observed):
        return f"held by {record.holder()}, id {record.id}"
    return f"left by {record.holder()}, which has ended: the next playbook takes it over"


def parent_playbook() -> int:
    """Return the process id of ansible-playbook, whose worker runs this action."""
    return os.getppid()


def as_fact(lock: HeldLock) -> dict[str, Any]:
    return asdict(lock)
