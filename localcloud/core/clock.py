"""Time, and what is to happen later. Callbacks run under the cloud's lock, one after another."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

log = logging.getLogger(__name__)


class Task:
    """Something due at a time."""

    def __init__(self, due: float, action: Callable[[], Any], period: float | None) -> None:
        self.due = due
        self.action = action
        self.period = period


class Clock(Protocol):
    def time(self) -> float:
        """Seconds since the epoch."""

    def later(self, seconds: float, action: Callable[[], Any]) -> None:
        """Do it once, that many seconds from now (0: as soon as possible, but not within this call)."""

    def every(self, seconds: float, action: Callable[[], Any]) -> None:
        """Do it again and again, each time that long after the last one ended."""


class Agenda:
    """Tasks by the time at which they are due; those of the same time in the order in which they came."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Task]] = []
        self._order = itertools.count()

    def push(self, task: Task) -> None:
        heapq.heappush(self._heap, (task.due, next(self._order), task))

    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def pop(self) -> Task:
        return heapq.heappop(self._heap)[2]


class RealClock:
    """The clock of the running service: one thread that runs what is due, under the given lock.

    `afterwards` is run, under the lock as well, whenever everything that was due is done.
    """

    def __init__(self, lock: threading.RLock) -> None:  # type: ignore[valid-type,unused-ignore]
        self._lock = lock
        self.afterwards: Callable[[], Any] = lambda: None
        self._agenda = Agenda()
        self._wake = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)
        self._thread.start()

    def time(self) -> float:
        return time.time()

    def later(self, seconds: float, action: Callable[[], Any]) -> None:
        self._add(Task(time.monotonic() + seconds, action, None))

    def every(self, seconds: float, action: Callable[[], Any]) -> None:
        self._add(Task(time.monotonic() + seconds, action, seconds))

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify()

    def _add(self, task: Task) -> None:
        with self._wake:
            self._agenda.push(task)
            self._wake.notify()

    def _run(self) -> None:
        while (task := self._wait_for_next()) is not None:
            with self._lock:
                self._attempt(task.action)
                if not self._more_is_due():
                    self._attempt(self.afterwards)
            if task.period is not None:
                task.due = time.monotonic() + task.period
                self._add(task)

    def _attempt(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception:
            log.exception("a task of the clock failed")

    def _more_is_due(self) -> bool:
        with self._wake:
            due = self._agenda.next_due()
            return due is not None and due <= time.monotonic()

    def _wait_for_next(self) -> Task | None:
        with self._wake:
            while not self._stopped:
                due = self._agenda.next_due()
                if due is not None and due <= time.monotonic():
                    return self._agenda.pop()
                self._wake.wait(None if due is None else due - time.monotonic())
        return None
