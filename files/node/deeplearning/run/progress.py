"""How far a run is: the newest lines of metrics/rank<n>.jsonl, made into one."""

from __future__ import annotations

import glob
import json
import math
import os
from typing import Any

AVERAGED = ("loss", "accuracy")
KEYS = (
    "epoch",
    "step",
    "loss",
    "accuracy",
    "val_accuracy",
    "samples_per_second",
    "ranks",
    "seconds_left",
)


class Progress:
    """Opens, reads and closes the files each time: on NFS that is what shows what other nodes have written."""

    def __init__(self, folder: str) -> None:
        self._pattern = f"{glob.escape(folder)}/metrics/rank*.jsonl"
        # What earlier starts have written is theirs.
        self._read = {path: os.path.getsize(path) for path in glob.glob(self._pattern)}
        self._newest: dict[str, dict[str, Any]] = {}
        self._evaluated: Any = None

    def news(self) -> dict[str, Any] | None:
        """None if nobody has written since the last time."""
        before = dict(self._read)
        for path in glob.glob(self._pattern):
            self._look(path)
        return self.summary() if self._read != before else None

    def _look(self, path: str) -> None:
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self._read.get(path, 0):
                    # A trainer has begun by leaving out what it does again.
                    self._read[path] = 0
                file.seek(self._read.get(path, 0))
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            return
        self._read[path] = self._read.get(path, 0) + len(whole)
        for line in whole.splitlines():
            record = _record(line)
            if record:
                self._newest[path] = record
                if record.get("val_accuracy") is not None:
                    self._evaluated = record["val_accuracy"]

    def summary(self) -> dict[str, Any] | None:
        return summary(list(self._newest.values()), self._evaluated)


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def summary(newest: list[dict[str, Any]], evaluated: float | None = None) -> dict[str, Any] | None:
    """Of each rank's newest line: throughput is summed, loss and accuracy averaged, the slowest rank's step counts."""
    if not newest:
        return None
    made: dict[str, Any] = dict.fromkeys(KEYS)
    for key in ("epoch", "step"):
        made[key] = min((value for value in _numbers(newest, key)), default=None)
    for key in AVERAGED:
        values = _numbers(newest, key)
        made[key] = sum(values) / len(values) if values else None
    speeds = _numbers(newest, "samples_per_second")
    made["samples_per_second"] = sum(speeds) if speeds else None
    made["val_accuracy"] = evaluated
    made["ranks"] = len(newest)
    left = [seconds for record in newest if (seconds := seconds_left(record)) is not None]
    made["seconds_left"] = max(left, default=None)
    return made


def seconds_left(record: dict[str, Any]) -> float | None:
    step, steps, seconds = (_number(record.get(key)) for key in ("step", "steps", "seconds"))
    if not step or steps is None or seconds is None:
        return None
    return max(0.0, (steps - step) * seconds / step)


def _numbers(records: list[dict[str, Any]], key: str) -> list[float]:
    return [value for record in records if (value := _number(record.get(key))) is not None]


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value) else None
