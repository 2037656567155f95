"""A run while it goes on: which nodes it gets, what is made of what it hears, what is kept, what is shown."""

from __future__ import annotations

import errno
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deeplearning import Refusal, files
from deeplearning.aws import Unanswered
from deeplearning.config import Config
from deeplearning.members import checking
from deeplearning.members.reading import Member, Members
from deeplearning.run import attempt as attempts
from deeplearning.run import create, placing, showing, survey, unit, units
from deeplearning.run.folder import Folder
from deeplearning.run.placing import Busy, Place
from deeplearning.run.plan import Node
from deeplearning.run.record import Log, Record

from tests.unit.node.members_kit import Cluster, cluster_in, instance
from tests.unit.node.members_kit import Node as MemberNode

ROOT = Path(__file__).resolve().parents[3]


def member(rank: int, **more: Any) -> Member:
    aliases = (f"deeplearning-worker{rank}", *(["deeplearning-master"] if rank == 1 else []))
    given = {"gpus": 0, "slots": 1, "state": "ready", **more}
    return Member(
        rank, aliases, f"i-{rank:08x}", f"10.0.0.{rank}", f"h{rank}.internal", "t3.micro", host_keys=(), **given
    )


def members(count: int, wanted: int | None = None, **more: Any) -> Members:
    listed = tuple(member(rank, **more) for rank in range(1, count + 1))
    return Members("c", "sg-1", 3, wanted or count, "i-00000001", "2026-01-01T00:00:00Z", listed)


def names(chosen: list[Member]) -> list[int]:
    return [one.rank for one in chosen]


@pytest.mark.parametrize(
    ("nodes", "used", "expected"),
    [
        (None, set(), [1, 2, 3]),
        (2, set(), [1, 2]),
        (2, {"deeplearning-worker1"}, [2, 3]),
        (["deeplearning-worker3", "deeplearning-master"], set(), [1, 3]),
        (["deeplearning-worker3"], {"deeplearning-worker1"}, [3]),
    ],
)
def test_a_run_gets_free_nodes_by_rank(nodes: Any, used: set[str], expected: list[int]) -> None:
    there = placing.candidates(nodes, members(3))
    assert names(placing.chosen(nodes, there, used, first=True)) == expected


@pytest.mark.parametrize("nodes", [None, 3, ["deeplearning-worker1"]])
def test_nodes_of_another_run_are_waited_for(nodes: Any) -> None:
    there = placing.candidates(nodes, members(3))
    with pytest.raises(Busy, match=r"deeplearning-worker1 \(run other\)"):
        placing.chosen(nodes, there, {"deeplearning-worker1": "other"}, first=True)


@pytest.mark.parametrize(("nodes", "left", "expected"), [(3, 2, [1, 2]), (None, 2, [1, 2]), (1, 3, [1])])
def test_after_a_loss_a_run_goes_on_with_whoever_is_left(nodes: Any, left: int, expected: list[int]) -> None:
    there = placing.candidates(nodes, members(left))
    assert names(placing.chosen(nodes, there, set(), first=False)) == expected


def test_more_nodes_than_members_and_unknown_ones_are_refused() -> None:
    with pytest.raises(Refusal, match="nodes is 4, and 3 members are there to train"):
        placing.chosen(4, placing.candidates(4, members(3)), set(), first=True)
    with pytest.raises(Refusal, match="nodes has deeplearning-worker9"):
        placing.candidates(["deeplearning-worker9"], members(3))


