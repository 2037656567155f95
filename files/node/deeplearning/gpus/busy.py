"""How busy a node's GPUs are while a run trains. One wrapper of each node reads it, and the master sums it up."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
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


def median(readings: Counter[int]) -> int | None:
    """Return the median of any number of readings, of which only their distribution is kept."""
    count, total = 0, sum(readings.values())
    for percent in sorted(readings):
        count += readings[percent]
        if 2 * count >= total:
            return percent
    return None
