"""How a run's processes end: the time that they have to save, and who waits for it."""

from __future__ import annotations

import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_program
from deeplearning.contract.run_request import DEFAULT_STOP_SECONDS, MOST_STOP_SECONDS, stop_seconds
from deeplearning.runs import attempt as attempts
from deeplearning.runs import units
from deeplearning.runs.attempt import AttemptState
from deeplearning.runs.folder import Folder
from deeplearning.runs.unit import Unit

from tests.unit.node.master_kit import sigterm_restored
from tests.unit.node.runs_kit import CONFIG, send, started
from tests.unit.node.wrappers_kit import ROOT, three_processes

SAVES = """
import os, pathlib, signal, sys, time
rank, folder = int(os.environ["DEEPLEARNING_RANK"]), pathlib.Path(os.environ["DEEPLEARNING_RUN_DIR"])
def save(number, frame):
    (folder / f"asked-{rank}").touch()
    time.sleep(SECONDS)
    (folder / f"saved-{rank}").touch()
    sys.exit(0)
if rank != 1:  # which ends at once
    signal.signal(signal.SIGTERM, save)
(folder / f"ready-{rank}").touch()
while not (FAILS and rank == 2 and (folder / "fail").exists()):
    time.sleep(0.02)
sys.exit(7)
"""


def wait_for(condition: Any, what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def names(run: Folder, kind: str) -> list[str]:
    return sorted(path.name for path in Path(run.path).glob(f"{kind}-*"))


def outcome_of(
    run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, allowed: int, fails: bool = False
) -> tuple[Any, float]:
    """Stop a run, or let its rank 2 fail, and return its outcome with the seconds that this took."""
    script = tmp_path / "train.py"
    script.write_text(f"SECONDS, FAILS = {seconds}, {fails}\n{SAVES}")
    requested, outcomes = threading.Event(), list[Any]()
    with three_processes(run, script, monkeypatch, requested.is_set, stop_seconds=allowed) as attempt:
        following = threading.Thread(target=lambda: outcomes.append(attempt.run()))
        following.start()
        wait_for(lambda: len(names(run, "ready")) == 3 and attempt.state is AttemptState.RUNNING, "all run")
        began = time.monotonic()
        if fails:
            (Path(run.path) / "fail").touch()
        else:
            requested.set()
        following.join(300)
        return outcomes[0], time.monotonic() - began


def test_processes_may_save_for_longer_than_by_default_and_one_that_ends_at_once_ends_no_other(
    run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving = DEFAULT_STOP_SECONDS + 1.5
    outcome, took = outcome_of(run, tmp_path, monkeypatch, saving, allowed=300)
    # They have ended with 0, and so would processes that have trained to the end.
    assert (outcome.cause, outcome.exit_code, outcome.first_failure) == ("stopped", 0, None)
    assert names(run, "saved") == ["saved-0", "saved-2"]
    assert saving < took < 300 / 2, "it does not wait for the rest of the time"


def test_processes_that_need_longer_are_killed(run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, took = outcome_of(run, tmp_path, monkeypatch, 600, allowed=5)
    assert outcome.cause == "stopped" and names(run, "asked") == ["asked-0", "asked-2"]
    assert not names(run, "saved") and took < 600 / 2


def test_the_others_of_a_process_that_fails_may_save_too(
    run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts.Attempt, "blamed", lambda _attempt, outcome: outcome)
    outcome, _took = outcome_of(run, tmp_path, monkeypatch, 1.5, allowed=60, fails=True)
    assert (outcome.cause, outcome.exit_code, outcome.first_failure["rank"]) == ("failed", 7, 2)
    assert names(run, "saved") == ["saved-0"]


def test_the_time_ends_when_all_have_ended_or_with_the_runs_seconds(
    run: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests, now = list[tuple[str, int]](), [100.0]
    monkeypatch.setattr(units, "request_end", lambda run_id, attempt: requests.append((run_id, attempt)))
    monkeypatch.setattr(attempts.time, "monotonic", lambda: now[0])
    run.write("run.json", {**run.run(), "stop_seconds": 30})
    for all_end in (True, False):
        attempt = started(run, stop=True)
        attempt.state = AttemptState.RUNNING
        send(attempt)
        assert attempt.state is AttemptState.SAVING and attempt.processes.stopping
        now[0] += 29
        send(attempt, (1, {"time": 2.0, "end": 1}))
        assert attempt.state is AttemptState.SAVING
        if all_end:
            send(attempt, (0, {"time": 2.0, "end": 143}), (2, {"time": 2.0, "end": 0}))
        else:
            now[0] += 1.1
            send(attempt)
        assert attempt.state is AttemptState.STOPPING and attempt.processes.failure is None
    assert requests == [("r1", 0)] * 2


def test_a_replaced_master_does_not_let_processes_save(run: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next master may start them again already."""
    monkeypatch.setattr(units, "request_end", lambda run_id, attempt: None)
    monkeypatch.setattr(attempts, "is_superseded", lambda config: True)
    for state in (AttemptState.RUNNING, AttemptState.SAVING):
        attempt = started(run)
        attempt.state = state
        attempt.tick()
        assert attempt.state is AttemptState.STOPPING and attempt.superseded


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [(None, 4), (1, 1), (600, 600), (601, 4), (0, 4), (-1, 4), (True, 4), ("60", 4), (1.5, 4), ([], 4)],
)
def test_the_seconds_of_a_record_that_anything_may_have_written(recorded: Any, expected: int) -> None:
    assert stop_seconds({} if recorded is None else {"stop_seconds": recorded}) == expected


@pytest.mark.parametrize("abstract", [False, True])
def test_a_supervisor_asks_systemd_for_the_time(
    run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    run.write("run.json", {**run.run(), "stop_seconds": 120})
    name = f"{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, sigterm_restored():
        systemd.bind(f"\0{name}" if abstract else name)
        systemd.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        unit = Unit(CONFIG, run)
        unit._on_sigterm(15, None)
        assert unit.stop_requested()
        assert systemd.recv(100) == b"EXTEND_TIMEOUT_USEC=134000000"


@pytest.mark.parametrize("listens_no_more", [False, True])
def test_a_supervisor_without_systemd_stops_as_well(
    run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listens_no_more: bool
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if listens_no_more:
        # As in a forced reboot.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.bind(f"{tmp_path}/notify")
        monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/notify")
    with sigterm_restored():
        unit = Unit(CONFIG, run)
        unit._on_sigterm(15, None)
    assert unit.stop_requested()


def test_systemd_and_the_operators_machine_wait_for_the_longest_time() -> None:
    text = (ROOT / "files/node/units/deeplearning-run@.service").read_text()
    settings = dict(re.findall(r"^(TimeoutStopSec|NotifyAccess)=(.*)$", text, re.MULTILINE))
    assert settings == {"TimeoutStopSec": str(units.SUPERVISOR_STOP_SECONDS), "NotifyAccess": "main"}
    assert MOST_STOP_SECONDS + 60 < node_program.ANSWER_SECONDS
