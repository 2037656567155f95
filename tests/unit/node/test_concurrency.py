"""Many nodes and many files at the same time: how many of them, and until when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from deeplearning import concurrency
from deeplearning.concurrency import CONNECTIONS_AT_ONCE, ask_nodes, in_order, longest, with_files
from deeplearning.contract import bounded_program
from deeplearning.health import pairs
from deeplearning.runs import survey
from deeplearning.runs.folder import Folder

from tests.unit.node.runs_kit import member

ROOT = Path(__file__).resolve().parents[3]
NODES = 2 * CONNECTIONS_AT_ONCE
WAIT_SECONDS = 30
GRACE_SECONDS = 0.5


class Crowd:
    """Holds what runs until `expected` run at the same time and no other comes, and counts them."""

    def __init__(self, expected: int) -> None:
        self.most, self._busy, self._expected, self._changed = 0, 0, expected, threading.Condition()
        self._is_open = False

    def pass_through(self) -> None:
        with self._changed:
            self._busy += 1
            self.most = max(self.most, self._busy)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.most >= self._expected, WAIT_SECONDS)
            self._changed.wait_for(lambda: self._is_open or self.most > self._expected, GRACE_SECONDS)
            self._is_open = True
            self._busy -= 1


def survey_all(aliases: list[str]) -> None:
    survey.survey_nodes([member(rank) for rank in range(1, NODES + 1)], Folder("/r1"), "/p", 2)


def stop_all(aliases: list[str]) -> None:
    survey.stop_leftovers(dict.fromkeys(aliases, ""), "r1", 0)


def measure_pairs(aliases: list[str]) -> None:
    pairs.measure(["ssh"], aliases)


@pytest.mark.parametrize("ask", [survey_all, stop_all, measure_pairs])
def test_128_nodes_are_contacted_at_the_same_time_and_no_more(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(CONNECTIONS_AT_ONCE)
    asked: list[tuple[str, ...]] = []

    def answer(command: tuple[str, ...], seconds: float) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        crowd.pass_through()
        return subprocess.CompletedProcess("ssh", 0, json.dumps({}), "")

    monkeypatch.setattr(bounded_program, "run", answer)
    ask([f"deeplearning-worker{rank}" for rank in range(1, NODES + 1)])
    assert (len(asked), crowd.most) == (NODES, 128)


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 8), (128, 8), (129, 16), (256, 16), (257, 24)])
def test_nodes_that_are_asked_in_turn_have_time_in_turn(nodes: int, seconds: float) -> None:
    assert longest(nodes, 8) == seconds


def test_all_nodes_have_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round of these takes 5 s longer than it may: what is left for the last one is less."""
    now = 1000.0
    monkeypatch.setattr(concurrency, "CONNECTIONS_AT_ONCE", 1)
    monkeypatch.setattr(concurrency.time, "monotonic", lambda: now)

    def ask(node: str, seconds: float) -> tuple[str, float]:
        nonlocal now
        now += 13
        return node, seconds

    assert ask_nodes(ask, ["a", "b", "c"], 8) == [("a", 8), ("b", 8), ("c", 24 - 26)]


STOPPED_WHILE_ASKING = """\
import sys, time
from deeplearning import concurrency
concurrency.CONNECTIONS_AT_ONCE = 2
asked, end = [], time.monotonic() + 3
def ask(node, seconds):
    asked.append(node)
    time.sleep(60)
try:
    concurrency.ask_nodes(ask, "abc", 60, lambda: time.monotonic() > end)
except concurrency.Stopped:
    sys.exit(f"stopped after {sorted(asked)}")
"""


def test_nodes_that_do_not_answer_keep_no_process_from_its_end() -> None:
    """The threads that wait for them are left alone, and the others are not asked any more."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "files/node")}
    words = [sys.executable, "-c", STOPPED_WHILE_ASKING]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert ended.stderr == "stopped after ['a', 'b']\n"


def test_an_error_of_a_node_is_raised_after_all_were_asked() -> None:
    asked: list[int] = []

    def ask(node: int, seconds: float) -> None:
        asked.append(node)
        if node == 1:
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        ask_nodes(ask, range(300), 8)
    assert len(asked) == 300 and ask_nodes(ask, [], 8) == []


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
def test_answers_about_files_are_in_their_order(count: int) -> None:
    assert with_files(lambda number: -number, range(count)) == [-number for number in range(count)]


def test_64_files_are_waited_for_at_the_same_time() -> None:
    crowd = Crowd(64)
    with_files(lambda _number: crowd.pass_through(), range(640))
    assert crowd.most == 64


def test_answers_come_in_the_order_of_the_calls_and_no_more_are_held_than_run() -> None:
    """The first call ends last, and one more is made for each answer that was taken."""
    made: list[int] = []
    others = threading.Event()

    def call(number: int) -> int:
        made.append(number)
        if number == 0:
            others.wait(WAIT_SECONDS)
        elif number == 3:
            others.set()
        return number

    answers = in_order((lambda number=number: call(number) for number in range(20)), 4)
    assert next(answers) == 0 and sorted(made) == [0, 1, 2, 3]
    assert next(answers) == 1
    assert list(answers) == [*range(2, 20)] and sorted(made) == [*range(20)]


def test_the_first_error_in_order_ends_the_calls() -> None:
    made: list[int] = []

    def call(number: int) -> int:
        made.append(number)
        return 1 // (3 - number)

    with pytest.raises(ZeroDivisionError):
        list(in_order((lambda number=number: call(number) for number in range(100)), 4))
    assert len(made) <= 3 + 4
