"""The clock of the tests, which they advance themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localcloud.core.clock import Agenda, Task


class ManualClock:
    """Time passes only by `advance`."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start
        self._agenda = Agenda()

    def time(self) -> float:
        return self._now

    def later(self, seconds: float, action: Callable[[], Any]) -> None:
        self._add(Task(self._now + seconds, action, None))

    def every(self, seconds: float, action: Callable[[], Any]) -> None:
        self._add(Task(self._now + seconds, action, seconds))

    def _add(self, task: Task) -> None:
        self._agenda.push(task)

    def advance(self, seconds: float) -> None:
        """Let time pass, running what falls due on the way, in order."""
        end = self._now + seconds
        while (due := self._agenda.next_due()) is not None and due <= end:
            task = self._agenda.pop()
            self._now = max(self._now, task.due)
            task.action()
            if task.period is not None:
                task.due = self._now + task.period
                self._agenda.push(task)
        self._now = end
