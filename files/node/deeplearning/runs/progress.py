"""A run's progress: the newest lines of metrics/rank<n>.jsonl, combined into one summary."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from deeplearning import safe_files
from deeplearning.concurrency import FILES_AT_ONCE, with_files
from deeplearning.contract.errors import UserError
from deeplearning.contract.schema import json_object

EVALUATED = ("val_accuracy", "average_precision")
"""Only the lines that follow an evaluation have them."""
MOST_BYTES = 1024 * 1024
"""Of what a rank has written since the last time, only so much is read: the newest."""
MOST_RANKS = 1_000_000
"""A line may have the figures of so many ranks."""


class MetricsReader:
    """The metrics of one attempt: what its own ranks write after it has begun.

    Files of other ranks are left from attempts on more nodes. The trainer of rank 0 replaces files by shorter ones, so
    they change. A file is opened only if the folder lists it: an NFS client caches a missing name. It stays open while
    lines come from it. NFS shows to an open file for up to a minute nothing that other nodes have written, and never
    another file of its name: some of the files without news, all of a small run, are opened again at each call.
    """

    def __init__(self, folder: str, ranks: int) -> None:
        self._folder = f"{folder}/metrics"
        self._names = [f"rank{rank}.jsonl" for rank in range(ranks)]
        self._handles: dict[str, int] = {}
        """Of open files. The one that has been open for the longest time is the first."""
        existing = self._existing()
        # What earlier attempts have written is theirs.
        self._offsets = dict(zip(existing, with_files(_size, existing)))
        self._newest: dict[str, dict[str, Any]] = {}
        self.written: dict[int, dict[str, Any]] = {}
        """The newest line of each rank that has written since the last call but one of `news`."""
        self._evaluated: dict[str, Any] = {}

    def news(self) -> dict[str, Any] | None:
        """Return a new summary, or None if no rank has written since the last call."""
        before = dict(self._offsets)
        opened = list(self._handles)
        self._read(self._existing())
        silent = [path for path in opened if self._offsets.get(path) == before.get(path)][:FILES_AT_ONCE]
        for path in silent:
            os.close(self._handles.pop(path))
        self._read(silent)
        changed = {path for path, offset in self._offsets.items() if offset != before.get(path)}
        ranks = ((rank, f"{self._folder}/{name}") for rank, name in enumerate(self._names))
        self.written = {rank: self._newest.get(path, {}) for rank, path in ranks if path in changed}
        return self.summary() if changed else None

    def close(self) -> None:
        """Close all files. The next call of `news` opens them again, and misses nothing."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()

    def _existing(self) -> list[str]:
        try:
            listed = set(os.listdir(self._folder))
        except OSError:
            return []
        return [f"{self._folder}/{name}" for name in self._names if name in listed]

    def _read(self, paths: list[str]) -> None:
        for evaluated in with_files(self._read_new_lines, paths):
            self._evaluated |= evaluated

    def _read_new_lines(self, path: str) -> dict[str, Any]:
        """Take over a rank's newest line. Return the figures of its last evaluation."""
        try:
            offset = self._offset(path)
            start, data = _newest_bytes(self._handles[path], offset)
        except (OSError, UserError):
            return {}
        complete = data[: data.rfind(b"\n") + 1]
        if not complete:
            return {}
        self._offsets[path] = start + len(complete)
        if start > offset:
            # The first line is not whole.
            complete = complete[complete.index(b"\n") + 1 :]
        evaluated: dict[str, Any] = {}
        for line in complete.splitlines():
            record = json_object(line)
            if record:
                self._newest[path] = record
                evaluated |= {key: record[key] for key in EVALUATED if record.get(key) is not None}
        return evaluated

    def _offset(self, path: str) -> int:
        """Return where a file's new lines begin. Open it if it is not open."""
        offset = self._offsets.get(path, 0)
        if path not in self._handles:
            handle = self._handles[path] = safe_files.open_handle(path)
            if offset and os.fstat(handle).st_size < offset:
                # The trainer has removed the lines of the epochs that it repeats.
                return 0
        return offset

    def summary(self) -> dict[str, Any] | None:
        return summary(list(self._newest.values()), self._evaluated)


def _size(path: str) -> int:
    try:
        with safe_files.open_file(path) as file:
            return os.fstat(file.fileno()).st_size
    except (OSError, UserError):
        return 0


def _newest_bytes(handle: int, offset: int) -> tuple[int, bytes]:
    """Return what a file has from there on, or the newest of it, and where that begins."""
    data = os.pread(handle, MOST_BYTES, offset)
    if len(data) < MOST_BYTES:
        return offset, data
    start = max(offset, os.fstat(handle).st_size - MOST_BYTES)
    return start, data if start == offset else os.pread(handle, MOST_BYTES, start)


def summary(newest: list[dict[str, Any]], evaluated: Mapping[str, Any]) -> dict[str, Any] | None:
    """Combine each rank's newest line: sum throughput, average loss and accuracy, take the slowest rank's step.

    A line may have the figures of several ranks.
    """
    if not newest:
        return None
    speeds = _numbers(newest, "samples_per_second")
    left = [seconds for record in newest if (seconds := seconds_left(record)) is not None]
    return {
        "epoch": min(_numbers(newest, "epoch"), default=None),
        "step": min(_numbers(newest, "step"), default=None),
        "loss": _average(_numbers(newest, "loss")),
        "accuracy": _average(_numbers(newest, "accuracy")),
        **{key: _number(evaluated.get(key)) for key in EVALUATED},
        "samples_per_second": sum(speeds) if speeds else None,
        "ranks": sum(_ranks(record) for record in newest),
        "seconds_left": max(left, default=None),
    }


def _ranks(record: Mapping[str, Any]) -> int:
    ranks = record.get("ranks")
    return ranks if isinstance(ranks, int) and 1 < ranks <= MOST_RANKS else 1


def _average(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def seconds_left(record: dict[str, Any]) -> float | None:
    step, steps, seconds = (_number(record.get(key)) for key in ("step", "steps", "seconds"))
    if not step or steps is None or seconds is None:
        return None
    return max(0.0, (steps - step) * seconds / step)


def _numbers(records: list[dict[str, Any]], key: str) -> list[float]:
    return [value for record in records if (value := _number(record.get(key))) is not None]


def _number(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return None if math.isnan(value) else value
    except OverflowError:
        return None