def test_faulty_members_and_a_master_that_does_not_train_get_nothing() -> None:
    mixed = Members("c", "sg-1", 3, 3, "i-00000001", "", (member(1, slots=0), member(2, state="faulty"), member(3)))
    assert names(placing.candidates(None, mixed)) == [3]


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the list is published; this machine is i-00000001. Each list counts as one that is signed."""
    monkeypatch.setattr(placing, "instance_id", lambda: "i-00000001")
    monkeypatch.setattr(placing.applying, "checked", lambda content, config, connect: None)
    monkeypatch.setattr(checking, "OWNER", os.getuid())
    monkeypatch.setattr(files, "BETWEEN_LOOKS", 0.0)
    file = tmp_path / ".deeplearning/c/members.json"
    file.parent.mkdir(parents=True)
    return file


def published_by(file: Path, instance: str) -> None:
    file.write_text(json.dumps({"cluster_id": "sg-1", "published_by": instance}))


def in_place(efs: Path, said: list[str], published: bool = False) -> placing.Placing:
    run: dict[str, Any] = {"nodes": None, "busy": "wait"}
    config, folder = replace(CONFIG, efs_mount=str(efs)), Folder("/r1")
    return placing.Placing(config, folder, run, False, lambda nodes: None, said.append, lambda: False, 0.0, published)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = cluster_in(tmp_path, monkeypatch)
    monkeypatch.setattr(placing, "Aws", lambda region: cluster.aws)
    monkeypatch.setattr(placing, "signatures", placing.SignatureChecks())
    return cluster


def is_superseded(node: MemberNode) -> bool:
    with node.here():
        return placing.superseded(node.config)


def replaced(cluster: Cluster) -> MemberNode:
    """Another machine is the master, and has published."""
    cluster.aws.end(1)
    new = cluster.master(8)
    new.publish()
    return new


def published_once(cluster: Cluster) -> MemberNode:
    master = cluster.master()
    assert not is_superseded(master)
    master.publish()
    master.apply()
    return master


@pytest.mark.parametrize("may_write", [True, False])
def test_a_list_of_another_master_says_that_this_one_is_superseded(
    cluster: Cluster, may_write: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = published_once(cluster)
    assert not is_superseded(old)
    new = replaced(cluster)
    if not may_write:
        # Runs are the cluster's user's, who can note no keys.
        monkeypatch.setattr(files, "put", Mock(side_effect=PermissionError))
    assert is_superseded(old) and not is_superseded(new)


def test_a_signed_list_is_believed_by_a_master_that_cannot_ask_aws(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = published_once(cluster)
    replaced(cluster)
    monkeypatch.setattr(cluster.aws, "call", Mock(side_effect=Unanswered("AWS does not answer.")))
    assert is_superseded(old)


FORGED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "two keys": lambda true: {"cluster_id": true["cluster_id"], "published_by": instance(2)},
    "not signed": lambda true: {**true, "published_by": instance(2), "generation": 9, "signature": ""},
    "signed by another master": lambda true: {**true, "published_by": instance(8), "generation": 9},
    "signed by a worker": lambda true: {**true, "published_by": instance(2), "generation": 9},
    "by a path": lambda true: {**true, "published_by": "../../../etc/x", "generation": 9},
    "of another cluster": lambda true: {**true, "published_by": instance(8), "cluster_id": "sg-older"},
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_run_goes_on_when_a_list_is_forged(
    cluster: Cluster, run: Folder, forge: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    cluster.workers(2)
    master = published_once(cluster)
    # A machine that has been a master, but has signed nothing of this.
    cluster.aws.add(8, master=True)
    cluster.aws.report(8)
    cluster.aws.end(8)
    cluster.put(forge(cluster.list))
    assert not is_superseded(master)
    going = started(run, config=cluster.config)
    with master.here():
        going.look()
    assert not going.superseded and going.ending is None


def forged_by(cluster: Cluster, number: int) -> Mock:
    """Publish a list that no master has signed, and count the calls to AWS from here on."""
    cluster.put({**cluster.list, "published_by": instance(number), "generation": 9})
    return Mock(side_effect=cluster.aws.call)


def test_a_refused_list_is_not_checked_with_every_look(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    master = published_once(cluster)
    connect = Mock(return_value=cluster.aws)
    monkeypatch.setattr(placing, "Aws", connect)
    now = [1000.0]
    monkeypatch.setattr(placing.time, "monotonic", lambda: now[0])
    calls = forged_by(cluster, 8)
    monkeypatch.setattr(cluster.aws, "call", calls)
    for _look in range(5):
        assert not is_superseded(master)
    assert calls.call_count == 1
    # AWS may allow later what it has refused.
    now[0] += placing.REFUSED_FOR
    assert not is_superseded(master) and calls.call_count == 2
    # Another list is checked at once, by the same connection.
    forged_by(cluster, 7)
    assert not is_superseded(master) and calls.call_count == 3
    assert connect.call_count == 1


def test_a_true_list_after_a_forged_one_is_believed_at_once(cluster: Cluster) -> None:
    old = published_once(cluster)
    true = cluster.list
    forged_by(cluster, 8)
    assert not is_superseded(old)
    cluster.put(true)
    replaced(cluster)
    assert is_superseded(old)


def test_a_run_goes_on_when_a_former_masters_list_is_put_back(cluster: Cluster) -> None:
    published_once(cluster)
    former = cluster.list
    new = replaced(cluster)
    new.apply()
    cluster.put(former)
    assert not is_superseded(new)


def test_a_new_master_waits_until_it_has_published_and_an_old_one_leaves_the_run_alone(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(placing, "read_applied", unlisted)
    publishers = iter(["i-00000009", "i-00000001", "i-00000009"])
    monkeypatch.setattr(placing.time, "sleep", lambda seconds: published_by(published, next(publishers)))
    published_by(published, "i-00000009")
    with pytest.raises(placing.Superseded):
        in_place(tmp_path, said).wait()
    assert len(said) == 3 and not list(publishers)


CONFIG = Config("c", "sg-1", "us-east-1", "b", ("10.0.0.0/16",), "me", "master", "AROA", True, "", "fs", None, 0)


@pytest.fixture
def run(tmp_path: Path) -> Folder:
    folder = tmp_path / "runs" / "c" / "r1"
    for name in ("logs", "metrics", "attempts", "checkpoints"):
        (folder / name).mkdir(parents=True)
    made = Folder(str(folder))
    request = {
        "framework": "tensorflow",
        "distribution": "parameter_server",
        "script": "/efs/x/train.py",
        "nodes": None,
    }
    request |= {"processes_per_node": None, "servers": 1, "script_args": ["{job_name}"], "python": "/p/bin/python"}
    request |= {"max_restarts": 3, "asked_at": "2026-01-01T00:00:00Z", "asked_by": "me", "data": "", "busy": "wait"}
    made.write("run.json", request)
    return made


def test_a_master_that_stood_still_through_its_replacement_leaves_the_run_alone_at_once(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published_by(published, "i-00000009")
    said: list[str] = []
    # Its own copy is still the list that it published, or by now the one that has it no more.
    for published_before, applied in ((False, members(2)), (True, None)):
        monkeypatch.setattr(placing, "read_applied", lambda applied=applied: applied or unlisted())
        monkeypatch.setattr(placing, "this_member", lambda listed: None)
        with pytest.raises(placing.Superseded):
            in_place(tmp_path, said, published_before).wait()
    assert said == []


def unlisted() -> Members:
    raise Refusal("this node has no member list yet")


def test_a_master_that_is_replaced_while_a_run_goes_on_writes_nothing_more_and_ends_what_runs_here(
    run: Folder, published: Path, tmp_path: Path
) -> None:
    going = started(run, config=replace(CONFIG, efs_mount=str(tmp_path)))
    hear(going, (1, {"time": 1.0, "line": "not written yet"}))
    published_by(published, "i-00000009")
    Path(run.file("metrics/rank0.jsonl")).write_text('{"epoch": 1}\n')
    going.look()
    hear(going, (1, {"time": 2.0, "line": "late"}), (1, {"time": 2.0, "end": 143}))
    going.complain(b"a process has ended\n")
    for log in (*going.logs, going.own):
        log.close()
    assert going.ending and list(run.events()) == []
    assert [file.read_text() for file in Path(run.file("logs")).iterdir()] == [""]


def test_a_master_that_is_replaced_while_it_asks_the_nodes_neither_starts_the_run_nor_ends_it(
    run: Folder, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def surveyed(*asked: Any) -> list[survey.Found]:
        published_by(published, "i-00000009")
        return [survey.Found(one, problem=f"{one.alias} does not answer within 8 s.") for one in members(2).members]

    published_by(published, "i-00000001")
    monkeypatch.setattr(placing, "read_applied", lambda: members(2))
    monkeypatch.setattr(placing, "this_member", lambda listed: member(1))
    monkeypatch.setattr(placing, "surveyed", surveyed)
    monkeypatch.setattr(unit.signal, "signal", lambda *given: None)
    monkeypatch.setattr(placing, "in_use", lambda config, but: {})
    monkeypatch.setattr(placing, "runs_root", lambda config: tmp_path)
    unit.Unit(replace(CONFIG, efs_mount=str(tmp_path)), run).go()
    assert run.result() is None and run.attempts() == 0
    assert "another machine is the master now" in capsys.readouterr().err

    # Whatever else goes wrong with one that is replaced is not the run's end either.
    monkeypatch.setattr(unit.Placing, "wait", lambda self: unlisted())
    unit.Unit(replace(CONFIG, efs_mount=str(tmp_path)), run).go()
    assert run.result() is None


SURVEY = {"boot_id": "0f-1", "gpus": 8, "efa": 4, "interface": "ens5", "ports": [20000, 20001], "problem": ""}


def survey_of(monkeypatch: pytest.MonkeyPatch, answer: Any, ports: int = 2) -> survey.Found:
    done = subprocess.CompletedProcess("ssh", 0, json.dumps(answer), "")
    monkeypatch.setattr(survey.subprocess, "run", lambda *words, **more: done)
    (found,) = survey.surveyed([member(2)], survey.Wanted("r1", "/r1", "/p", ports), "i-00000001")
    return found


def test_a_survey_describes_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    found = survey_of(monkeypatch, SURVEY)
    assert found.node == Node("deeplearning-worker2", "10.0.0.2", 8, "ens5", (20000, 20001), 4)
    assert (found.boot_id, found.problem) == ("0f-1", "")
    found = survey_of(monkeypatch, {**SURVEY, "ports": list(range(1, 60000))})
    assert found.node and found.node.ports == (1, 2)


@pytest.mark.parametrize(
    "answer",
    [
        {key: value for key, value in SURVEY.items() if key != "efa"},
        [],
        {**SURVEY, "gpus": 10**12},
        {**SURVEY, "gpus": 65},
        {**SURVEY, "gpus": True},
        {**SURVEY, "efa": 65},
        {**SURVEY, "efa": -1},
        {**SURVEY, "ports": [0]},
        {**SURVEY, "ports": [65536]},
        {**SURVEY, "ports": "20000"},
        {**SURVEY, "interface": "ens5 --mca x"},
        {**SURVEY, "interface": "a" * 16},
        {**SURVEY, "interface": "../x"},
        {**SURVEY, "interface": None},
        {**SURVEY, "boot_id": ["b"]},
        {**SURVEY, "problem": "\x1b]52;c;x"},
    ],
)
def test_a_node_that_answers_something_else_takes_no_part(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    found = survey_of(monkeypatch, answer)
    assert found.node is None and "deeplearning-worker2 has another version of our programs" in found.problem
    assert "\x1b" not in found.problem


def started(run: Folder, told: bool = False, config: Config = CONFIG) -> attempts.Attempt:
    nodes = [Node(f"deeplearning-worker{n}", f"10.0.0.{n}", ports=(20000, 20001, 20002, 20003)) for n in (1, 2)]
    place = Place(nodes, 3, {node.name: "boot" for node in nodes}, "deeplearning-worker1")
    made = attempts.Attempt(0, config, run, run.run(), place, Record(run), lambda: told)
    made.end = lambda: setattr(made, "ending", True)  # type: ignore[assignment,method-assign]
    return made


def hear(going: attempts.Attempt, *messages: tuple[int, dict[str, Any]]) -> None:
    """Processes: 0 ps0, 1 worker0, 2 worker1."""
    for rank, message in messages:
        going.hear(rank, message)
    going.decide()


def outcome(going: attempts.Attempt, lost: dict[str, str], code: int = 143) -> attempts.Outcome:
    going.left_behind = lambda: lost  # type: ignore[method-assign]
    return going.outcome(code)


def test_the_first_failure_ends_the_start_and_is_told_with_its_last_lines(run: Folder) -> None:
    going = started(run)
    hear(going, *[(2, {"time": 1.5, "line": f"line {n}"}) for n in range(40)])
    assert going.ending is None
    hear(going, (2, {"time": 2.0, "end": 7}), (1, {"time": 2.1, "end": 1}))
    assert going.ending
    made = outcome(going, {})
    assert (made.cause, made.exit_code) == ("failed", 7)
    assert made.first_failure == {
        "node": "deeplearning-worker2",
        "role": "worker",
        "rank": 1,
        "exit_code": 7,
        "signal": None,
        "tail": [f"line {n}" for n in range(10, 40)],
    }
    assert unit.sentence("r1", "failed", 7, made.first_failure, "") == (
        "run r1 ended with 7 (deeplearning-worker2, rank 1)"
    )


def test_a_failure_while_a_member_was_lost_is_the_members(run: Folder) -> None:
    going = started(run)
    hear(going, (1, {"time": 2.0, "end": 1}))
    made = outcome(going, {"deeplearning-worker2": "it has booted since"})
    assert (made.cause, made.exit_code, made.lost) == ("lost", 1, {"deeplearning-worker2": "it has booted since"})


def test_a_signal_after_a_stop_is_no_failure(run: Folder) -> None:
    going = started(run, told=True)
    hear(going)
    assert going.ending
    hear(going, (1, {"time": 2.0, "end": 143}))
    assert going.failure is None
    assert outcome(going, {"deeplearning-worker2": "it hangs"}).cause == "stopped"


def test_servers_are_ended_some_time_after_the_last_worker(run: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    going, now = started(run), [100.0]
    monkeypatch.setattr(attempts.time, "monotonic", lambda: now[0])
    hear(going, (1, {"time": 2.0, "end": 0}))
    hear(going, (2, {"time": 2.0, "end": 0}))
    assert going.ending is None
    now[0] += attempts.SERVERS_GRACE + 0.1
    hear(going)
    assert going.ending
    assert outcome(going, {}).cause == "finished"


def test_mpirun_that_could_not_start_says_why(run: Folder) -> None:
    going = started(run)
    going.complain(b"-----\nno such host\n-----\n")
    made = outcome(going, {}, code=213)
    assert (made.cause, made.exit_code) == ("failed", 213)
    assert unit.sentence("r1", "failed", 213, made.first_failure, "") == "run r1 ended with 213: no such host"


def test_a_signal_has_its_name(run: Folder) -> None:
    going = started(run)
    hear(going, (1, {"time": 2.0, "end": 137}))
    assert going.failure and (going.failure["exit_code"], going.failure["signal"]) == (137, "SIGKILL")


def test_what_is_written_for_the_wrappers_is_what_they_need(run: Folder) -> None:
    going = started(run)
    going.write_plan()
    start = json.loads(Path(run.file("attempts/0/plan.json")).read_text())
    assert start["command"] == ["/p/bin/python", "/efs/x/train.py"]
    assert (start["folder"], start["arguments"]) == ("/efs/x", ["{job_name}"])
    assert Path(run.file("attempts/0/hostfile")).read_text() == (
        "deeplearning-worker1 slots=2\ndeeplearning-worker2 slots=1\n"
    )


@pytest.fixture
def ending(run: Folder, monkeypatch: pytest.MonkeyPatch) -> unit.Unit:
    monkeypatch.setattr(unit.signal, "signal", lambda *given: None)
    run.write("environment.json", {"environment": {"SECRET": "s"}})
    return unit.Unit(CONFIG, run)


@pytest.mark.parametrize("state", ["finished", "failed", "stopped"])
def test_the_environment_goes_with_the_end_of_a_run_that_cannot_be_resumed(
    run: Folder, ending: unit.Unit, state: str
) -> None:
    Path(run.file("checkpoints/.begun")).touch()
    ending._end(state, 0, None, "")
    assert run.result() and not os.path.exists(run.file("environment.json"))


def test_a_run_that_can_be_resumed_keeps_its_environment(run: Folder, ending: unit.Unit) -> None:
    Path(run.file("checkpoints/1")).touch()
    ending._end("failed", 1, None, "")
    assert run.result() and (run.read("environment.json") or {})["environment"] == {"SECRET": "s"}


def test_a_run_whose_end_could_not_be_written_keeps_its_environment(
    run: Folder, ending: unit.Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit, "RESULT_TRIES", 1)
    monkeypatch.setattr(unit.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(run, "write", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    ending._end("failed", 1, None, "")
    assert run.result() is None and os.path.exists(run.file("environment.json"))


def test_a_full_file_system_is_said_once_and_ends_nothing(run: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    record = Record(run)
    full = Log(record, run, "x", 0)
    full._path = "/dev/full"
    for _ in range(3):
        full.line(1.0, "text")
        full.flush()
    assert capsys.readouterr().err.count("No space left on device") == 1
    assert [event["event"] for event in run.events()] == ["note"]


def test_a_state_is_told_once_and_again_with_another_reason(run: Folder) -> None:
    record = Record(run)
    for reason in ("", "", "busy", "busy", "unsettled"):
        record.enter("waiting", reason)
    assert [(event["n"], event["reason"]) for event in run.events()] == [(1, ""), (2, "busy"), (3, "unsettled")]
    assert [event["n"] for event in run.events(after=2)] == [3]
    assert (run.read("state.json") or {})["state"] == "waiting"


@pytest.fixture
def replacing(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a file is still said to be away, by its name: by turns not there and stale."""
    left: dict[str, int] = {}

    def away(really: Any, path: Any, *given: Any, **named: Any) -> Any:
        name = os.path.basename(path) if isinstance(path, str) else ""
        if left.get(name, 0) > 0:
            left[name] -= 1
            number = (errno.ENOENT, errno.ESTALE)[left[name] % 2]
            raise OSError(number, os.strerror(number), path)
        return really(path, *given, **named)

    monkeypatch.setattr("builtins.open", functools.partial(away, open))
    monkeypatch.setattr(os, "stat", functools.partial(away, os.stat))
    monkeypatch.setattr(files, "BETWEEN_LOOKS", 0.0)
    return left


