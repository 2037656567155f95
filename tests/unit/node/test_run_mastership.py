"""A run while its master is replaced: which member list is believed, and which runs continue."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deeplearning.aws import Unavailable
from deeplearning.contract import atomic_file
from deeplearning.contract.errors import UserError
from deeplearning.members import published_list
from deeplearning.members.member_list import Members
from deeplearning.run import allocation, mastership, unit
from deeplearning.run.allocation import Allocator
from deeplearning.run.attempt import AttemptState
from deeplearning.run.folder import Folder
from deeplearning.run.survey import NodeSurvey

from tests.unit.node.members_kit import Cluster, cluster_in, instance
from tests.unit.node.members_kit import Node as MemberNode
from tests.unit.node.runs_kit import CONFIG, member, members, send, started


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the list is published; this machine is i-00000001. Each list counts as one that is signed."""
    for module in (mastership, allocation):
        monkeypatch.setattr(module, "instance_id", lambda: "i-00000001")
    monkeypatch.setattr(mastership.applying, "checked", lambda content, config, connect: None)
    monkeypatch.setattr(published_list, "OWNER", os.getuid())
    monkeypatch.setattr(atomic_file, "RETRY_SECONDS", 0.0)
    file = tmp_path / ".deeplearning/c/members.json"
    file.parent.mkdir(parents=True)
    return file


def published_by(file: Path, instance: str) -> None:
    file.write_text(json.dumps({"cluster_id": "sg-1", "published_by": instance}))


def allocator(efs: Path, reasons: list[str], published: bool = False) -> Allocator:
    run: dict[str, Any] = {"nodes": None, "busy": "wait"}
    config, folder = replace(CONFIG, efs_mount=str(efs)), Folder("/r1")
    return Allocator(config, folder, run, False, lambda nodes: None, reasons.append, lambda: False, 0.0, published)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = cluster_in(tmp_path, monkeypatch)
    monkeypatch.setattr(mastership, "AwsClient", lambda region: cluster.aws)
    monkeypatch.setattr(mastership, "signatures", mastership.SignatureChecks())
    return cluster


