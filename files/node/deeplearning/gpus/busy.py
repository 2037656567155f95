"""How busy a node's GPUs are while a run trains. One wrapper of each node reads it, and the master sums it up."""

from __future__ import annotations

import statistics
import threading
import time
from typing import Callable

from deeplearning.gpus import nvml

SECONDS = 10.0
"""Between two readings. NVML itself averages over a second at most."""
DRIVER_SECONDS = 15.0


def watch(report: Callable[[int], None]) -> None:
    """Call `report` now and then with the average of this node's GPUs in percent. A thread does so from now on."""

    def work() -> None:
        while True:
            time.sleep(SECONDS)
            gpus = nvml.read(DRIVER_SECONDS).gpus
            known = [min(gpu.busy_percent, 100) for gpu in gpus if gpu.busy_percent is not None]
            if known:
                report(round(statistics.mean(known)))

    threading.Thread(target=work, daemon=True).start()


class Percentages:
    """Any number of readings, of which only their distribution is kept."""

    def __init__(self) -> None:
        self._counts = [0] * 101

    def add(self, percent: int) -> None:
        self._counts[percent] += 1

    @property
    def median(self) -> int | None:
        total, passed = sum(self._counts), 0
        for percent, count in enumerate(self._counts):
            passed += count
            if total and 2 * passed >= total:
                return percent
        return None
