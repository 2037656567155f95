"""Polling: pauses, the deadline, and lines of progress."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws import polling


class Clock:
    """Time passes only while the loop pauses."""

    def __init__(self) -> None:
        self.time = 100.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(polling.random, "uniform", lambda _low, _high: 1.0)
    return Clock()


def until(clock: Clock, results: list[Any], seconds: float = 60, **more: Any) -> Any:
    polls = iter(results)
    return polling.until(lambda: next(polls), seconds, now=clock.now, pause=clock.pause, **more)


def test_the_first_result_ends_the_loop(clock: Clock) -> None:
    assert until(clock, [None, None, False]) is False
    assert clock.pauses == [0.5, 0.75]


def test_pauses_grow_up_to_a_limit(clock: Clock) -> None:
    until(clock, [*[None] * 10, True])
    assert clock.pauses[-2:] == [5.0, 5.0]


def test_a_change_makes_the_next_pause_short(clock: Clock) -> None:
    states = iter([0, 0, 0, 1, 1, 1, 1, 1])
    until(clock, [None, None, None, True], state=lambda: next(states), after_change=0)
    assert clock.pauses == [0.5, 0, 0.75]


def test_the_last_poll_begins_when_the_time_is_up(clock: Clock) -> None:
    assert until(clock, [None] * 3, seconds=1) is None
    assert clock.pauses == [0.5, 0.5]
    assert until(clock, [None, True], seconds=0) is None


def test_progress_is_printed_when_it_changes_and_again_after_ever_longer_pauses() -> None:
    clock, lines = Clock(), []
    progress = polling.ProgressPrinter(lines.append, clock.now)
    for line, seconds in (("a", 5), ("a", 5), ("a", 10), ("a", 10), ("a", 2), ("b", 4), ("c", 1), ("c", 10), ("c", 0)):
        progress.report(line, f", {clock.time - 100:g} s")
        clock.pause(seconds)
    assert lines == ["a, 0 s", "a, 10 s", "a, 30 s", "c, 36 s", "c, 47 s"]


def test_a_change_of_what_may_wait_is_printed_with_the_next_line() -> None:
    clock, lines = Clock(), []
    progress = polling.ProgressPrinter(lines.append, clock.now)
    for line, seconds in (("a 1", 5), ("a 2", 2), ("b 3", 5), ("b 4", 5), ("b 5", 0)):
        progress.report(line, key=line[0])
        clock.pause(seconds)
    assert lines == ["a 1", "b 3", "b 5"]


def test_the_pauses_between_repeated_lines_have_a_limit() -> None:
    clock, lines = Clock(), []
    progress = polling.ProgressPrinter(lines.append, clock.now)
    for _ in range(30):
        progress.report("a", f", {clock.time - 100:g} s")
        clock.pause(10)
    assert lines == ["a, 0 s", "a, 10 s", "a, 30 s", "a, 70 s", "a, 130 s", "a, 190 s", "a, 250 s"]
