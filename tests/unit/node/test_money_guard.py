"""The end of the machines, as the master sees it: when it postpones it, and what it does before it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract import paths
from deeplearning.contract.errors import UserError
from deeplearning.contract.run_request import DEFAULT_STOP_SECONDS
from deeplearning.contract.scheduled_end import RECURS_SECONDS
from deeplearning.contract.schema import format_time
from deeplearning.members import load
from deeplearning.runs import ending, units
from deeplearning.runs.folder import CHECKPOINT_REQUEST, Folder
from deeplearning.upkeep import commands, money_guard

from tests.unit.node.master_kit import Master
from tests.unit.node.members_kit import JOB_FLOW, cluster_in, file_version, instance
from tests.unit.node.runs_kit import member, members
from tests.unit.node.users_kit import NOBODY, open_folder

GROUPS = ["demo-master", "demo-workers"]
IDLE = 1800
QUIET: dict[str, Any] = {"logins": 0, "jobs": 0, "load": 0.2, "gpus": [{"busy_percent": 0, "memory_percent": 90}]}


@pytest.fixture(params=[False, True], ids=["replaces", "keeps"])
def master(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Master:
    """Whether AWS keeps the fields of an action that a new request leaves out is not known."""
    cluster = cluster_in(tmp_path, monkeypatch)
    cluster.aws.keeps_fields = request.param
    cluster.config = replace(cluster.config, idle_seconds=IDLE)
    master = Master(cluster, cluster.master())
    loads(master, QUIET)
    return master


def loads(master: Master, *nodes: dict[str, Any]) -> None:
    """Write these files of the first nodes."""
    folder = Path(paths.load(master.config.efs_mount, master.config.cluster))
    folder.mkdir(parents=True, exist_ok=True)
    for number, node in enumerate(nodes, start=1):
        known = {"schema": 1, "instance_id": instance(number), "at": int(time.time()), "errors": []}
        use = {"processors": 8, "memory_percent": 10, "disk_percent": 10, **node}
        (folder / f"{instance(number)}.json").write_text(json.dumps(known | use))


def schedule(master: Master, kind: str, seconds: float) -> None:
    for group in GROUPS:
        start = datetime.fromtimestamp(time.time() + seconds, UTC)
        name = f"demo-{kind}"
        times = {"StartTime": start, "EndTime": start + timedelta(seconds=RECURS_SECONDS)}
        master.aws.scheduled[group, name] = {"AutoScalingGroupName": group, "ScheduledActionName": name, **times}


def check(master: Master, runs: Sequence[str] = ()) -> list[float]:
    """Return in how many seconds each group ends if nothing works."""
    with master.node.here():
        money_guard.check(master.config, master.aws, runs)
    return idle_ends(master)


def idle_ends(master: Master) -> list[float]:
    starts = [item["StartTime"] for (_group, name), item in master.aws.scheduled.items() if name == "demo-idle"]
    return [start.timestamp() - time.time() for start in starts]


def are_postponed(ends: list[float]) -> bool:
    """Return whether both groups end after the time without work, or up to three minutes later."""
    return len(ends) == 2 and all(IDLE - 60 <= end <= IDLE + 180 for end in ends)


def booted(master: Master) -> None:
    """Let the first check after the boot have happened."""
    check(master)
    master.aws.calls.clear()


@pytest.mark.parametrize(
    ("node", "runs"),
    [
        ({**QUIET, "logins": 1}, []),
        ({**QUIET, "jobs": 1}, []),
        ({**QUIET, "load": 0.5}, []),
        (QUIET, ["lenet-1"]),
    ],
    ids=["login", "staging", "processor", "run"],
)
def test_what_works_postpones_the_idle_end_of_both_groups(
    master: Master, node: dict[str, Any], runs: list[str]
) -> None:
    booted(master)
    schedule(master, "idle", 300)
    loads(master, QUIET, node)
    assert are_postponed(check(master, runs))
    for action in master.aws.scheduled.values():
        assert [action[size] for size in ("MinSize", "MaxSize", "DesiredCapacity")] == [0, 0, 0]
        # What is left out may keep its value on AWS, such as an end before the new start.
        start = action["StartTime"]
        assert action["EndTime"].timestamp() == start.timestamp() + 600
        assert action["Recurrence"] == f"{start.minute} {start.hour} {start.day} {start.month} *"


def test_an_idle_cluster_is_left_to_its_end(master: Master) -> None:
    booted(master)
    schedule(master, "idle", 300)
    assert check(master) == pytest.approx([300, 300], abs=60)
    assert "put_scheduled_update_group_action" not in master.aws.calls


STALLED_ON_2 = {"state": "stalled", "nodes": ["deeplearning-worker2"]}
AGES = {"new": 60.0, "old": money_guard.WAITING_SECONDS + 60}


@pytest.mark.parametrize(
    ("states", "node", "works"),
    [
        ([{"state": "running"}], QUIET, True),
        ([{"state": "starting"}], QUIET, True),
        ([STALLED_ON_2], QUIET, False),
        # One that progresses is enough.
        ([STALLED_ON_2, {"state": "running"}], QUIET, True),
        # Processes that wait for a rank keep processors and GPUs busy.
        ([STALLED_ON_2], {**QUIET, "load": 8.0, "gpus": [{"busy_percent": 100, "memory_percent": 90}]}, False),
        ([{**STALLED_ON_2, "nodes": ["deeplearning-worker1"]}], {**QUIET, "load": 8.0}, True),
        ([], {**QUIET, "gpus": [{"busy_percent": 100, "memory_percent": 90}]}, False),
        # A person, and what comes to a node, is work, whatever runs there.
        ([STALLED_ON_2], {**QUIET, "logins": 1}, True),
        ([STALLED_ON_2], {**QUIET, "jobs": 1}, True),
        ([{"state": "waiting", "age": "new"}], QUIET, True),
        ([{"state": "waiting", "age": "old"}], QUIET, False),
        ([{"state": "recovering", "age": "new"}], QUIET, True),
        ([{"state": "recovering", "age": "old"}], QUIET, False),
        # What training code has written is no work.
        ([{"state": "waiting", "entered_at": 7}], QUIET, False),
        # Nor does it hide the work of others.
        ([{"state": "stalled", "nodes": 5}], {**QUIET, "logins": 1}, True),
        ([{"state": "stalled", "nodes": [[]]}], {**QUIET, "load": 8.0}, True),
    ],
)
def test_only_progress_of_a_run_is_work(
    master: Master, monkeypatch: pytest.MonkeyPatch, states: list[dict[str, Any]], node: dict[str, Any], works: bool
) -> None:
    booted(master)
    listed = tuple(replace(member(rank), instance_id=instance(rank)) for rank in (1, 2))
    monkeypatch.setattr(money_guard, "read_applied", lambda: replace(members(2), members=listed))
    schedule(master, "idle", 300)
    loads(master, QUIET, node)
    for number, state in enumerate(states):
        if "age" in state:
            state = {**state, "entered_at": format_time(time.time() - AGES[state["age"]])}
        master.create_run(f"run-{number}").write("state.json", state)
    assert are_postponed(check(master, [f"run-{number}" for number in range(len(states))])) is works


def test_a_run_that_cannot_be_read_is_no_work(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    booted(master)
    schedule(master, "idle", 300)
    Path(master.create_run("r1").file("state.json")).write_text("{")
    assert check(master, ["r1"]) == pytest.approx([300, 300], abs=60)
    master.create_run("r2").write("state.json", {"state": "running"})
    monkeypatch.setattr(money_guard, "EFS_SECONDS", 0.1)
    monkeypatch.setattr(Folder, "state", lambda _folder: time.sleep(60))
    assert check(master, ["r2"]) == pytest.approx([300, 300], abs=60)


def test_a_boot_counts_as_work_and_ends_the_time_that_machines_have_to_start(master: Master) -> None:
    schedule(master, "idle", 2 * 3600)
    assert are_postponed(check(master))


def test_the_end_is_moved_only_to_another_of_its_minutes(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_800_000_010.0
    monkeypatch.setattr(time, "time", lambda: now)
    booted(master)
    first = check(master, ["lenet-1"])
    master.aws.calls.clear()
    now += 30
    assert [end + 30 for end in check(master, ["lenet-1"])] == first
    assert "put_scheduled_update_group_action" not in master.aws.calls
    now += 180
    assert are_postponed(check(master, ["lenet-1"]))
    assert master.aws.calls.count("put_scheduled_update_group_action") == 2


def test_a_missing_action_is_created_while_something_works(master: Master) -> None:
    booted(master)
    schedule(master, "idle", IDLE)
    del master.aws.scheduled["demo-workers", "demo-idle"]
    assert len(check(master)) == 1
    assert are_postponed(check(master, ["lenet-1"]))


def test_a_file_system_that_does_not_answer_is_no_work(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    booted(master)
    schedule(master, "idle", 300)
    monkeypatch.setattr(money_guard, "EFS_SECONDS", 0.1)
    monkeypatch.setattr(load, "read_all", lambda _mount, _cluster: time.sleep(60))
    assert check(master) == pytest.approx([300, 300], abs=60)


def test_without_the_setting_and_on_emr_nothing_is_scheduled(master: Master) -> None:
    master.cluster.config = replace(master.config, idle_seconds=0)
    assert check(master, ["lenet-1"]) == []
    master.cluster.config = replace(master.config, idle_seconds=IDLE, job_flow=JOB_FLOW)
    master.aws.calls.clear()
    assert check(master, ["lenet-1"]) == [] and master.aws.calls == []


def test_people_who_log_in_read_when_the_machines_end(master: Master) -> None:
    schedule(master, "ttl", 7200)
    check(master)
    message = master.node.text(paths.LOGIN_MESSAGE)
    at = f"{master.aws.scheduled['demo-master', 'demo-ttl']['StartTime']:%Y-%m-%d %H:%M} UTC"
    assert f"All machines of this cluster end at {at}, and its file system stays." in message
    assert "ansible-playbook deeplearning.aws.extend -e hours=4" in message
    assert "after 30 minutes without a run" in message
    master.aws.scheduled.clear()
    master.cluster.config = replace(master.config, idle_seconds=0)
    check(master)
    assert master.node.text(paths.LOGIN_MESSAGE) == ""


def test_the_time_that_is_left_is_told_to_runs(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending.identity, "become", lambda _user: None)
    run = master.create_run("lenet-1")
    check(master, ["lenet-1"])
    schedule(master, "ttl", ending.CHECKPOINT_SECONDS + 120)
    check(master, ["lenet-1"])
    assert run.read(CHECKPOINT_REQUEST) is None
    schedule(master, "ttl", ending.CHECKPOINT_SECONDS)
    check(master, ["lenet-1"])
    assert run.read(CHECKPOINT_REQUEST) and master.asked("stop") == []


def test_runs_save_before_the_end_of_the_setup_which_people_can_read(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending.identity, "become", lambda _user: None)
    run = master.create_run("lenet-1")
    schedule(master, "setup", 7200)
    check(master, ["lenet-1"])
    message = master.node.text(paths.LOGIN_MESSAGE)
    end = f"{master.aws.scheduled['demo-master', 'demo-setup']['StartTime']:%Y-%m-%d %H:%M} UTC"
    assert f"The machines of demo-master, demo-workers end at {end}: no playbook has met one" in message
    assert "On your own machine: ansible-playbook deeplearning.aws.site" in message
    assert run.read(CHECKPOINT_REQUEST) is None
    # The master is in service, and its workers are not.
    del master.aws.scheduled["demo-master", "demo-setup"]
    check(master, ["lenet-1"])
    assert "The machines of demo-workers end at" in master.node.text(paths.LOGIN_MESSAGE)
    schedule(master, "setup", ending.CHECKPOINT_SECONDS)
    schedule(master, "ttl", 7200)
    check(master, ["lenet-1"])
    assert run.read(CHECKPOINT_REQUEST)


def test_the_end_is_postponed_even_if_the_list_cannot_be_published(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "AwsClient", lambda _region: master.aws)
    booted(master)
    master.active("lenet-1")
    schedule(master, "idle", 300)
    master.aws.denied = {"describe_instances"}
    with master.node.here(), pytest.raises(UserError, match="describe_instances"):
        commands.main(["publish"])
    assert are_postponed(idle_ends(master))
    schedule(master, "idle", 300)
    master.aws.denied.clear()
    with master.node.here():
        commands.main(["publish", "--json"])
    assert json.loads(capsys.readouterr().out)["generation"] == 1
    assert are_postponed(idle_ends(master))


# Before the end


@pytest.fixture
def run(master: Master, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """An active run, in a folder that is closed to other users."""
    monkeypatch.setattr(ending.identity, "become", lambda _user: None)
    run = master.create_run()
    run.write("state.json", {"state": "running"})
    master.active("r1")
    return run


def prepare(master: Master, seconds_left: float | None, *run_ids: str) -> None:
    with master.node.here():
        ending.prepare(master.config, seconds_left, run_ids)


def test_a_run_is_asked_for_a_checkpoint_and_then_stopped_without_an_end(master: Master, run: Folder) -> None:
    request = Path(run.file(CHECKPOINT_REQUEST))
    prepare(master, 301, "r1")
    assert not request.exists()
    prepare(master, 290, "r1")
    first = file_version(request)
    prepare(master, 200, "r1")
    assert file_version(request) == first and master.asked("stop") == []
    prepare(master, 110, "r1")
    assert master.asked("stop") == ["stop --no-block deeplearning-run@r1.service"]
    master.active()
    with master.node.here():
        assert units.may_continue("r1") and not units.may_continue("r2")
    # `run stop` leaves a file that says so, and such a run is not resumed.
    assert run.read("stop.json") is None and run.result() is None


@pytest.mark.root
def test_where_a_runs_folder_is_a_link_only_the_clusters_user_writes(
    master: Master, capfd: pytest.CaptureFixture[str]
) -> None:
    with open_folder() as mount, master.node.here():
        config = replace(master.config, efs_mount=str(mount))
        runs, victim = Path(paths.runs(str(mount), config.cluster)), mount.with_name("etc")
        for folder in (runs / "r1", victim):
            folder.mkdir(parents=True)
            (folder / "run.json").touch()
        os.chown(runs / "r1", NOBODY, NOBODY)
        (runs / "r2").symlink_to(victim)
        ending.prepare(config, 290, ["r1", "r2"])
        assert (runs / "r1" / CHECKPOINT_REQUEST).exists() and not (victim / CHECKPOINT_REQUEST).exists()
        (victim / CHECKPOINT_REQUEST).touch()
        ending.prepare(config, 7200, ["r1", "r2"])
        assert not (runs / "r1" / CHECKPOINT_REQUEST).exists() and (victim / CHECKPOINT_REQUEST).exists()
    assert capfd.readouterr().err.count("run r2 cannot be asked for a checkpoint: [Errno 13] Permission denied") == 2


def test_a_run_goes_on_if_the_end_is_postponed_in_time(master: Master, run: Folder) -> None:
    prepare(master, 290, "r1")
    prepare(master, 7200, "r1")
    assert run.read(CHECKPOINT_REQUEST) is None and master.asked("start", "stop") == []
    prepare(master, 100, "r1")
    master.active()
    prepare(master, 7200)
    prepare(master, 7200)
    assert master.asked("start", "stop") == [
        "stop --no-block deeplearning-run@r1.service",
        "start deeplearning-run@r1.service",
    ]


def test_a_run_that_has_longer_to_save_is_asked_and_stopped_earlier(master: Master, run: Folder) -> None:
    other = master.create_run("r2", stop_seconds=600)
    other.write("state.json", {"state": "running"})
    extra = 600 - DEFAULT_STOP_SECONDS
    stops = ["stop --no-block deeplearning-run@r2.service"]
    prepare(master, 301 + extra, "r1", "r2")
    assert other.read(CHECKPOINT_REQUEST) is None
    prepare(master, 299 + extra, "r1", "r2")
    assert other.read(CHECKPOINT_REQUEST) and run.read(CHECKPOINT_REQUEST) is None and master.asked("stop") == []
    prepare(master, 119 + extra, "r1", "r2")
    assert master.asked("stop") == stops
    # It saves for minutes. The other one, which has ended meanwhile, is not forgotten.
    master.active("r1")
    prepare(master, 310, "r1")
    prepare(master, 110, "r1")
    assert master.asked("start", "stop") == [*stops, "stop --no-block deeplearning-run@r1.service"]
    master.active()
    with master.node.here():
        assert units.may_continue("r1") and units.may_continue("r2")


def test_a_run_that_saves_when_the_end_is_postponed_is_resumed_after_that(master: Master, run: Folder) -> None:
    master.create_run("r2").write("state.json", {"state": "running"})
    prepare(master, 100, "r1", "r2")
    # The first one saves, and the other one has ended.
    prepare(master, 7200, "r1")
    assert master.asked("start") == ["start deeplearning-run@r2.service"]
    with master.node.here():
        assert units.may_continue("r1")
    master.active("r2")
    prepare(master, 7100, "r2")
    master.active("r1", "r2")
    prepare(master, 7000, "r1", "r2")
    assert master.asked("start") == [f"start deeplearning-run@{name}.service" for name in ("r2", "r1")]


def test_the_end_of_a_run_whose_record_cannot_be_read_is_that_of_others(master: Master, run: Folder) -> None:
    Path(run.file("run.json")).write_text("{")
    prepare(master, 301, "r1")
    assert run.read(CHECKPOINT_REQUEST) is None
    prepare(master, 110, "r1")
    assert run.read(CHECKPOINT_REQUEST) and master.asked("stop") == ["stop --no-block deeplearning-run@r1.service"]


def test_without_a_run_nothing_is_stopped(master: Master) -> None:
    prepare(master, 10)
    prepare(master, None)
    # Its folder was removed while it ran.
    prepare(master, 10, "lost")
    assert master.asked("start", "stop") == []
