"""What is to happen later happens in order, under the lock, and whatever else goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from localcloud.core.clock import RealClock
from localcloud.testing.clock import ManualClock


def test_time_that_stands_still(clock: ManualClock) -> None:
    start = clock.time()
    done: list[str] = []
    clock.later(0, lambda: done.append("at once"))
    assert (done, clock.time()) == ([], start), "not within the call"
    clock.advance(0)
    assert done == ["at once"]


def test_things_happen_in_the_order_of_their_times_then_of_their_coming(clock: ManualClock) -> None:
    start = clock.time()
    done: list[tuple[str, float]] = []

    def note(name: str) -> Callable[[], None]:
        return lambda: done.append((name, clock.time() - start))

    for name, seconds in (("late", 3), ("early", 1), ("second", 2), ("also second", 2), ("never", 9)):
        clock.later(seconds, note(name))
    clock.advance(5)
    assert done == [("early", 1), ("second", 2), ("also second", 2), ("late", 3)]
    assert clock.time() == start + 5


def test_what_one_task_brings_about_falls_due_on_the_same_way(clock: ManualClock) -> None:
    start = clock.time()
    done: list[float] = []
    clock.later(1, lambda: clock.later(1, lambda: done.append(clock.time() - start)))
    clock.later(1, lambda: clock.later(9, lambda: done.append(clock.time() - start)))
    clock.advance(5)
    assert done == [2]


def test_again_and_again(clock: ManualClock) -> None:
    done: list[int] = []
    clock.every(2, lambda: done.append(len(done)))
    clock.advance(7)
    assert done == [0, 1, 2]


# The clock of the service


class Running:
    """A real clock, and what has happened on it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.clock = RealClock(self.lock)
        self.done: list[str] = []
        self.ended = threading.Event()

    def note(self, name: str) -> Callable[[], None]:
        return lambda: self.done.append(name)

    def wait(self, seconds: float = 0.0) -> list[str]:
        """What has been done once a last task is, due that many seconds from now."""
        self.clock.later(seconds, self.ended.set)
        assert self.ended.wait(10)
        with self.lock:
            return list(self.done)


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.clock.stop()
    made.clock._thread.join(10)
    assert not made.clock._thread.is_alive()


def test_it_tells_the_time(running: Running) -> None:
    assert abs(running.clock.time() - time.time()) < 60


def test_it_does_what_is_due_in_order_and_under_the_lock(running: Running) -> None:
    with running.lock:
        running.clock.later(0.5, running.note("later"))
        running.clock.later(0, running.note("first"))
        running.clock.later(0, running.note("second"))
        time.sleep(0.05)
        assert running.done == [], "another thread holds the lock"
    assert running.wait(0.55)[:3] == ["first", "second", "later"]


def test_a_task_that_fails_ends_neither_the_clock_nor_its_own_repetition(running: Running) -> None:
    def fail() -> None:
        running.done.append("tried")
        raise RuntimeError("as asked")

    running.clock.every(0.005, fail)
    running.clock.later(0.001, fail)
    assert len(running.wait(2)) > 2


def test_afterwards_comes_when_all_that_was_due_is_done(running: Running) -> None:
    running.clock.afterwards = running.note("afterwards")
    with running.lock:
        for name in ("a", "b", "c"):
            running.clock.later(0, running.note(name))
    assert running.wait(0.02)[:4] == ["a", "b", "c", "afterwards"]


def test_afterwards_may_fail(running: Running) -> None:
    def fail() -> None:
        raise RuntimeError("as asked")

    running.clock.afterwards = fail
    running.clock.later(0, running.note("a"))
    assert running.wait(0.02) == ["a"]
