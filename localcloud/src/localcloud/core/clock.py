"""Time, and what is to happen later. Callbacks run under the cloud's lock, one after another."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

log = logging.getLogger(__name__)


@dataclass(order=True)
class Task:
    """Something due at a time. Tasks of the same time are ordered as they came."""

    due: float
    number: int = field(default_factory=itertools.count().__next__, init=False)
    action: Callable[[], Any] = field(compare=False)
    period: float | None = field(default=None, compare=False)
    """seconds until it is due again"""


class Clock(Protocol):
    def time(self) -> float:
        """Seconds since the epoch."""

    def later(self, seconds: float, action: Callable[[], Any]) -> None:
        """Do it once, that many seconds from now (0: as soon as possible, but not within this call)."""

    def every(self, seconds: float, action: Callable[[], Any]) -> None:
        """Do it again and again, each time that long after the last one ended."""


class RealClock:
    """The clock of the running service: one thread that runs what is due, under the given lock.

    `afterwards` is run, under the lock as well, whenever everything that was due is done.
    """

    def __init__(self, lock: threading.RLock) -> None:  # type: ignore[valid-type,unused-ignore]
        self._lock = lock
        self.afterwards: Callable[[], Any] = lambda: None
        self._tasks: list[Task] = []
        """a heap"""
        self._wake = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)
        self._thread.start()

    def time(self) -> float:
        return time.time()

    def later(self, seconds: float, action: Callable[[], Any]) -> None:
        self._add(Task(time.monotonic() + seconds, action))

    def every(self, seconds: float, action: Callable[[], Any]) -> None:
        self._add(Task(time.monotonic() + seconds, action, seconds))

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify()

    def _add(self, task: Task) -> None:
        with self._wake:
            heapq.heappush(self._tasks, task)
            self._wake.notify()

    def _run(self) -> None:
        while (task := self._wait_for_next()) is not None:
            with self._lock:
                self._attempt(task.action)
                if not self._more_is_due():
                    self._attempt(self.afterwards)
            if task.period is not None:
                self.every(task.period, task.action)

    def _attempt(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception:
            log.exception("a task of the clock failed")

    def _more_is_due(self) -> bool:
        with self._wake:
            return bool(self._tasks) and self._tasks[0].due <= time.monotonic()

    def _wait_for_next(self) -> Task | None:
        with self._wake:
            while not self._stopped:
                wait = self._tasks[0].due - time.monotonic() if self._tasks else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._tasks)
                self._wake.wait(wait)
        return None