def is_superseded(node: MemberNode) -> bool:
    with node.here():
        return mastership.is_superseded(node.config)


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
def test_a_list_of_another_master_supersedes_this_one(
    cluster: Cluster, may_write: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = published_once(cluster)
    assert not is_superseded(old)
    new = replaced(cluster)
    if not may_write:
        # Runs belong to the cluster's user, who cannot write down keys.
        monkeypatch.setattr(atomic_file, "write_if_changed", Mock(side_effect=PermissionError))
    assert is_superseded(old) and not is_superseded(new)


def test_a_signed_list_is_believed_by_a_master_that_cannot_ask_aws(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = published_once(cluster)
    replaced(cluster)
    monkeypatch.setattr(cluster.aws, "call", Mock(side_effect=Unavailable("AWS does not answer.")))
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
def test_a_run_continues_when_a_list_is_forged(
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
    attempt = started(run, config=cluster.config)
    with master.here():
        attempt.tick()
    assert not attempt.superseded and attempt.state is not AttemptState.STOPPING


def forged_by(cluster: Cluster, number: int) -> Mock:
    """Publish a list that no master has signed, and count the calls to AWS from here on."""
    cluster.put({**cluster.list, "published_by": instance(number), "generation": 9})
    return Mock(side_effect=cluster.aws.call)


def test_a_refused_list_is_not_checked_with_every_tick(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    master = published_once(cluster)
    connect = Mock(return_value=cluster.aws)
    monkeypatch.setattr(mastership, "AwsClient", connect)
    now = [1000.0]
    monkeypatch.setattr(mastership.time, "monotonic", lambda: now[0])
    calls = forged_by(cluster, 8)
    monkeypatch.setattr(cluster.aws, "call", calls)
    for _tick in range(5):
        assert not is_superseded(master)
    assert calls.call_count == 1
    # AWS may allow later what it has refused.
    now[0] += mastership.REFUSED_SECONDS
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


def test_a_run_continues_when_a_former_masters_list_is_put_back(cluster: Cluster) -> None:
    published_once(cluster)
    former = cluster.list
    new = replaced(cluster)
    new.apply()
    cluster.put(former)
    assert not is_superseded(new)


def test_a_new_master_waits_until_it_has_published_and_an_old_one_leaves_the_run_alone(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[str] = []
    monkeypatch.setattr(allocation, "read_applied", unlisted)
    publishers = iter(["i-00000009", "i-00000001", "i-00000009"])
    monkeypatch.setattr(allocation.time, "sleep", lambda seconds: published_by(published, next(publishers)))
    published_by(published, "i-00000009")
    with pytest.raises(mastership.Superseded):
        allocator(tmp_path, reasons).wait()
    assert len(reasons) == 3 and not list(publishers)


def test_a_master_that_was_suspended_through_its_replacement_leaves_the_run_alone_at_once(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published_by(published, "i-00000009")
    reasons: list[str] = []
    # Its own copy is still the list that it published, or by now the one that has it no more.
    for published_before, applied in ((False, members(2)), (True, None)):
        monkeypatch.setattr(allocation, "read_applied", lambda applied=applied: applied or unlisted())
        monkeypatch.setattr(allocation, "this_member", lambda listed: None)
        with pytest.raises(mastership.Superseded):
            allocator(tmp_path, reasons, published_before).wait()
    assert reasons == []


def unlisted() -> Members:
    raise UserError("this node has no member list yet")


def test_a_master_that_is_replaced_during_a_run_writes_nothing_more_and_stops_what_runs_here(
    run: Folder, published: Path, tmp_path: Path
) -> None:
    attempt = started(run, config=replace(CONFIG, efs_mount=str(tmp_path)))
    send(attempt, (1, {"time": 1.0, "line": "not written yet"}))
    published_by(published, "i-00000009")
    Path(run.file("metrics/rank0.jsonl")).write_text('{"epoch": 1}\n')
    attempt.tick()
    send(attempt, (1, {"time": 2.0, "line": "late"}), (1, {"time": 2.0, "end": 143}))
    attempt.handle_mpirun_output(b"a process has ended\n")
    for log in attempt.processes.logs:
        log.close()
    assert attempt.state is AttemptState.STOPPING and list(run.events()) == []
    assert [file.read_text() for file in Path(run.file("logs")).iterdir()] == [""]


def test_a_master_that_is_replaced_during_a_survey_neither_starts_the_run_nor_ends_it(
    run: Folder, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def surveyed(*_unused: Any) -> list[NodeSurvey]:
        published_by(published, "i-00000009")
        return [NodeSurvey(one, problem=f"{one.alias} does not answer within 8 s.") for one in members(2).members]

    published_by(published, "i-00000001")
    monkeypatch.setattr(allocation, "read_applied", lambda: members(2))
    monkeypatch.setattr(allocation, "this_member", lambda listed: member(1))
    monkeypatch.setattr(allocation, "survey_nodes", surveyed)
    monkeypatch.setattr(unit.signal, "signal", lambda *_unused: None)
    monkeypatch.setattr(allocation, "nodes_in_use", lambda config, except_run: {})
    monkeypatch.setattr(allocation, "runs_root", lambda config: tmp_path)
    unit.Unit(replace(CONFIG, efs_mount=str(tmp_path)), run).supervise()
    assert run.result() is None and run.attempts() == 0
    assert "another machine is the master now" in capsys.readouterr().err

    # No other error of a replaced master ends the run either.
    monkeypatch.setattr(unit.Allocator, "wait", lambda self: unlisted())
    unit.Unit(replace(CONFIG, efs_mount=str(tmp_path)), run).supervise()
    assert run.result() is None