def test_what_is_being_replaced_is_looked_for_again(run: Folder, tmp_path: Path, replacing: dict[str, int]) -> None:
    Record(run).enter("running")
    config = replace(CONFIG, efs_mount=str(tmp_path))
    replacing.update({"run.json": 2, "state.json": 2})
    assert Record(run).state["state"] == "running" and run.run()["asked_by"] == "me"
    replacing["run.json"] = 2
    assert placing.existing(config, "r1").id == "r1"
    replacing["run.json"] = 2
    assert survey.problem(run.path, sys.executable, "lo", "127.0.0.1") == ""
    # That there is no result yet is seen at once.
    replacing["result.json"] = 3
    assert run.result() is None and replacing["result.json"] == 2


@pytest.fixture
def nothing_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "is_active", lambda run_id: False)
    monkeypatch.setattr(units, "may_go_on", lambda run_id: False)
    monkeypatch.setattr(showing, "VANISHED", 0.0)
    monkeypatch.setattr(showing, "POLL", 0.01)


def test_following_a_run_that_vanished_ends(run: Folder, nothing_active: None) -> None:
    Record(run).enter("running")
    events = list(showing.followed(run, 0, output=False))
    assert [event["event"] for event in events] == ["state", "end"]
    assert (events[-1]["state"], events[-1]["exit_code"]) == ("lost", 1)
    assert showing.state_of(run) == "lost"
    assert showing.waited(run) == 1


