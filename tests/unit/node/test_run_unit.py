"""The end of a run, and the files that are kept of it."""

from __future__ import annotations

import errno
import functools
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deeplearning.contract import atomic_file
from deeplearning.run import allocation, layout, survey, unit
from deeplearning.run.attempt import AttemptOutcome
from deeplearning.run.folder import Folder
from deeplearning.run.plan import Node
from deeplearning.run.run_log import ProcessLog, RunLog
from deeplearning.run.survey import NodeSurvey

from tests.unit.node.runs_kit import CONFIG, member, members


@pytest.fixture
def ending(run: Folder, monkeypatch: pytest.MonkeyPatch) -> unit.Unit:
    monkeypatch.setattr(unit.signal, "signal", lambda *_unused: None)
    run.write("environment.json", {"environment": {"SECRET": "s"}})
    return unit.Unit(CONFIG, run)


@pytest.mark.parametrize("state", ["finished", "failed", "stopped"])
def test_the_environment_is_removed_at_the_end_of_a_run_that_cannot_be_resumed(
    run: Folder, ending: unit.Unit, state: str
) -> None:
    Path(run.file("checkpoints/.begun")).touch()
    ending._end(AttemptOutcome(state, 0))
    assert run.result() and not os.path.exists(run.file("environment.json"))


def test_a_run_that_can_be_resumed_keeps_its_environment(run: Folder, ending: unit.Unit) -> None:
    Path(run.file("checkpoints/1")).touch()
    ending._end(AttemptOutcome("failed", 1))
    assert run.result() and (run.read("environment.json") or {})["environment"] == {"SECRET": "s"}


def test_a_run_whose_end_could_not_be_written_keeps_its_environment(
    run: Folder, ending: unit.Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit, "RESULT_TRIES", 1)
    monkeypatch.setattr(unit.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(run, "write", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    ending._end(AttemptOutcome("failed", 1))
    assert run.result() is None and os.path.exists(run.file("environment.json"))


def test_the_result_has_the_machines_of_each_attempt(
    run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = replace(members(3), members=(member(1), member(2), replace(member(3), instance_type="g5.xlarge")))
    surveys = [NodeSurvey(one, Node(one.alias, one.private_ip)) for one in listed.members]
    surveys.append(NodeSurvey(replace(member(4), instance_type="p5.48xlarge"), problem="it does not answer"))
    monkeypatch.setattr(unit.signal, "signal", lambda *_unused: None)
    for module in (unit, allocation):
        monkeypatch.setattr(module, "is_superseded", lambda config: False)
    monkeypatch.setattr(allocation, "instance_id", lambda: "i-00000001")
    monkeypatch.setattr(allocation, "read_applied", lambda: listed)
    monkeypatch.setattr(allocation, "this_member", lambda applied: member(1))
    monkeypatch.setattr(allocation, "nodes_in_use", lambda config, except_run: {})
    monkeypatch.setattr(allocation, "runs_root", lambda config: tmp_path)
    monkeypatch.setattr(allocation, "survey_nodes", lambda *_unused: surveys)
    monkeypatch.setattr(allocation, "judge_surveys", lambda *_unused: allocation.SurveyVerdict.START)
    attempt = Mock(run=lambda: AttemptOutcome("finished", 0))
    monkeypatch.setattr(unit, "Attempt", lambda *_unused: attempt)
    unit.Unit(replace(CONFIG, efs_mount=str(tmp_path)), run).supervise()
    (entry,) = (run.result() or {})["attempts"]
    assert entry["machines"] == {"t3.micro": 2, "g5.xlarge": 1}
    assert unit.duration(entry) >= 0


def test_a_full_file_system_is_reported_once_and_ends_nothing(run: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    record = RunLog(run)
    full = ProcessLog(record, run, "x", 0)
    full._path = "/dev/full"
    for _ in range(3):
        full.line(1.0, "text")
        full.flush()
    assert capsys.readouterr().err.count("No space left on device") == 1
    assert [event["event"] for event in run.events()] == ["note"]


def test_a_state_is_recorded_once_and_again_with_another_reason(run: Folder) -> None:
    record = RunLog(run)
    for reason in ("", "", "busy", "busy", "unsettled"):
        record.enter("waiting", reason)
    assert [(event["n"], event["reason"]) for event in run.events()] == [(1, ""), (2, "busy"), (3, "unsettled")]
    assert [event["n"] for event in run.events(after=2)] == [3]
    assert (run.read("state.json") or {})["state"] == "waiting"


@pytest.fixture
def replacing(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a file is still said to be away, by its name: by turns not there and stale."""
    left: dict[str, int] = {}

    def away(really: Any, path: Any, *positional: Any, **named: Any) -> Any:
        name = os.path.basename(path) if isinstance(path, str) else ""
        if left.get(name, 0) > 0:
            left[name] -= 1
            number = (errno.ENOENT, errno.ESTALE)[left[name] % 2]
            raise OSError(number, os.strerror(number), path)
        return really(path, *positional, **named)

    monkeypatch.setattr("builtins.open", functools.partial(away, open))
    monkeypatch.setattr(os, "stat", functools.partial(away, os.stat))
    monkeypatch.setattr(atomic_file, "RETRY_SECONDS", 0.0)
    return left


def test_reads_are_retried_while_a_file_is_replaced(run: Folder, tmp_path: Path, replacing: dict[str, int]) -> None:
    RunLog(run).enter("running")
    config = replace(CONFIG, efs_mount=str(tmp_path))
    replacing.update({"run.json": 2, "state.json": 2})
    assert RunLog(run).state["state"] == "running" and run.run()["asked_by"] == "me"
    replacing["run.json"] = 2
    assert allocation.find_run(config, "r1").id == "r1"
    replacing["run.json"] = 2
    assert survey.find_problem(run.path, sys.executable, "lo", "127.0.0.1") == ""
    # That there is no result yet is seen at once.
    replacing["result.json"] = 3
    assert run.result() is None and replacing["result.json"] == 2


def test_the_end_of_a_resumed_run_is_archived(run: Folder) -> None:
    os.mkdir(run.file("attempts/0"))
    run.write("result.json", {"state": "failed"})
    run.write("state.json", {"state": "failed"})
    RunLog(run).event("end")
    layout.archive_last_end(run)
    assert run.result() is None and run.state() == {} and list(run.events()) == []
    assert sorted(os.listdir(run.file("attempts/0"))) == ["events.jsonl", "result.json"]
