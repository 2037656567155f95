# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The locks of a cluster, their content, and the decision whether a playbook may take one: pure functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from ...module_utils.contract import schema
from ...module_utils.contract.errors import UserError
from ..untrusted import one_line
from .process import HolderProcess

LARGEST = 4096
RENEW_SECONDS = 30.0
ABANDONED_SECONDS = 180.0
"""A lock that was not renewed for this long may be taken over. This is six renewals."""

HELD, FREE = "held", "free"


@dataclass(frozen=True)
class LockKind:
    """What a lock is for."""

    name: str
    object: str
    """the object in the cluster's bucket; members cannot write it"""
    prefix: str
    """what is locked, in messages, before the cluster's name"""


CLUSTER = LockKind("cluster", "lock.json", "the cluster")
IMAGE_MACHINE = LockKind("image_machine", "image_machine_lock.json", "the image machine of the cluster")
"""Whoever makes an image holds it for the whole time, and the lock of the cluster only while something changes."""
LOCK_KINDS = {kind.name: kind for kind in (CLUSTER, IMAGE_MACHINE)}


@dataclass(frozen=True)
class LockName:
    """One lock of one cluster."""

    cluster: str
    kind: LockKind = CLUSTER

    @property
    def subject(self) -> str:
        """Return what is locked, in words."""
        return f"{self.kind.prefix} {self.cluster}"

    @property
    def title(self) -> str:
        """Return the same for the beginning of a sentence."""
        return self.subject[0].upper() + self.subject[1:]


@dataclass(frozen=True)
class LockRecord:
    """Who holds the lock, or who held it last."""

    id: str
    """identifies this holding of the lock: the next one has another id"""
    state: str
    user: str
    """who started the playbook, as user@host"""
    playbook: str
    since: str
    process: HolderProcess
    renewals: int = 0
    """makes the ETag of each renewal different, so that nobody can replace a renewed lock by its old ETag"""
    stop_requested_by: str = ""
    """who has asked the holder to stop; empty if nobody has"""

    @property
    def is_held(self) -> bool:
        return self.state == HELD

    def holder(self) -> str:
        """Return the holder in words, for messages."""
        return f"{one_line(self.user)} ({one_line(self.playbook)}.yml, since {self.since})"

    def to_json(self) -> bytes:
        record = {"schema": schema.VERSION, **asdict(self)}
        return json.dumps(record, indent=2, sort_keys=True).encode() + b"\n"


_TEXT = schema.text(256)
_PROCESS_FIELDS: dict[str, schema.Check] = {
    "host": _TEXT,
    "boot": _TEXT,
    "namespace": _TEXT,
    "pid": schema.between(0, 2**31),
    "started": _TEXT,
}
_FIELDS: dict[str, schema.Check] = {
    "id": schema.matching(r"[0-9a-f]{16}", "16 hexadecimal digits"),
    "state": schema.one_of(HELD, FREE),
    "user": _TEXT,
    "playbook": schema.matching(r"[a-z_]{1,40}", "the name of a playbook"),
    "since": schema.timestamp,
    "process": schema.part(_PROCESS_FIELDS, "process"),
    "renewals": schema.between(0, 2**53),
    "stop_requested_by": _TEXT,
}


def parse(content: bytes) -> LockRecord | None:
    """Return the record, or None if the content is not a lock of this collection."""
    try:
        fields: dict[str, Any] = schema.parse(content, LARGEST, _FIELDS, "a lock")
    except UserError:
        return None
    fields.pop("schema", None)
    process = HolderProcess(**fields.pop("process"))
    return LockRecord(process=process, **fields)


@dataclass(frozen=True)
class ObservedLock:
    """The lock object as S3 has it."""

    etag: str = ""
    """empty: there is no lock object yet"""
    record: LockRecord | None = None
    """None: there is no lock object, or its content is not a lock of this collection"""
    age_seconds: float = 0.0
    """since its last renewal, by S3's own clock"""

    @property
    def exists(self) -> bool:
        return bool(self.etag)

    @property
    def is_foreign(self) -> bool:
        return self.exists and self.record is None

    @property
    def id(self) -> str:
        """Return what identifies the last holding of the lock; the ETag if the content is not a lock."""
        if self.record is None:
            return self.etag.strip('"')
        return self.record.id

    @property
    def is_abandoned(self) -> bool:
        return self.age_seconds > ABANDONED_SECONDS


class Verdict(Enum):
    TAKE = "take"
    WAIT = "wait"
    REFUSE = "refuse"


@dataclass(frozen=True)
class LockDecision:
    verdict: Verdict
    note: str = ""
    """to print before the lock is taken over, or why it is refused"""


def decide(
    observed: ObservedLock, lock: LockName, break_lock: str, has_ended: Callable[[HolderProcess], bool]
) -> LockDecision:
    """Decide whether the lock may be taken now. `has_ended`: whether a process of this machine is known to be gone."""
    record = observed.record
    if not observed.exists:
        return LockDecision(Verdict.TAKE)
    if break_lock and break_lock == observed.id:
        return LockDecision(Verdict.TAKE, f"The lock {break_lock} of {lock.subject} is broken, as break_lock says.")
    if record is None:
        return LockDecision(Verdict.REFUSE, _foreign_sentence(observed, lock))
    if not record.is_held:
        return LockDecision(Verdict.TAKE)
    if break_lock:
        sentence = (
            f"break_lock is {break_lock}, and the lock of {lock.subject} has the id {record.id}: it is held by "
            f"{record.holder()}. If that playbook has ended: -e break_lock={record.id}"
        )
        return LockDecision(Verdict.REFUSE, sentence)
    if has_ended(record.process):
        note = f"{record.holder()} has ended without releasing the lock of {lock.subject}: it is taken over."
        return LockDecision(Verdict.TAKE, note)
    if observed.is_abandoned:
        minutes = observed.age_seconds / 60
        note = (
            f"{record.holder()} has not renewed the lock of {lock.subject} for {minutes:.0f} minutes: it is taken over."
        )
        return LockDecision(Verdict.TAKE, note)
    return LockDecision(Verdict.WAIT)


def _foreign_sentence(observed: ObservedLock, lock: LockName) -> str:
    return (
        f"The object {lock.kind.object} in the bucket of the cluster {lock.cluster} is not a lock of this version of "
        f"the collection. Look at it, and if nobody else works on the cluster, replace it: -e break_lock={observed.id}"
    )


def timeout_sentence(observed: ObservedLock, lock: LockName, waited: str) -> str:
    """Return the sentence for a playbook that has waited for the lock in vain."""
    record = observed.record
    holder = record.holder() if record else "another playbook"
    return (
        f"{lock.title} is locked by {holder}. After a wait of {waited} this playbook stops: run it again "
        "later, or wait longer with -e lock_wait=SECONDS. If the other playbook no longer runs, take the lock over: "
        f"-e break_lock={observed.id}"
    )
