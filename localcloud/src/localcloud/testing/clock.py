"""A clock that tests advance themselves."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from localcloud.core.clock import Task


class ManualClock:
    """Time passes only by `advance`."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start
        self._tasks: list[Task] = []

    def time(self) -> float:
        """Return seconds since the epoch."""
        return self._now

    def later(self, seconds: float, action: Callable[[], Any]) -> None:
        """Run an action once, after this many seconds."""
        heapq.heappush(self._tasks, Task(self._now + seconds, action))

    def every(self, seconds: float, action: Callable[[], Any]) -> None:
        """Run an action again and again, each time after this many seconds."""
        heapq.heappush(self._tasks, Task(self._now + seconds, action, seconds))

    def advance(self, seconds: float) -> None:
        """Let time pass, running what falls due on the way, in order."""
        end = self._now + seconds
        while self._tasks and self._tasks[0].due <= end:
            task = heapq.heappop(self._tasks)
            self._now = max(self._now, task.due)
            task.action()
            if task.period is not None:
                self.every(task.period, task.action)
        self._now = end
