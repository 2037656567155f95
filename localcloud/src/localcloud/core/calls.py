"""The log of API calls: caller, operation, needed permissions and result."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Record:
    time: float
    """when it was asked, seconds since the epoch"""
    caller: str
    service: str
    operation: str
    region: str
    action: str = ""
    """the action of the operation itself, such as ec2:DescribeInstances"""
    required: list[dict[str, Any]] = field(default_factory=list)
    """what had to be allowed: action and resource each"""
    resource: str = ""
    source: str = ""
    """the address that it came from"""
    result: str = "ok"
    """ok, or the error's code"""
    status: int = 200
    milliseconds: float = 0.0
    writes: bool = False


class CallLog:
    """The newest calls in memory, all of them in a file of one JSON object a line."""

    def __init__(self, path: Path | None = None, keep: int = 100_000) -> None:
        self._records: deque[Record] = deque(maxlen=keep)
        self._lock = threading.Lock()
        self._file = path.open("a", encoding="utf-8", buffering=1) if path else None

    def add(self, record: Record) -> None:
        with self._lock:
            self._records.append(record)
            if self._file:
                self._file.write(json.dumps(asdict(record), default=str) + "\n")

    def since(self, time: float = 0.0) -> list[Mapping[str, Any]]:
        with self._lock:
            return [asdict(record) for record in self._records if record.time >= time]

    def close(self) -> None:
        if self._file:
            self._file.close()