def test_following_shows_what_the_first_worker_prints(run: Folder, nothing_active: None) -> None:
    record = Record(run)
    record.event("plan", processes=[{"node": "deeplearning-worker1", "role": "worker", "rank": 0, "gpus": None}])
    log = Log(record, run, "deeplearning-worker1.worker0", 0)
    log.line(1.0, "hello  world")
    log.close()
    record.event("end", state="finished", exit_code=0, first_failure=None, sentence="")
    events = list(showing.followed(run, 0, output=True))
    assert [event["event"] for event in events] == ["plan", "output", "end"]
    assert events[1]["line"] == "hello  world"


def test_a_run_that_was_not_started_is_only_created(run: Folder, nothing_active: None) -> None:
    assert showing.state_of(run) == "created"


def test_the_end_of_an_older_attempt_is_out_of_the_way_of_a_resumed_one(run: Folder) -> None:
    os.mkdir(run.file("attempts/0"))
    run.write("result.json", {"state": "failed"})
    run.write("state.json", {"state": "failed"})
    Record(run).event("end")
    create.forget_the_end(run)
    assert run.result() is None and run.state() == {} and list(run.events()) == []
    assert sorted(os.listdir(run.file("attempts/0"))) == ["events.jsonl", "result.json"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [("/x/a.py", ["/py", "/x/a.py"]), ("/x/a.sh", ["/bin/bash", "/x/a.sh"]), ("/x/a", ["/x/a"])],
)
def test_scripts_are_started_by_what_they_are(script: str, expected: list[str]) -> None:
    assert attempts.interpreted("/py", script) == expected


