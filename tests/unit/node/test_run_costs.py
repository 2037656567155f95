"""What a run has cost, and what it will have cost at its end."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deeplearning.contract.schema import format_time, parse_time
from deeplearning.runs import costs
from deeplearning.runs.folder import Folder

from tests.unit.node.runs_kit import started

PRICES = {"g5.xlarge": 1.0, "m5.large": 0.5}
START = "2026-01-01T00:00:00Z"
NOW = parse_time("2026-01-01T03:00:00Z")


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "time", SimpleNamespace(time=lambda: NOW))


def attempt(machines: Any = None, started: str = START, ended: Any = "2026-01-01T01:00:00Z") -> dict[str, Any]:
    return {"started": started, "ended": ended, "machines": machines or {"g5.xlarge": 2, "m5.large": 1}}


RUNNING = attempt({"g5.xlarge": 2}, "2026-01-01T02:00:00Z", None)


def cost(*attempts: Any, prices: Any = PRICES, left: float | None = 5400) -> dict[str, Any] | None:
    return costs.of_attempts({"prices": prices}, [], attempts, left)


def test_the_cost_is_that_of_all_attempts_and_of_the_time_left() -> None:
    assert cost(attempt()) == {"so_far": 2.5, "at_end": None}
    assert cost(attempt(), RUNNING) == {"so_far": 4.5, "at_end": 7.5}
    assert cost(RUNNING, left=None) == {"so_far": 2.0, "at_end": None}


@pytest.mark.parametrize(
    ("attempts", "prices"),
    [
        ([], PRICES),
        ([RUNNING], {}),
        ([RUNNING], None),
        ([attempt(), RUNNING], {"g5.xlarge": 1.0}),
        ([attempt({"g5.xlarge": "many"})], PRICES),
        ([attempt({"g5.xlarge": 10**400})], PRICES),
        ([attempt(ended="yesterday")], PRICES),
        ([{}], PRICES),
        (["x"], PRICES),
    ],
)
def test_what_is_not_known_is_no_cost(attempts: list[Any], prices: Any) -> None:
    assert cost(*attempts, prices=prices) is None


def test_more_time_left_than_a_number_holds_is_no_cost() -> None:
    assert cost(RUNNING, left=10**400) is None


def test_a_resumed_run_has_cost_what_it_did_before_too(run: Folder) -> None:
    run.write("run.json", {**run.run(), "prices": PRICES})
    Path(run.file("attempts/0")).mkdir()
    run.write("result.json", {"attempts": [attempt()], "state": "stopped"})
    assert costs.of_run(run) == {"so_far": 2.5, "at_end": None}
    run.archive_last_end()
    run.write("state.json", {"attempts": [RUNNING], "progress": {"seconds_left": 1800}})
    assert costs.of_run(run) == {"so_far": 4.5, "at_end": 5.5}
    Path(run.file("attempts/0/result.json")).write_text("[")
    assert costs.of_run(run) is None and costs.earlier_attempts(run) is None


@pytest.mark.parametrize("state", [{}, {"attempts": 3}, {"attempts": [RUNNING], "progress": 3}])
def test_a_state_in_another_form_has_no_cost(run: Folder, state: dict[str, Any]) -> None:
    run.write("run.json", {**run.run(), "prices": PRICES})
    run.write("state.json", state)
    assert costs.of_run(run) is None


def test_an_attempt_reports_it_with_its_progress(run: Folder) -> None:
    run.write("run.json", {**run.run(), "prices": PRICES})
    attempt = started(run, machines={"g5.xlarge": 2})
    attempt.run_log.state["attempts"].append({**RUNNING, "started": format_time(NOW - 3600)})
    line = {"epoch": 1, "step": 10, "steps": 20, "seconds": 3600}
    Path(run.file("metrics/rank0.jsonl")).write_text(f"{json.dumps(line)}\n")
    attempt.tick()
    (event,) = (event for event in run.events() if event["event"] == "progress")
    assert event["cost"] == {"so_far": 2.0, "at_end": 4.0}
