"""A run that stalls: found by its silence, named with the processes that may be the reason, and ended by a report.

A report is a line of output, or a new line of metrics. Time counts only while the master watches: a master that was
frozen, or that a file system has kept waiting, has missed reports rather than silence.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deeplearning.contract import run_stall
from deeplearning.contract.run_stall import MOST_NAMED, STALLED
from deeplearning.contract.schema import format_time, parse_time
from deeplearning.runs.plan import Process
from deeplearning.runs.run_log import RunLog
from deeplearning.runs.stacks import STATES

QUIET_SECONDS = 600.0
"""Without a report for so long, a run is stalled."""
QUIET_STEPS = 10
"""A run whose median step is long has so many steps instead."""
FIRST_SECONDS = 2400.0
"""The limit until the second step is reported: the first one loads data, opens connections and compiles. A run whose
metrics name no step has it for its first so many seconds."""
EVALUATION_SECONDS = 3600.0
"""The limit while the newest metrics of a rank say `"phase": "evaluation"`."""
TICK_SECONDS = 10.0
"""More than this between two ticks is no time in which the master watched."""
STEPS_KEPT = 101
"""The median is that of the newest steps."""
MOST_STEPS = 1e15
EVALUATION = "evaluation"
ANSWER_SECONDS = 15.0
"""How long wrappers have to report stacks. One that does not answer is on a node that hangs."""
STUCK = ("T", "t", "D", "Z")
"""The kernel's states of a process that is the reason rather than a victim."""
NO_ANSWER = "its node does not answer"
NOT_STARTED = "not started yet"
FIRST_SILENT_SECONDS = 10.0
"""A process that fell silent so much earlier than the last one may be the reason: metrics are read every 3 s."""


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


class StallDetector:
    """Watches one attempt."""

    def __init__(
        self,
        processes: Sequence[Process],
        run_log: RunLog,
        request_stacks: Callable[[], object],
        hourly: float | None = None,
    ) -> None:
        """`hourly`: what the machines cost; None if that is not known."""
        self._processes, self._run_log, self._request_stacks = processes, run_log, request_stacks
        self._hourly = hourly
        self._workers = {process.rank: number for number, process in enumerate(processes) if process.role == "worker"}
        self._silence = Silence(len(processes), time.monotonic())
        self._ended: set[int] = set()
        self._answers: dict[int, str] = {}
        """The kernel's states of the processes whose stacks have come."""
        self._asked_at: float | None = None
        self._is_stalled = False

    def handle_message(self, number: int, message: Mapping[str, Any]) -> None:
        """Note what a wrapper has sent. Stacks and readings of GPUs are no report."""
        if not 0 <= number < len(self._processes) or "gpu_busy" in message:
            return
        if "stacks" in message:
            self._answers[number] = str(message.get("state"))
            return
        if "end" in message:
            self._ended.add(number)
        # A process that fails has made no progress.
        if not message.get("end"):
            self._resume()
            self._silence.report(number)

    def handle_metrics(self, written: Mapping[int, Mapping[str, Any]]) -> None:
        """Note the lines of metrics that ranks have written."""
        if written:
            self._resume()
            self._silence.report_metrics({self._workers[rank]: record for rank, record in written.items()})

    def tick(self, can_answer: bool) -> None:
        """Judge the silence. `can_answer`: whether all wrappers handle a request for stacks."""
        self._silence.pass_time(time.monotonic())
        if not self._silence.is_over or self._is_stalled:
            return
        now = self._silence.watched
        if self._asked_at is None:
            self._asked_at, self._answers = now, {}
            if can_answer:
                self._request_stacks()
        alive = set(range(len(self._processes))) - self._ended
        if not can_answer or alive <= self._answers.keys() or now - self._asked_at >= ANSWER_SECONDS:
            self._is_stalled = True
            self._enter(sorted(alive), can_answer)

    def end(self) -> None:
        """Record the time that a stall has lost until the end of the attempt."""
        self._silence.pass_time(time.monotonic())
        self._add_lost_time()

    def _enter(self, alive: Sequence[int], can_answer: bool) -> None:
        silent = self._named(alive, can_answer)
        named, since = silent[:MOST_NAMED], format_time(time.time() - self._silence.seconds)
        self._run_log.state["stall"] = {"since": since, "silent": named, "hourly": self._hourly}
        minutes = round(self._silence.seconds / 60)
        names = ", ".join(map(_text, named))
        more = f" and {len(silent) - MOST_NAMED} more" if len(silent) > MOST_NAMED else ""
        stacks = " The stacks of all processes are in their logs." if self._answers else ""
        reason = f"no process has reported progress or output for {minutes} minutes. Silent: {names}{more}.{stacks}"
        self._run_log.enter(STALLED, reason, hourly=self._hourly)

    def _named(self, alive: Sequence[int], can_answer: bool) -> list[dict[str, Any]]:
        """Return the processes that may be the reason: those that hang, those that are behind, those that fell silent
        first; or all of them."""
        if not can_answer:
            return [self._record(number, NOT_STARTED) for number in alive if self._silence.reports[number] is None]
        known = {number: STATES[state] for number, state in self._answers.items() if state in STUCK}
        if self._answers:
            known |= {number: NO_ANSWER for number in alive if number not in self._answers}
        if known:
            return [self._record(number, known[number]) for number in alive if number in known]
        steps = {number: self._silence.steps[number] for number in alive if number in self._silence.steps}
        if len(set(steps.values())) > 1:
            most = max(steps.values())
            behind = [number for number, step in steps.items() if step == min(steps.values())]
            return [self._record(number, f"at step {steps[number]:g}, others at {most:g}") for number in behind]
        reports = {number: at for number in alive if (at := self._silence.reports[number]) is not None}
        newest = max(reports.values(), default=0.0)
        first = [number for number, at in reports.items() if newest - at > FIRST_SILENT_SECONDS]
        return [self._record(number, "") for number in first or alive]

    def _record(self, number: int, what: str) -> dict[str, Any]:
        process = self._processes[number]
        return {"node": process.node, "role": process.role, "rank": process.rank, "what": what}

    def _resume(self) -> None:
        """Let a stalled run continue, because one of its processes has reported."""
        self._asked_at = None
        if self._is_stalled:
            minutes = round(self._silence.seconds / 60)
            self._add_lost_time()
            if self._run_log.state["state"] == STALLED:
                self._run_log.enter("running", f"it reports again, after {minutes} minutes of silence")

    def _add_lost_time(self) -> None:
        if self._is_stalled:
            self._is_stalled = False
            state = self._run_log.state
            state["stall"] = None
            state["stalled_seconds"] = state.get("stalled_seconds", 0) + round(self._silence.seconds)


def close(run_log: RunLog) -> None:
    """Clear a stall that a master has left by its death, and count the time until it was last recorded as lost."""
    state = run_log.state
    stall = run_stall.find(state)
    if stall:
        lost = parse_time(state["updated_at"]) - parse_time(stall["since"])
        state["stalled_seconds"] = state.get("stalled_seconds", 0) + round(max(0.0, lost))
    state["stall"] = None


def _text(process: Mapping[str, Any]) -> str:
    name = f"{process['role']} {process['rank']} on {process['node']}"
    return f"{name} ({process['what']})" if process["what"] else name
