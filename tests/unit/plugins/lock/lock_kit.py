"""A lock object in memory, with the conditional writes of S3, and records to put into it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock import process
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.process import HolderProcess
from ansible_collections.deeplearning.aws.plugins.plugin_utils.lock.record import (
    HELD,
    LockName,
    LockRecord,
    ObservedLock,
    parse,
)

ELSEWHERE = HolderProcess(host="laptop", boot="another-boot", namespace="pid:[1]", pid=7, started="1")
HERE = process.describe(1)
ENDED = replace(HERE, started="0")
"""A process of this machine whose number another process has now."""


def record(**fields: object) -> LockRecord:
    values = {
        "id": "00000000000000aa",
        "state": HELD,
        "user": "ann@laptop",
        "playbook": "site",
        "since": "2026-11-28T12:00:00Z",
        "process": ELSEWHERE,
    }
    return LockRecord(**{**values, **fields})  # type: ignore[arg-type]


def observed(lock: LockRecord, age_seconds: float = 0.0) -> ObservedLock:
    return ObservedLock(etag='"etag"', record=lock, age_seconds=age_seconds)


@dataclass
class MemoryStore:
    """Stands in for LockStore."""

    name: LockName = LockName("red")
    content: bytes = b""
    age_seconds: float = 0.0
    writes: list[bytes] = field(default_factory=list)
    loses_answers: int = 0
    """how many writes are carried out, but look as if another had been first: their answers were lost"""

    def read(self) -> ObservedLock:
        if not self.content:
            return ObservedLock()
        return ObservedLock(self._etag(), parse(self.content), self.age_seconds)

    def create(self, lock: LockRecord) -> str:
        return "" if self.content else self.put(lock)

    def replace(self, lock: LockRecord, etag: str) -> str:
        return self.put(lock) if self.content and etag == self._etag() else ""

    def put(self, lock: LockRecord) -> str:
        self.content = lock.to_json()
        self.age_seconds = 0.0
        self.writes.append(self.content)
        if self.loses_answers:
            self.loses_answers -= 1
            return ""
        return self._etag()

    def _etag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'
