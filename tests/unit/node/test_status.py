"""`deeplearning status`: what the master answers, whatever of it can be read."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import answers
from deeplearning import cli
from deeplearning.contract.schema import format_time
from deeplearning.members import load
from deeplearning.runs import units
from deeplearning.runs.folder import Folder, runs_root
from deeplearning.views import snapshot, status

from tests.unit.node import runs_kit
from tests.unit.node.members_kit import Node, cluster_in, instance


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """The master of a cluster with a worker. No run has a unit."""
    monkeypatch.setattr(units, "may_continue", lambda _run: False)
    cluster = cluster_in(tmp_path, monkeypatch)
    master = cluster.master()
    cluster.workers(2)
    master.publish()
    master.apply()
    return master


def add_run(master: Node, run_id: str, state: str = "", **fields: Any) -> Folder:
    folder = Folder(f"{runs_root(master.config)}/{run_id}")
    Path(folder.path).mkdir(parents=True)
    run = {"framework": "pytorch", "distribution": "ddp", "script": "/efs/x.py", "requested_by": "anna"}
    folder.write("run.json", {**run, "requested_at": format_time(), **fields})
    folder.write("state.json", {"state": "running", "nodes": ["deeplearning-worker1"], "progress": {"epoch": 2}})
    if state:
        folder.write("result.json", {"state": state, "exit_code": 0, "sentence": "done"})
    return folder


def answer(master: Node, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What the operator's side reads."""
    with master.here():
        assert cli.main(["status"]) == 0
    return answers.parse("n", ["status"], capsys.readouterr().out)


def test_members_loads_and_runs(master: Node, capsys: pytest.CaptureFixture[str]) -> None:
    with master.here():
        load.publish(master.config.efs_mount, master.config.cluster, instance(1))
    add_run(master, "lenet-1", "finished")
    described = answer(master, capsys)
    assert described["members"] == [
        {"instance_id": instance(1), "rank": 1, "state": "ready"},
        {"instance_id": instance(2), "rank": 2, "state": "ready"},
    ]
    assert [each["instance_id"] for each in described["loads"]] == [instance(1)]
    (run,) = described["runs"]
    assert (run["run_id"], run["state"], run["nodes"]) == ("lenet-1", "finished", ["deeplearning-worker1"])
    assert run["progress"]["epoch"] == 2 and described["problems"] == []


def test_members_with_different_numbers_of_gpus_are_a_problem(
    master: Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = runs_kit.members(2)
    (first, second) = applied.members
    monkeypatch.setattr(snapshot, "read_applied", lambda: replace(applied, members=(first, replace(second, gpus=9))))
    (problem,) = answer(master, capsys)["problems"]
    assert problem.startswith("the numbers of GPUs differ: deeplearning-worker1 has ") and "worker2 has 9; " in problem


def test_runs_that_go_on_and_the_last_that_have_ended(
    master: Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "may_continue", lambda run: run == "r00")
    for number in range(9):
        add_run(master, f"r{number:02}", "" if number == 0 else "failed", requested_at=f"2026-11-23T03:0{number}:00Z")
    Path(f"{runs_root(master.config)}/not-a-run").mkdir()
    described = answer(master, capsys)
    assert [run["run_id"] for run in described["runs"]] == ["r00", "r04", "r05", "r06", "r07", "r08"]
    assert described["runs"][0]["state"] == "running" and described["problems"] == []


def test_old_runs_are_not_read(
    master: Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "NEWEST_RUNS", 2)
    for number in range(4):
        folder = add_run(master, f"r{number}", "failed")
        if number < 2:
            Path(folder.file("run.json")).write_text("[]")
        os.utime(folder.path, (number, number))
    described = answer(master, capsys)
    assert [run["run_id"] for run in described["runs"]] == ["r2", "r3"] and described["problems"] == []


def test_unreadable_runs_are_named_and_the_others_are_answered(
    master: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    add_run(master, "r1")
    Path(add_run(master, "r2").file("run.json")).write_text('{"schema": 1, "requested_at": "2026"}')
    Path(add_run(master, "r3").file("state.json")).write_text('{"schema": 1, "processes": 3}')
    described = answer(master, capsys)
    assert [run["run_id"] for run in described["runs"]] == ["r1"]
    first, second = sorted(described["problems"])
    assert first.startswith("runs: the files in ") and "/r2 are not in the expected form (KeyError" in first
    assert "/r3 are not in the expected form (TypeError" in second


def test_numbers_that_no_float_holds_hide_no_other_run(master: Node, capsys: pytest.CaptureFixture[str]) -> None:
    add_run(master, "r1")
    folder = add_run(master, "r2", prices={"g5.xlarge": 1.0})
    attempt = {"started": format_time(), "ended": None, "machines": {"g5.xlarge": 1}}
    state = {"state": "running", "nodes": ["deeplearning-worker1"], "attempts": [attempt]}
    folder.write("state.json", {**state, "progress": {"seconds_left": 10**400}})
    described = answer(master, capsys)
    assert [(run["run_id"], run["cost"]) for run in described["runs"]] == [("r1", None), ("r2", None)]


def test_what_cannot_be_read_is_named_and_the_rest_is_answered(
    master: Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "EFS_SECONDS", 3)
    answered = threading.Event()
    monkeypatch.setattr(load, "read_all", lambda *_: answered.wait(600))
    Path(add_run(master, "r1").file("run.json")).write_text("[]")
    (master.root / "var/lib/deeplearning/members.json").unlink()
    started = time.monotonic()
    described = answer(master, capsys)
    assert time.monotonic() - started < 600 / 2
    answered.set()
    assert (described["members"], described["loads"], described["runs"]) == ([], [], [])
    members, loads, runs = described["problems"]
    assert members.startswith("members: this node has no member list yet")
    assert loads == "the loads of nodes: no answer within 3 s"
    assert runs.startswith("runs: ") and "run.json has another schema" in runs
