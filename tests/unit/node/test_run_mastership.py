"""A run while its master is replaced: which member list is believed, and which runs continue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deeplearning.contract import atomic_file
from deeplearning.runs import allocation, mastership
from deeplearning.runs.allocation import Allocator
from deeplearning.runs.attempt import AttemptState
from deeplearning.runs.folder import Folder

from tests.unit.node.master_kit import master_of
from tests.unit.node.members_kit import Cluster, cluster_in, instance, replaced
from tests.unit.node.members_kit import Node as MemberNode
from tests.unit.node.runs_kit import send, started


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = cluster_in(tmp_path, monkeypatch)
    monkeypatch.setattr(mastership, "signatures", mastership.SignatureChecks(cluster.aws))
    return cluster


def is_superseded(node: MemberNode) -> bool:
    with node.here():
        return mastership.is_superseded(node.config)


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


def test_a_signed_list_is_believed_by_a_master_that_cannot_ask_aws(cluster: Cluster) -> None:
    old = published_once(cluster)
    replaced(cluster)
    cluster.aws.reachable = False
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


def put_forged(cluster: Cluster, number: int) -> None:
    """Publish a list that no master has signed."""
    cluster.put({**cluster.list, "published_by": instance(number), "generation": 9})


def test_a_refused_list_is_not_checked_with_every_tick(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    master = published_once(cluster)
    connect = Mock(return_value=cluster.aws)
    monkeypatch.setattr(mastership, "AwsClient", connect)
    monkeypatch.setattr(mastership, "signatures", mastership.SignatureChecks())
    now = [1000.0]
    monkeypatch.setattr(mastership.time, "monotonic", lambda: now[0])
    put_forged(cluster, 8)
    cluster.aws.calls.clear()
    for _tick in range(5):
        assert not is_superseded(master)
    assert len(cluster.aws.calls) == 1
    # AWS may allow later what it has refused.
    now[0] += mastership.REFUSED_SECONDS
    assert not is_superseded(master) and len(cluster.aws.calls) == 2
    # Another list is checked at once, by the same connection.
    put_forged(cluster, 7)
    assert not is_superseded(master) and len(cluster.aws.calls) == 3
    assert connect.call_count == 1


def test_a_true_list_after_a_forged_one_is_believed_at_once(cluster: Cluster) -> None:
    old = published_once(cluster)
    true = cluster.list
    put_forged(cluster, 8)
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


# Runs


def allocator(node: MemberNode, report: Callable[[str], None], published: bool = False) -> Allocator:
    run: dict[str, Any] = {"nodes": None, "busy": "wait"}
    folder = Folder("/r1")
    return Allocator(
        node.config, folder, run, False, lambda nodes: None, report, lambda: False, 0.0, published=published
    )


def test_a_new_master_waits_until_it_has_published_and_an_old_one_leaves_the_run_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation, "LIST_PAUSE_SECONDS", 0.0)
    published_once(cluster)
    cluster.aws.end(1)
    new = cluster.master(8)

    def replace_new() -> None:
        cluster.aws.end(8)
        cluster.master(9).publish()

    # The list is its predecessor's, then its own, then its successor's. It has no copy of any.
    events: Iterator[Callable[[], Any]] = iter([lambda: None, new.publish, replace_new])
    with new.here(), pytest.raises(mastership.Superseded):
        allocator(new, lambda reason: next(events)()).wait()
    assert not list(events)


@pytest.mark.parametrize("knows", [False, True], ids=["its own list", "a list without it"])
def test_a_master_that_was_suspended_through_its_replacement_leaves_the_run_alone_at_once(
    cluster: Cluster, knows: bool
) -> None:
    old = published_once(cluster)
    replaced(cluster)
    if knows:
        old.apply()
    with old.here(), pytest.raises(mastership.Superseded):
        allocator(old, pytest.fail, published=knows).wait()


def test_a_master_that_is_replaced_during_a_run_writes_nothing_more_and_stops_what_runs_here(
    cluster: Cluster, run: Folder
) -> None:
    old = published_once(cluster)
    attempt = started(run, config=cluster.config)
    send(attempt, (1, {"time": 1.0, "line": "not written yet"}))
    replaced(cluster)
    Path(run.file("metrics/rank0.jsonl")).write_text('{"epoch": 1}\n')
    with old.here():
        attempt.tick()
    send(attempt, (1, {"time": 2.0, "line": "late"}), (1, {"time": 2.0, "end": 143}))
    attempt.handle_mpirun_output(b"a process has ended\n")
    for log in attempt.processes.logs:
        log.close()
    assert attempt.state is AttemptState.STOPPING and list(run.events()) == []
    assert [file.read_text() for file in Path(run.file("logs")).iterdir()] == [""]


@pytest.mark.parametrize(
    ("step", "silent", "nodes", "otherwise"),
    [("survey", False, None, "finished"), ("survey", True, None, "failed"), ("list-units", False, 9, "failed")],
    ids=["all answer", "one is silent", "too few nodes"],
)
def test_a_master_that_is_replaced_while_it_asks_neither_starts_the_run_nor_ends_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    step: str,
    silent: bool,
    nodes: int | None,
    otherwise: str,
) -> None:
    monkeypatch.setattr(allocation, "SHORTEST_WAIT", 0.0)
    cluster = cluster_in(tmp_path, monkeypatch)
    master = master_of(cluster, 2)
    own, theirs = cluster.path.read_text(), tmp_path / "theirs.json"
    replaced(cluster)
    cluster.path.rename(theirs)
    cluster.path.write_text(own)
    run = master.create_run(nodes=nodes)
    if silent:
        master.silence("deeplearning-worker2")
    master.before(step, f"cp {theirs} {cluster.path}")
    master.supervise()
    assert run.result() is None and run.attempts() == 0
    assert {event["state"] for event in run.events()} == {"waiting"}
    assert "another machine is the master now" in capsys.readouterr().err
    # Had it not been replaced, the run would have ended.
    (tmp_path / f"before-{step}").unlink()
    cluster.path.write_text(own)
    master.supervise()
    assert (run.result() or {})["state"] == otherwise
