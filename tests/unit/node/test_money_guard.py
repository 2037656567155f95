"""The end of the machines, as the master sees it: when it postpones it, and what it does before it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.members import commands, load, money_guard
from deeplearning.members.publishing import PublishOutcome
from deeplearning.run import ending, units
from deeplearning.run.folder import CHECKPOINT_REQUEST, Folder

from tests.unit.node.members_kit import JOB_FLOW, Node, cluster_in

GROUPS = ["demo-master", "demo-workers"]
IDLE = 1800
QUIET = {"logins": 0, "load": 0.2, "gpus": [{"busy_percent": 0, "memory_percent": 90}]}


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    cluster = cluster_in(tmp_path, monkeypatch)
    cluster.config = replace(cluster.config, idle_seconds=IDLE)
    monkeypatch.setattr(ending, "prepare", Mock())
    loads(monkeypatch, QUIET)
    return cluster.master()


def loads(monkeypatch: pytest.MonkeyPatch, *nodes: dict[str, Any]) -> None:
    monkeypatch.setattr(load, "read_all", lambda _mount, _cluster: list(nodes))


def schedule(master: Node, kind: str, seconds: float) -> None:
    for group in GROUPS:
        start = datetime.fromtimestamp(time.time() + seconds, UTC)
        name = f"demo-{kind}"
        action = {"AutoScalingGroupName": group, "ScheduledActionName": name, "StartTime": start}
        master.aws.scheduled[group, name] = action


def check(master: Node, runs: Sequence[str] = ()) -> list[float]:
    """Return in how many seconds each group ends if nothing works."""
    with master.here():
        money_guard.check(master.config, master.aws, runs)
    starts = [item["StartTime"] for (_group, name), item in master.aws.scheduled.items() if name == "demo-idle"]
    return [start.timestamp() - time.time() for start in starts]


def booted(master: Node) -> None:
    """Let the first check after the boot have happened."""
    check(master)
    master.aws.calls.clear()


@pytest.mark.parametrize(
    ("node", "runs"),
    [
        ({**QUIET, "logins": 1}, []),
        ({**QUIET, "load": 0.5}, []),
        ({**QUIET, "gpus": [{"busy_percent": 0}, {"busy_percent": 5}]}, []),
        (QUIET, ["lenet-1"]),
    ],
    ids=["login", "processor", "GPU", "run"],
)
def test_what_works_postpones_the_idle_end_of_both_groups(
    master: Node, monkeypatch: pytest.MonkeyPatch, node: dict[str, Any], runs: list[str]
) -> None:
    booted(master)
    schedule(master, "idle", 300)
    loads(monkeypatch, QUIET, node)
    assert check(master, runs) == pytest.approx([IDLE, IDLE], abs=3)
    for action in master.aws.scheduled.values():
        assert [action[size] for size in ("MinSize", "MaxSize", "DesiredCapacity")] == [0, 0, 0]
        assert action["StartTime"].microsecond == 0 and action["StartTime"].second


def test_an_idle_cluster_is_left_to_its_end(master: Node) -> None:
    booted(master)
    schedule(master, "idle", 300)
    assert check(master) == pytest.approx([300, 300], abs=3)
    assert "put_scheduled_update_group_action" not in master.aws.calls


def test_a_boot_counts_as_work_and_ends_the_time_that_machines_have_to_start(master: Node) -> None:
    schedule(master, "idle", 2 * 3600)
    assert check(master) == pytest.approx([IDLE, IDLE], abs=3)


def test_the_end_is_not_moved_for_some_seconds(master: Node) -> None:
    booted(master)
    schedule(master, "idle", IDLE - 50)
    assert check(master, ["lenet-1"]) == pytest.approx([IDLE - 50] * 2, abs=3)
    schedule(master, "idle", IDLE - 70)
    assert check(master, ["lenet-1"]) == pytest.approx([IDLE] * 2, abs=3)


def test_a_missing_action_is_created_while_something_works(master: Node) -> None:
    booted(master)
    schedule(master, "idle", IDLE)
    del master.aws.scheduled["demo-workers", "demo-idle"]
    assert len(check(master)) == 1
    assert check(master, ["lenet-1"]) == pytest.approx([IDLE] * 2, abs=3)


def test_a_file_system_that_does_not_answer_is_no_work(master: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    booted(master)
    schedule(master, "idle", 300)
    monkeypatch.setattr(money_guard, "EFS_SECONDS", 0.1)
    monkeypatch.setattr(load, "read_all", lambda _mount, _cluster: time.sleep(60))
    assert check(master) == pytest.approx([300, 300], abs=3)


def test_without_the_setting_and_on_emr_nothing_is_scheduled(master: Node) -> None:
    master.config = replace(master.config, idle_seconds=0)
    assert check(master, ["lenet-1"]) == []
    master.config = replace(master.config, idle_seconds=IDLE, job_flow=JOB_FLOW)
    master.aws.calls.clear()
    assert check(master, ["lenet-1"]) == [] and master.aws.calls == []


def test_people_who_log_in_read_when_the_machines_end(master: Node) -> None:
    schedule(master, "ttl", 7200)
    check(master)
    message = master.text(paths.LOGIN_MESSAGE)
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time.time() + 7200))
    assert f"All machines of this cluster end at {at}; its file system stays." in message
    assert "ansible-playbook deeplearning.aws.extend -e hours=4" in message
    assert "after 30 minutes without a run" in message
    master.aws.scheduled.clear()
    master.config = replace(master.config, idle_seconds=0)
    check(master)
    assert master.text(paths.LOGIN_MESSAGE) == ""


def test_the_time_that_is_left_is_told_to_runs(master: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = Mock()
    monkeypatch.setattr(ending, "prepare", prepare)
    check(master, ["lenet-1"])
    assert prepare.call_args.args == (master.config, None, ["lenet-1"])
    schedule(master, "ttl", 200)
    check(master, ["lenet-1"])
    assert prepare.call_args.args[1] == pytest.approx(200, abs=3)


def test_the_end_is_postponed_even_if_the_list_cannot_be_published(
    master: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_end = Mock()
    monkeypatch.setattr(money_guard, "check", check_end)
    monkeypatch.setattr(commands, "read_config", lambda: master.config)
    monkeypatch.setattr(commands, "AwsClient", lambda _region: master.aws)
    monkeypatch.setattr(units, "active_runs", lambda: ["lenet-1"])
    monkeypatch.setattr(commands, "publish", Mock(side_effect=UserError("no list.")))
    with pytest.raises(UserError, match="no list"):
        commands.main(["publish"])
    check_end.assert_called_once_with(master.config, master.aws, ["lenet-1"])
    monkeypatch.setattr(commands, "publish", lambda *_arguments: PublishOutcome(7, False, []))
    assert commands.main(["publish", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["generation"] == 7 and check_end.call_count == 2


# Before the end


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Folder) -> Mock:
    """What systemd is asked for, with the run r1 active."""
    control = Mock()
    monkeypatch.setattr(paths, "STOPPED_RUNS", str(tmp_path / "stopped-runs"))
    monkeypatch.setattr(units, "control", control)
    monkeypatch.setattr(ending, "find_run", lambda _config, _run_id: run)
    return control


@pytest.fixture
def recover(monkeypatch: pytest.MonkeyPatch) -> Mock:
    recover = Mock()
    monkeypatch.setattr(ending, "recover", recover)
    return recover


def test_a_run_is_asked_for_a_checkpoint_and_then_stopped_without_an_end(
    stopped: Mock, run: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Mock()
    request = Path(run.file(CHECKPOINT_REQUEST))
    ending.prepare(config, 301, ["r1"])
    assert not request.exists()
    ending.prepare(config, 290, ["r1"])
    first = request.stat()
    ending.prepare(config, 200, ["r1"])
    assert request.stat() == first and not stopped.called
    ending.prepare(config, 110, ["r1"])
    stopped.assert_called_once_with("stop", "deeplearning-run@r1.service")
    monkeypatch.setattr(units, "active_units", lambda _pattern: [])
    assert units.may_continue("r1")
    # `run stop` leaves a file that says so, and such a run is not resumed.
    assert run.read("stop.json") is None


def test_a_run_goes_on_if_the_end_is_postponed_in_time(stopped: Mock, recover: Mock, run: Folder) -> None:
    config = Mock()
    ending.prepare(config, 290, ["r1"])
    ending.prepare(config, 7200, ["r1"])
    assert run.read(CHECKPOINT_REQUEST) is None and not recover.called
    ending.prepare(config, 100, ["r1"])
    ending.prepare(config, 7200, [])
    recover.assert_called_once_with(config)
    ending.prepare(config, 7200, [])
    recover.assert_called_once_with(config)


def test_without_a_run_nothing_is_stopped(stopped: Mock) -> None:
    ending.prepare(Mock(), 10, [])
    ending.prepare(Mock(), None, [])
    assert not stopped.called
