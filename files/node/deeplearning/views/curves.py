"""The progress of a run over time, from its events. Their file may be large, so a limited part of it is read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from deeplearning.contract.schema import json_object
from deeplearning.safe_files import open_file

FIGURES = (
    "epoch",
    "step",
    "loss",
    "accuracy",
    "val_accuracy",
    "samples_per_second",
    "seconds_left",
)
TAIL_BYTES = 64 * 1024
"""The newest events: those of several minutes."""
WINDOW_BYTES = 4096
WINDOWS = 200
"""A longer file is read in so many windows, at equal distances."""
STEP_SECONDS = 60.0
"""The time of a step is measured over this."""

Point = dict[str, Any]
"""`time` in seconds since 1970, and each of FIGURES as a number or None."""


def newest(path: str) -> list[Point]:
    """Return the newest points of a run's events, oldest first."""
    with open_file(path) as file:
        return list(_points(_window(file, max(0, _size(file) - TAIL_BYTES), TAIL_BYTES)))


def curve(path: str) -> list[Point]:
    """Return points from the beginning of a run's events to their end, oldest first."""
    with open_file(path) as file:
        last = _size(file) - WINDOW_BYTES
        if last <= WINDOWS * WINDOW_BYTES:
            return list(_points(_window(file, 0, _size(file))))
        points = []
        for number in range(WINDOWS):
            points += list(_points(_window(file, last * number // (WINDOWS - 1), WINDOW_BYTES)))[-1:]
        return points


def step_seconds(points: Sequence[Point]) -> float | None:
    """Return how long a step took during the last minute of the points; None if that is unknown."""
    known = [point for point in points if point["step"] is not None]
    recent = [point for point in known if known[-1]["time"] - point["time"] <= STEP_SECONDS]
    if not recent:
        return None
    steps, seconds = (recent[-1][key] - recent[0][key] for key in ("step", "time"))
    return float(seconds / steps) if steps > 0 and seconds > 0 else None


def number(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _window(file: BinaryIO, offset: int, length: int) -> list[bytes]:
    """Return the complete lines of a part of the file."""
    # The byte before shows whether the first line is complete.
    start = max(0, offset - 1)
    file.seek(start)
    lines = file.read(length + offset - start).split(b"\n")
    return lines[1 if start else 0 : -1]


def _points(lines: Sequence[bytes]) -> Iterator[Point]:
    for line in lines:
        event = json_object(line)
        if event.get("event") == "progress" and number(event.get("time")) is not None:
            yield {key: number(event.get(key)) for key in ("time", *FIGURES)}
