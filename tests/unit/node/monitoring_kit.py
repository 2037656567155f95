"""Members' loads and runs as a snapshot has them."""

from __future__ import annotations

import math
import time
from typing import Any

from deeplearning.views import curves

from tests.unit.node.runs_kit import members

NOW = 1_800_000_000.0


def point(number: int, seconds: float = NOW) -> dict[str, Any]:
    """Return the progress of a run after so many points, every three seconds and ten steps."""
    figures = {"epoch": number // 20, "step": 10.0 * number, "seconds_left": 600.0}
    figures |= {"loss": 2.3 / (1 + number / 10), "accuracy": 1 - 0.9 / (1 + number / 30)}
    figures |= {"samples_per_second": 3200 + 80 * math.sin(number / 4)}
    return {"time": seconds + 3 * number, **dict.fromkeys(curves.FIGURES), **figures}


def run_with(run_id: str, points: int, state: str, **more: Any) -> dict[str, Any]:
    """Return a run as a snapshot has it."""
    first = time.time() - 3 * points
    known: dict[str, Any] = {"run_id": run_id, "state": state, "nodes": 2, "reason": "", "stall": None}
    known |= {"framework": "pytorch", "distribution": "ddp", "requested_at": "2026-11-23T03:00:00Z"}
    return {**known, "points": [point(number, first) for number in range(points)], **more}


def loaded(number: int, **more: Any) -> dict[str, Any]:
    record = {"instance_id": members(number).members[-1].instance_id, "at": int(time.time()), "load": 1.5}
    record |= {"processors": 4, "memory_percent": 30, "disk_percent": 40, "logins": 1, "jobs": 0, "errors": []}
    return record | {"gpus": [{"busy_percent": 90, "memory_percent": 50}]} | more