def test_ports_are_free_and_differ() -> None:
    ports = survey.free_ports(20, "some-run")
    assert len(set(ports)) == 20 and all(survey.FIRST_PORT <= port < survey.LAST_PORT for port in ports)


def test_the_interface_of_an_address_is_found() -> None:
    assert survey.interface_of("127.0.0.1") == "lo"
    assert survey.interface_of("192.0.2.1") == ""


WRAPPED = """
import os, subprocess, sys
print("to stdout", os.environ["DEEPLEARNING_RANK"], os.environ["SECRET"], sys.argv[1:], flush=True)
print("<b>to stderr</b>\\rprogress", file=sys.stderr, flush=True)
subprocess.Popen(["sleep", "600"])
print("no end", end="", flush=True)
os._exit(3)
"""


def test_a_wrapper_tells_lines_and_the_end_and_leaves_nothing(tmp_path: Path, run: Folder) -> None:
    (tmp_path / "x.py").write_text(WRAPPED)
    request = {**run.run(), "script": str(tmp_path / "x.py"), "python": sys.executable, "script_args": ["{rank} <"]}
    run.write("run.json", {**request, "distribution": "multi_worker_mirrored"})
    run.write("environment.json", {"environment": {"SECRET": "s"}})
    going = started(run)
    going.plan = attempts.plans.made(
        create.options(run.run()), [Node("deeplearning-worker1", "127.0.0.1", ports=(1, 2))]
    )
    going.write_plan()
    program = "import sys, time; time.sleep = lambda s: None; from deeplearning.run import wrapper; "
    program += "sys.exit(wrapper.main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "files/node"), "OMPI_COMM_WORLD_RANK": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program, run.file("attempts/0/plan.json")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 3, done.stderr
    assert "<" not in done.stdout
    told = [json.loads(line) for line in done.stdout.splitlines()]
    lines = [message["line"] for message in told if "line" in message]
    assert lines == ["to stdout 0 s ['0 <']", "<b>to stderr</b>", "progress", "no end"]
    assert (told[-1]["end"], list(told[0])) == (3, ["pid"])
    assert not os.path.exists(f"/proc/{told[0]['pid']}")
