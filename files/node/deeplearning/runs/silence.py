"""How long the processes of an attempt may report nothing: the limits, and the time since the last report.

A report is a line of output, or a new line of metrics. Time counts only while the master watches: a master that was
frozen, or that a file system has kept waiting, has missed reports rather than silence.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

QUIET_SECONDS = 600.0
"""Without a report for so long, a run is stalled."""
QUIET_STEPS = 10
"""A run whose median step is long has so many steps instead."""
FIRST_SECONDS = 2400.0
"""The limit until the second step is reported: the first one loads data, opens connections and compiles. A run whose
metrics name no step has it for its first so many seconds."""
EVALUATION_SECONDS = 3600.0
"""The limit while the newest metrics of a rank say `"phase": "evaluation"`."""
WAITING_SECONDS = 3600.0
"""A run that has waited for nodes for longer is no work that postpones the idle end."""
TICK_SECONDS = 10.0
"""More than this between two ticks is no time in which the master watched."""
STEPS_KEPT = 101
"""The median is that of the newest steps."""
MOST_STEPS = 1e15
EVALUATION = "evaluation"


class Silence:
    """The time since each process of an attempt has reported, in seconds during which the master watched."""

    def __init__(self, count: int, now: float) -> None:
        self.watched, self._now = 0.0, now
        self.reports: list[float | None] = [None] * count
        """When each process has reported last; None if it never has."""
        self.steps: dict[int, float] = {}
        """The newest step of each process that writes metrics."""
        self._evaluating: set[int] = set()
        self._heard = 0.0
        self._was_over = False
        self._gaps: deque[float] = deque(maxlen=STEPS_KEPT)
        self._durations: deque[float] = deque(maxlen=STEPS_KEPT)
        self._step: tuple[float, float] | None = None
        """The slowest step, and when it was reported."""

    def pass_time(self, now: float) -> None:
        self.watched += min(max(0.0, now - self._now), TICK_SECONDS)
        self._now = now

    def report(self, number: int) -> None:
        """Note that the process with this number in the plan has reported."""
        if self.watched > self._heard:
            # What was a stall says nothing about how often a run reports.
            self._was_over = self.is_over
            if not self._was_over:
                self._gaps.append(self.watched - self._heard)
        self.reports[number] = self._heard = self.watched

    def report_metrics(self, written: Mapping[int, Mapping[str, Any]]) -> None:
        """Note the newest lines of metrics, by the numbers of the processes that have written them."""
        for number, record in written.items():
            self.report(number)
            (self._evaluating.add if record.get("phase") == EVALUATION else self._evaluating.discard)(number)
            step = record.get("step")
            # Training code may write anything, such as NaN.
            if isinstance(step, (int, float)) and not isinstance(step, bool) and 0 <= step < MOST_STEPS:
                self.steps[number] = step
        if self.steps:
            self._measure_step(min(self.steps.values()))

    def _measure_step(self, slowest: float) -> None:
        if self._step and slowest == self._step[0]:
            return
        if self._step and slowest > self._step[0] and not self._was_over:
            self._durations.append((self.watched - self._step[1]) / (slowest - self._step[0]))
        self._step = (slowest, self.watched)

    @property
    def seconds(self) -> float:
        """The time since the last report of any process."""
        return self.watched - self._heard

    @property
    def limit(self) -> float:
        if self._evaluating:
            return EVALUATION_SECONDS
        has_begun = bool(self._durations) if self._step else self.watched >= FIRST_SECONDS
        if not has_begun:
            return FIRST_SECONDS
        known = self._durations or self._gaps
        return max(QUIET_SECONDS, QUIET_STEPS * statistics.median(known) if known else 0.0)

    @property
    def is_over(self) -> bool:
        return self.seconds >= self.limit
