"""Copy the scalars that a TensorPack example writes to its stats.json into the run's metrics, while it trains."""

from __future__ import annotations

import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import metrics_file

SECONDS_BETWEEN_READS = 2.0
PRECISION = "mAP(bbox)/IoU=0.5:0.95"
"""COCO's measure. The example puts the data set's name before it."""


def line_of(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the metrics of a record, or None if it has no loss and no precision."""
    precisions = [value for name, value in record.items() if name.endswith(PRECISION)]
    line = {
        "epoch": record.get("epoch_num"),
        "step": record.get("global_step"),
        "loss": _number(record.get("total_cost")),
        "average_precision": _number(precisions[0]) if precisions else None,
        "samples_per_second": _number(record.get("Throughput (samples/sec)")),
    }
    return None if line["loss"] is None and line["average_precision"] is None else line


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


class StatsCopier:
    """Follows stats.json from the first rank. Its figures are those of all `world` ranks."""

    def __init__(self, stats: Path, metrics: Path, world: int, seconds: float, steps: int | None) -> None:
        self._stats, self._metrics, self._copied = stats, metrics, 0
        self._constant = {"steps": steps, "ranks": world}
        self._began = time.monotonic() - seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_unused: object) -> None:
        self._ended.set()
        self._thread.join()
        self.copy()

    def _run(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_READS):
            self.copy()

    def copy(self) -> None:
        """Append the records that are new."""
        try:
            records = json.loads(self._stats.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return
        seconds = round(time.monotonic() - self._began, 3)
        for record in records[self._copied :]:
            line = line_of(record)
            if line:
                metrics_file.append(self._metrics, line | self._constant | {"seconds": seconds})
        self._copied = len(records)
