"""The lines that people read about a run, from its events; and how often."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.progress_bar import ProgressDisplay, draw
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.run_events import Follower, clock

PLAN = {
    "event": "plan",
    "n": 2,
    "attempt": 0,
    "generation": 1,
    "processes": [
        {"node": "deeplearning-worker1", "role": "server", "rank": 0, "gpus": []},
        {"node": "deeplearning-worker1", "role": "worker", "rank": 0, "gpus": []},
        {"node": "deeplearning-worker2", "role": "worker", "rank": 1, "gpus": []},
        {"node": "deeplearning-worker2", "role": "worker", "rank": 2, "gpus": []},
    ],
}
PROGRESS = {
    "event": "progress",
    "n": 5,
    "time": 130.0,
    "epoch": 1,
    "step": 120,
    "loss": 1.23456,
    "accuracy": 0.561,
    "val_accuracy": None,
    "samples_per_second": 811.7,
    "ranks": 3,
    "seconds_left": 90,
}


def test_states_and_placement_are_printed_once() -> None:
    follower = Follower("mine")
    assert follower.take({"event": "state", "n": 1, "state": "waiting", "reason": "2 of 3 members are ready"}) == [
        "mine waits: 2 of 3 members are ready"
    ]
    assert follower.take(PLAN) == [
        "  deeplearning-worker1: 1 server, 1 worker",
        "  deeplearning-worker2: 2 workers",
    ]
    assert follower.seen == 2


def test_progress_is_one_line_without_what_is_unknown() -> None:
    follower = Follower("mine")
    follower.take(PLAN)
    follower.take({"event": "state", "n": 3, "time": 100.0, "state": "running", "reason": ""})
    assert follower.take(PROGRESS) == []
    assert follower.status == "epoch 1, step 120, 1:30 left, loss 1.2346, accuracy 56.1 %, 812 samples/s"
    assert follower.done == pytest.approx(0.25)
    follower.take({**PROGRESS, "n": 6, "ranks": 2, "loss": None, "val_accuracy": 0.5, "seconds_left": None})
    assert follower.status == "epoch 1, step 120, accuracy 56.1 %, validated 50.0 %, 812 samples/s, 2 of 3 ranks"
    assert follower.done is None
    follower.take({**PROGRESS, "n": 7, "cost": {"so_far": 41.2, "at_end": 96.1}})
    assert follower.status.endswith(", 812 samples/s, 41.20 USD so far, about 96.10 at its end")
    follower.take({**PROGRESS, "n": 8, "cost": {"so_far": 0.0123, "at_end": None}})
    assert follower.status.endswith(", 812 samples/s, 0.0123 USD")
    for malformed in (None, 3, {}, {"so_far": "x", "at_end": 1}, {"so_far": 1, "at_end": float("inf")}):
        follower.take({**PROGRESS, "n": 9, "cost": malformed})
        assert follower.status.endswith(", 812 samples/s")


def test_the_last_lines_of_the_first_failure_are_printed_under_its_name() -> None:
    follower = Follower("mine")
    failure = {"node": "deeplearning-worker2", "role": "worker", "rank": 1, "exit_code": 7, "signal": None}
    end = {"event": "end", "n": 9, "state": "failed", "exit_code": 7, "sentence": "run mine ended with 7 (…, rank 1)"}
    lines = follower.take({**end, "first_failure": {**failure, "tail": ["Traceback", "  boom"]}})
    assert lines == ["The last lines of deeplearning-worker2, worker 1:", "  Traceback", "    boom"]
    assert follower.end["first_failure"] == failure
    assert (follower.end["state"], follower.end["exit_code"], follower.end["sentence"]) == (
        "failed",
        7,
        "run mine ended with 7 (…, rank 1)",
    )


@pytest.mark.parametrize("event", [{}, {"event": "fireworks"}, {"n": "x"}, {"event": None}])
def test_unknown_events_print_nothing(event: dict[str, Any]) -> None:
    follower = Follower("mine")
    assert follower.take(event) == []
    assert not follower.end


EVIL = "\x1b]52;c;ZXZpbA==\x07"
HOSTILE: list[dict[str, Any]] = [
    {"event": "_init__"},
    {"event": "_class__"},
    {"event": "_reduce__"},
    {"event": ["state"]},
    {"event": "state", "state": {"a": 1}},
    {"event": "state", "state": "running", "time": "now"},
    {"event": "plan", "processes": [{}]},
    {"event": "plan", "processes": "x"},
    {"event": "plan", "processes": [{"node": "a b", "role": "worker"}]},
    {"event": "process", "state": "ended", "exit_code": 7},
    {"event": "process", "state": "ended", "exit_code": 7, "node": "n", "role": "../x", "rank": 0},
    {"event": "output", "role": "worker", "rank": 0, "line": 7},
    {"event": "output", "role": "../x", "rank": 0, "line": "x"},
    {"event": "note"},
    {"event": "end", "state": "finished"},
    {"event": "end", "state": "won", "exit_code": 0, "sentence": "x"},
    {"event": "end", "state": "failed", "exit_code": 1, "sentence": "x", "first_failure": {"tail": "x"}},
    {"event": "end", "state": "failed", "exit_code": 1, "sentence": "x", "first_failure": {"node": "n", "role": "r"}},
]


@pytest.mark.parametrize("event", HOSTILE)
def test_a_malformed_event_prints_nothing_and_ends_nothing(event: dict[str, Any]) -> None:
    follower = Follower("mine")
    assert follower.take({**event, "n": 10**30}) == []
    assert not follower.end and follower.seen == 0


@pytest.mark.parametrize(
    "figures",
    [
        {"loss": "x"},
        {"epoch": 10**400, "step": "1"},
        {"seconds_left": float("nan"), "samples_per_second": 1e300},
        {"ranks": [3], "accuracy": True},
    ],
)
def test_a_malformed_figure_is_left_out_of_the_line(figures: dict[str, Any]) -> None:
    follower = Follower("mine")
    follower.take({"event": "state", "state": "running", "time": 100.0})
    assert follower.take({"event": "progress", "time": 130.0, "val_accuracy": 0.5, **figures}) == []
    assert follower.status == "validated 50.0 %"


def test_output_of_a_run_cannot_control_the_terminal() -> None:
    screen, follower = Screen(), Follower("mine")
    display = ProgressDisplay(screen.show, False, 80, screen.now)
    for line in follower.take({"event": "output", "role": "worker", "rank": 1, "line": f"a{EVIL}\nb"}):
        display.message(line)
    display.message(f"from elsewhere {EVIL}")
    display.update(f"epoch 1 {EVIL}\x1b[2J")
    display.close(f"epoch 1 {EVIL}\x1b[2J")
    assert len(screen.written) == 3
    assert all(character not in "".join(screen.written) for character in "\x1b\x07")
    assert "  worker 1 | a\ufffd]52;c;ZXZpbA==\ufffd b\n" in screen.written


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (7.4, "0:07"), (750, "12:30"), (3723, "1:02:03"), (-1, "0:00")]
)
def test_time_is_short(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


class Screen:
    def __init__(self) -> None:
        self.written: list[str] = []
        self.time = 0.0

    def show(self, msg: str, *, newline: bool = True) -> None:
        self.written.append(msg + "\n" * newline)

    def now(self) -> float:
        return self.time


def test_without_a_terminal_progress_is_a_line_every_few_seconds() -> None:
    screen = Screen()
    display = ProgressDisplay(screen.show, False, 80, screen.now)
    for second in range(12):
        screen.time = float(second)
        display.update(f"step {second}", 0.5)
    display.close("step 11")
    assert screen.written == ["  step 0\n", "  step 5\n", "  step 10\n", "  step 11\n"]


def test_equal_progress_is_not_printed_again() -> None:
    screen = Screen()
    display = ProgressDisplay(screen.show, False, 80, screen.now)
    for second in (0.0, 10.0, 20.0):
        screen.time = second
        display.update("step 0")
    display.close("step 0")
    assert screen.written == ["  step 0\n"]


def test_on_a_terminal_a_bar_makes_room_for_messages() -> None:
    screen = Screen()
    display = ProgressDisplay(screen.show, True, 60, screen.now)
    display.update("step 1", 0.5)
    display.message("a node is lost")
    display.update("step 2")
    display.close("step 2")
    bar = f"[{'#' * 5}{'.' * 5}] step 1"
    blank = f"\r{' ' * len(bar)}\r"
    assert screen.written == [f"\r{bar}\r", blank, "a node is lost\n", "\rstep 2\r", "\r      \r", "  step 2\n"]


def test_a_bar_is_no_wider_than_the_terminal() -> None:
    assert len(draw("x" * 200, 1.5, 80)) == 79


def test_a_stall_is_shown_and_does_not_restart_the_clock() -> None:
    follower = Follower("lenet-1")
    follower.take({"event": "state", "state": "running", "time": 100.0, "reason": ""})
    reason = "no process has reported progress or output for 12 minutes. Silent: worker 1 on deeplearning-worker2."
    stalled = {"event": "state", "state": "stalled", "time": 200.0, "reason": reason}
    end = "to end it: ansible-playbook deeplearning.aws.stop -e run_id=lenet-1"
    assert follower.take({**stalled, "hourly": 110.08}) == [
        f"lenet-1 is stalled: {reason}",
        f"  Meanwhile its machines cost 110.08 USD an hour; {end}",
    ]
    for unknown in ({}, {"hourly": None}, {"hourly": "a\x1b[1m"}, {"hourly": float("nan")}):
        cost = Follower("lenet-1").take({**stalled, **unknown})[1]
        assert cost == f"  Meanwhile its machines cost an amount that is not known; {end}"
    again = {"event": "state", "state": "running", "time": 300.0, "reason": "it reports again, after 14 minutes"}
    assert follower.take(again) == ["lenet-1 runs: it reports again, after 14 minutes"]
    follower.take({"event": "progress", "time": 400.0, "seconds_left": 300.0})
    assert follower.done == 0.5
