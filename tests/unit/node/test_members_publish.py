"""What the master publishes, when, and when it must not."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from botocore.exceptions import IncompleteReadError
from deeplearning.contract.errors import UserError
from deeplearning.contract.names import RUN_TAG
from deeplearning.members import check_times, cloud, publishing, ranks, unchanged
from deeplearning.members.publishing import PublishOutcome
from deeplearning.members.ranks import Instance
from urllib3.exceptions import ProtocolError

from tests.unit.node.members_kit import (
    JOB_FLOW,
    MASTER_ROLE,
    WORKER_ROLE,
    Cluster,
    Node,
    cluster_in,
    file_version,
    instance,
    usage_of,
)
from tests.unit.node.users_kit import as_nobody, open_folder

COUNTED = 1_000_000
"""No count of changes comes to that; the seconds since 1970 do."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return cluster_in(tmp_path, monkeypatch)


def machine(name: str, launched: str = "1", tag: str = "", master: bool = False) -> Instance:
    return Instance(name, master, "10.0.0.1", "a", "t.x", launched, tag)


@pytest.mark.parametrize(
    ("machines", "listed", "expected"),
    [
        ([machine("m", master=True)], {}, {"m": 1}),
        ([machine("b", "2"), machine("a", "3"), machine("c", "1")], {}, {"c": 2, "b": 3, "a": 4}),
        ([machine("new"), machine("old", tag="3")], {}, {"old": 3, "new": 2}),
        ([machine("a", tag="2"), machine("b", tag="2")], {}, {"a": 2, "b": 3}),
        ([machine("a", "1", "2"), machine("b", "2", "2")], {"b": 2}, {"b": 2, "a": 3}),
        ([machine("a", tag="4")], {"a": 2}, {"a": 2}),
        ([machine("m", tag="7", master=True), machine("a", tag="1")], {}, {"m": 1, "a": 2}),
        ([machine("a", tag="{{ x }}"), machine("b", tag="-3"), machine("c", tag="٣")], {}, {"a": 2, "b": 3, "c": 4}),
        ([machine("new")], {"gone": 2}, {"new": 2}),
    ],
    ids=[
        "the master is 1",
        "new ones in the order of their launch",
        "a new one takes the lowest free rank",
        "two with one tag",
        "the list counts for more than a tag",
        "a tag that was changed is put right",
        "1 is the master's alone",
        "what is no rank",
        "a replaced one's rank is free",
    ],
)
def test_ranks(machines: list[Instance], listed: dict[str, int], expected: dict[str, int]) -> None:
    assert ranks.assign(machines, listed) == expected


def test_a_new_cluster_begins_with_generation_1(cluster: Cluster) -> None:
    master = cluster.master()
    cluster.workers(2, 3)
    assert master.publish() == PublishOutcome(1, True, [])
    listed = cluster.list
    assert [(member["rank"], member["instance_id"]) for member in listed["members"]] == [
        (1, instance(1)),
        (2, instance(2)),
        (3, instance(3)),
    ]
    assert (listed["generation"], listed["desired"], listed["published_by"]) == (1, 3, instance(1))
    assert listed["members"][0]["aliases"] == ["deeplearning-worker1", "deeplearning-master"]
    assert [cluster.aws.tag_of(number) for number in (1, 2, 3)] == ["1", "2", "3"]
    assert [item.stat().st_mode & 0o777 for item in (cluster.path, cluster.path.parent)] == [0o644, 0o755]


def test_nothing_is_written_when_nothing_has_changed(cluster: Cluster) -> None:
    master = cluster.master()
    cluster.workers(2)
    master.publish()
    master.apply()
    before = file_version(cluster.path)
    cluster.aws.calls.clear()
    assert master.publish() == PublishOutcome(1, False, [])
    assert file_version(cluster.path) == before
    assert sorted(os.listdir(cluster.path.parent)) == ["check", "members.json"]
    assert sorted(cluster.aws.calls) == ["describe_auto_scaling_groups", "describe_instances", "list_objects_v2"]


def test_a_replaced_worker_gets_the_rank_that_became_free(cluster: Cluster) -> None:
    master = cluster.master()
    cluster.workers(2, 3)
    master.publish()
    cluster.aws.end(2)
    cluster.workers(9)
    assert master.publish().generation == 2
    assert cluster.addresses()["deeplearning-worker2"] == "10.0.0.13"
    assert cluster.aws.tag_of(9) == "2"


def test_two_machines_that_boot_for_one_rank_get_one_each(cluster: Cluster) -> None:
    """Only one of them gets the free rank, also if both have its tag."""
    master = cluster.master()
    cluster.workers(2, 3)
    master.publish()
    cluster.aws.end(2)
    for number in (8, 9):
        cluster.aws.add(number, tag="2")
        cluster.aws.report(number)
    master.publish()
    assert [(member["rank"], member["instance_id"]) for member in cluster.list["members"]] == [
        *((1, instance(1)), (2, instance(8)), (3, instance(3)), (4, instance(9)))
    ]
    assert [cluster.aws.tag_of(number) for number in (8, 3, 9)] == ["2", "3", "4"]


def test_a_machine_has_a_rank_before_it_has_reported_and_is_listed_after(cluster: Cluster) -> None:
    master = cluster.master()
    cluster.aws.add(2)
    master.publish()
    assert cluster.aws.tag_of(2) == "2"
    assert list(cluster.addresses()) == ["deeplearning-worker1"] and cluster.list["desired"] == 2
    cluster.aws.report(2)
    assert master.publish().generation == 2
    assert list(cluster.addresses()) == ["deeplearning-worker1", "deeplearning-worker2"]


@pytest.mark.parametrize("state", ["configuring", "failed"])
def test_a_machine_that_is_not_configured_is_not_listed(cluster: Cluster, state: str) -> None:
    master = cluster.master()
    cluster.aws.add(2)
    cluster.aws.report(2, state=state, step="efs_mount", log=["no route to host"])
    outcome = master.publish()
    assert [member["rank"] for member in cluster.list["members"]] == [1]
    assert not outcome.left_out
    cluster.aws.report(2)
    assert master.publish().changed
    assert [member["rank"] for member in cluster.list["members"]] == [1, 2]


@pytest.mark.parametrize("state", ["Pending", "Terminating:Wait", "Standby"])
def test_only_what_is_in_service_is_a_member(cluster: Cluster, state: str) -> None:
    master = cluster.master()
    cluster.workers(2)
    cluster.aws.states[instance(2)] = state
    master.publish()
    assert list(cluster.addresses()) == ["deeplearning-worker1"]


def test_a_master_that_does_not_train_has_no_slots(cluster: Cluster) -> None:
    cluster.config = replace(cluster.config, master_trains=False)
    master = cluster.master()
    cluster.workers(2)
    master.publish()
    assert [member["slots"] for member in cluster.list["members"]] == [0, 8]


# Reports


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"private_ip": "10.0.0.99"}, "unknown keys: private_ip"),
        ({"instance_id": instance(3)}, f"is about {instance(3)}"),
        ({"schema": 2}, "schema 2"),
        ({"gpus": "8; rm -rf /"}, "gpus is"),
        ({"gpus": True}, "gpus is True"),
        ({"gpus": 65}, "gpus is 65, not a whole number from 0 to 64"),
        ({"gpus": 10**12}, "gpus is 1000000000000"),
        ({"state": "root"}, "not one of ready, faulty, held"),
        ({"step": "a\nb"}, "not up to 120 printable characters"),
        ({"log": ["x"] * 21}, "log is"),
        ({"log": ["\x1b[2J"]}, "not up to 300 printable characters"),
        ({"bundle": "latest"}, "bundle is 'latest', not a SHA-256"),
        ({"host_keys": ["ssh-ed25519 AAAA\n* ssh-ed25519 BBBB"]}, "not a host's public key"),
        ({"host_keys": []}, "host_keys"),
    ],
)
def test_a_malformed_report_leaves_out_only_its_machine(
    cluster: Cluster, changed: dict[str, object], words: str
) -> None:
    master = cluster.master()
    cluster.workers(2, 3)
    cluster.aws.report(2, **changed)
    outcome = master.publish()
    assert words in " ".join(outcome.left_out)
    assert list(cluster.addresses()) == ["deeplearning-worker1", "deeplearning-worker3"]


def test_a_report_of_another_schema_leaves_its_machine_out(cluster: Cluster) -> None:
    master = cluster.master()
    cluster.workers(2, 3)
    cluster.aws.objects[cluster.aws.report(2)] = b"[" * 60_000
    assert "is no JSON" in " ".join(master.publish().left_out)
    assert list(cluster.addresses()) == ["deeplearning-worker1", "deeplearning-worker3"]


@pytest.mark.parametrize(
    "error", [IncompleteReadError(actual_bytes=1, expected_bytes=9), ProtocolError("reset"), TimeoutError("slow")]
)
def test_an_interrupted_report_leaves_no_machine_out(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    master = cluster.master()
    cluster.workers(2)
    master.publish()
    before = cluster.list
    cluster.aws.report(2, state="faulty")

    body = Mock()
    body.read.side_effect = error
    monkeypatch.setattr(cluster.aws, "call", lambda *_given, **_named: {"Body": body})
    with pytest.raises(UserError, match=r"report.json broke off while it was read"):
        master.publish()
    assert cluster.list == before


def test_a_machine_that_fills_the_bucket_is_reported(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "MAX_OBJECTS", 4)
    master = cluster.master()
    cluster.workers(2)
    master.publish()
    before = cluster.list
    for number in range(2):
        cluster.aws.objects[f"members/{WORKER_ROLE}:{instance(2)}/{number}"] = b""
    # So many are no reason for it.
    master.publish()
    for number in (2, 3):
        cluster.aws.objects[f"members/{WORKER_ROLE}:{instance(2)}/{number}"] = b""
    cluster.workers(3)
    with pytest.raises(UserError, match=f"more than 4 objects, 4 of the first ones below {WORKER_ROLE}:{instance(2)}/"):
        master.publish()
    assert cluster.list == before and cluster.aws.listed <= 5


def test_a_report_under_the_workers_role_does_not_count_for_the_master(cluster: Cluster) -> None:
    master = cluster.master()
    report = cluster.aws.objects[f"members/{MASTER_ROLE}:{instance(1)}/report.json"]
    forged = json.dumps({**json.loads(report), "gpus": 1}).encode()
    cluster.aws.objects[f"members/{WORKER_ROLE}:{instance(1)}/report.json"] = forged
    master.publish()
    assert cluster.list["members"][0]["gpus"] == 8


def test_reports_are_read_once_and_again_when_they_have_changed(cluster: Cluster) -> None:
    master = cluster.master()
    cluster.workers(2, 3)
    master.publish()
    master.apply()
    cluster.aws.report(3, state="faulty")
    cluster.aws.calls.clear()
    assert master.publish().generation == 2
    assert cluster.aws.calls.count("get_object") == 1
    assert [member["state"] for member in cluster.list["members"]] == ["ready", "ready", "faulty"]


def test_a_master_that_has_not_reported_publishes_nothing(cluster: Cluster) -> None:
    cluster.aws.add(1, master=True)
    with pytest.raises(UserError, match="has not reported itself"):
        cluster.node(1).publish()
    assert not cluster.path.exists()


# Fencing


def replaced(cluster: Cluster, number: int = 8) -> None:
    cluster.aws.end(1)
    cluster.aws.add(number, master=True)


def test_a_former_master_does_not_publish(cluster: Cluster) -> None:
    old = cluster.master()
    cluster.workers(2)
    old.publish()
    before = cluster.list
    replaced(cluster)
    with pytest.raises(UserError, match=f"is not the master in service of demo \\({instance(8)}\\)"):
        old.publish()
    assert cluster.list == before


def test_a_former_master_suspended_before_the_check_is_refused(cluster: Cluster) -> None:
    old = cluster.master()
    # The first look at the groups is before all, the second just before the renaming.
    cluster.aws.before["describe_auto_scaling_groups"] = [lambda: None, lambda: replaced(cluster)]
    with pytest.raises(UserError, match="is not the master in service"):
        old.publish()
    assert not cluster.path.exists()


def test_a_former_master_suspended_before_the_rename_has_nothing_to_rename(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = cluster.master()
    cluster.workers(2)
    old.publish()
    cluster.aws.add(3)
    cluster.aws.report(3)
    rename = os.rename

    def sleep_and_rename(source: str, target: str) -> None:
        if target == str(cluster.path):
            monkeypatch.setattr(os, "rename", rename)
            replaced(cluster)
            new = cluster.node(8)
            cluster.aws.report(8, host_keys=[new.public_key])
            assert new.publish().generation > COUNTED
        rename(source, target)

    monkeypatch.setattr(os, "rename", sleep_and_rename)
    with pytest.raises(UserError, match="another master took over"):
        old.publish()
    assert cluster.list["published_by"] == instance(8)
    assert sorted(os.listdir(cluster.path.parent)) == ["check", "members.json"]


def test_a_worker_does_not_publish(cluster: Cluster) -> None:
    cluster.config = replace(cluster.config, role="worker")
    with pytest.raises(UserError, match="only the master publishes, and this node is a worker"):
        cluster.node(2).publish()
    assert not cluster.aws.calls


def test_no_list_is_published_while_two_masters_are_in_service(cluster: Cluster) -> None:
    master = cluster.master()
    cluster.aws.add(8, master=True)
    with pytest.raises(UserError, match="is not the master in service"):
        master.publish()


# Generations


def test_a_new_master_is_rank_1_and_continues_with_a_generation_from_the_time(cluster: Cluster) -> None:
    old = cluster.master()
    cluster.workers(2)
    old.publish()
    cluster.aws.end(1)
    new = cluster.master(8)
    first = new.publish().generation
    assert first > COUNTED
    assert cluster.addresses() == {"deeplearning-worker1": "10.0.0.12", "deeplearning-worker2": "10.0.0.6"}
    cluster.workers(3)
    assert new.publish().generation > first


def test_an_older_list_put_back_before_a_new_master_does_not_lower_its_generations(cluster: Cluster) -> None:
    old, worker = cluster.master(), cluster.node(2)
    cluster.workers(2)
    old.publish()
    first = cluster.list
    for number in (3, 4):
        cluster.workers(number)
        old.publish()
    worker.apply()
    cluster.aws.end(1)
    cluster.put(first)
    new = cluster.master(8)
    new.publish()
    assert worker.apply().changed


def test_generations_rise_although_the_new_masters_clock_is_behind(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.master().publish()
    cluster.aws.end(1)
    second = cluster.master(8).publish().generation
    cluster.aws.end(8)
    monkeypatch.setattr(time, "time", lambda: second - 60.0)
    assert cluster.master(9).publish().generation == second + 1


def test_a_new_cluster_on_an_old_file_system_begins_with_generation_1(cluster: Cluster) -> None:
    old = cluster.master()
    old.publish()
    cluster.workers(2)
    old.publish()
    assert cluster.list["generation"] == 2
    cluster.aws.end(1)
    cluster.aws.objects.clear()
    cluster.config = replace(cluster.config, cluster_id="sg-fedcba98765432100", master_role_id="AROANEW")
    new = cluster.master(8)
    cluster.aws.objects[f"members/AROANEW:{instance(8)}/report.json"] = cluster.aws.objects.pop(
        f"members/{MASTER_ROLE}:{instance(8)}/report.json"
    )
    assert new.publish().generation == 1


def test_a_forged_list_is_replaced_by_one_that_nodes_accept(cluster: Cluster) -> None:
    master = cluster.master()
    master.publish()
    master.apply()
    cluster.put({**cluster.list, "generation": 1000})
    assert master.publish().generation == 2


def test_an_old_list_put_back_is_replaced_too(cluster: Cluster) -> None:
    master = cluster.master()
    master.publish()
    old = cluster.list
    cluster.workers(2)
    master.publish()
    cluster.aws.end(2)
    master.publish()
    master.apply()
    cluster.aws.desired["demo-workers"] = 0
    cluster.put(old)
    assert master.publish() == PublishOutcome(4, True, [])


def test_a_deleted_list_is_published_again_with_the_same_ranks(cluster: Cluster) -> None:
    master = cluster.master()
    cluster.workers(2, 3)
    master.publish()
    master.apply()
    before = cluster.list
    cluster.path.unlink()
    assert master.publish() == PublishOutcome(2, True, [])
    assert cluster.list["members"] == before["members"]


def test_a_new_master_without_a_list_begins_above_all_earlier_generations(cluster: Cluster) -> None:
    old = cluster.master()
    for number in (2, 3):
        cluster.workers(number)
        old.publish()
    cluster.path.unlink()
    cluster.aws.end(1)
    assert cluster.master(8).publish().generation > COUNTED


# The shared file system


def test_nothing_is_published_without_a_mount(cluster: Cluster) -> None:
    master = cluster.master()
    (master.root / "etc/mounts").write_text("")
    with pytest.raises(UserError, match="nothing is mounted at"):
        master.publish()


def test_a_folder_that_others_may_write_is_not_published_in(cluster: Cluster) -> None:
    master = cluster.master()
    (cluster.path.parent.parent / "theirs").mkdir(parents=True)
    cluster.path.parent.parent.chmod(0o777)
    with pytest.raises(UserError, match="has mode 0777, so other users can put links and files into it"):
        master.publish()


def test_a_link_in_place_of_the_list_is_replaced_and_its_target_stays(cluster: Cluster, tmp_path: Path) -> None:
    master = cluster.master()
    master.publish()
    cluster.path.unlink()
    (tmp_path / "victim").write_text("mine")
    cluster.path.symlink_to(tmp_path / "victim")
    assert master.publish().changed
    assert not cluster.path.is_symlink() and (tmp_path / "victim").read_text() == "mine"


def test_a_folder_in_place_of_the_list_is_reported(cluster: Cluster) -> None:
    master = cluster.master()
    master.publish()
    cluster.path.unlink()
    cluster.path.mkdir()
    with pytest.raises(UserError, match=r"cannot be published .*members.json"):
        master.publish()


def test_a_denied_call_is_reported_and_nothing_is_published(cluster: Cluster) -> None:
    master = cluster.master()
    cluster.aws.denied = {"create_tags"}
    with pytest.raises(UserError, match="not allowed create_tags"):
        master.publish()
    assert not cluster.path.exists()


def test_nothing_is_signed_with_a_key_that_was_never_reported(cluster: Cluster) -> None:
    master = cluster.master()
    master.publish()
    master.key.unlink()
    master.key.with_suffix(".pub").unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(master.key)], check=True)
    cluster.workers(2)
    with pytest.raises(UserError, match="has not reported its new host key"):
        master.publish()


# What runs use


def test_the_nodes_that_runs_use_are_tagged_and_no_others(cluster: Cluster) -> None:
    master = cluster.master()
    cluster.workers(2, 3, 4)
    master.publish(["deeplearning-worker1", "deeplearning-worker3"])
    assert cluster.aws.used() == {1: "run1", 3: "run1"}
    master.publish(["deeplearning-worker3", "deeplearning-worker4", "deeplearning-worker9"])
    assert cluster.aws.used() == {3: "run1", 4: "run1"}
    cluster.aws.calls.clear()
    master.publish(["deeplearning-worker3", "deeplearning-worker4"])
    assert "create_tags" not in cluster.aws.calls
    master.publish()
    assert cluster.aws.used() == {}


def test_a_machine_without_a_run_gets_no_tag_of_one(cluster: Cluster) -> None:
    master = cluster.master()
    master.publish()
    assert RUN_TAG not in {tag["Key"] for tag in cluster.aws.instances[instance(1)]["Tags"]}


# EMR


@pytest.fixture
def emr(cluster: Cluster) -> Cluster:
    cluster.aws.emr, cluster.aws.idle_timeout = True, 3600
    cluster.config = replace(cluster.config, job_flow=JOB_FLOW, emr_idle_seconds=3600)
    return cluster


def test_the_members_of_an_emr_cluster_are_its_running_instances(emr: Cluster) -> None:
    master = emr.master()
    emr.workers(2, 3)
    emr.aws.states[instance(3)] = "Pending"
    assert master.publish().generation == 1
    assert (list(emr.addresses()), emr.list["desired"]) == (["deeplearning-worker1", "deeplearning-worker2"], 3)
    emr.aws.states[instance(3)] = "InService"
    # All nodes have the master's role, but that does not make them former masters.
    assert master.publish().generation == 2
    assert "describe_auto_scaling_groups" not in emr.aws.calls


def test_a_core_node_does_not_publish(emr: Cluster) -> None:
    emr.master()
    emr.workers(2)
    with pytest.raises(UserError, match="is not the master in service"):
        emr.node(2).publish()


def test_runs_suspend_the_auto_termination_of_emr(emr: Cluster) -> None:
    master = emr.master()
    emr.workers(2)
    for in_use, timeout in (([], 3600), (["deeplearning-worker2"], 0), (["deeplearning-worker2"], 0), ([], 3600)):
        master.publish(in_use)
        assert emr.aws.idle_timeout == timeout
    emr.aws.idle_timeout = 60
    master.publish()
    assert emr.aws.idle_timeout == 3600
    writes = [call for call in emr.aws.calls if call.endswith("_auto_termination_policy") and call[:3] != "get"]
    assert len(writes) == 3 and not emr.aws.used()


def test_a_cluster_that_never_ends_by_itself_has_no_policy_to_look_after(emr: Cluster) -> None:
    emr.config = replace(emr.config, emr_idle_seconds=0)
    master = emr.master()
    master.publish()
    assert not [call for call in emr.aws.calls if "policy" in call]


# When the master checks


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time, which a test sets."""
    times = [1000.0]
    monkeypatch.setattr(check_times, "time", Mock(monotonic=lambda: times[0]))
    yield times


def tick(master: Node, in_use: Sequence[str] = ()) -> list[str]:
    """Run a tick of the publish timer as the command does, and the apply timer. Return the calls."""
    master.aws.calls.clear()
    usage = usage_of(in_use)
    with master.here():
        if check_times.should_check() and not publishing.is_quiet(master.config, master.aws, lambda: usage):
            publishing.publish(master.config, master.aws, lambda: usage)
        calls = list(master.aws.calls)
        if unchanged.is_unchanged():
            return calls
    master.apply()
    return calls


@pytest.mark.parametrize("workers", [2, 1500])
def test_a_quiet_cluster_makes_few_calls_whatever_its_size(cluster: Cluster, clock: list[float], workers: int) -> None:
    master = cluster.master()
    cluster.workers(*range(2, workers + 2))
    tick(master)
    count, minutes, further_pages = 0, 10, workers // 1000
    for _ in range(minutes * 12):
        clock[0] += 5
        calls = tick(master)
        # Only a full check reads all machines and reports.
        count += len(calls) + (2 * further_pages if "list_objects_v2" in calls else 0)
        if check_times.is_due("end"):
            # The scheduled end is read with one call.
            check_times.record_end_check()
            count += 1
    assert 0 < count / minutes <= 6


def test_a_machine_that_reports_is_a_member_at_the_next_tick(cluster: Cluster, clock: list[float]) -> None:
    master, late = cluster.master(), cluster.node(3)
    cluster.workers(2)
    tick(master)
    clock[0] += 5
    assert tick(master) == []
    cluster.workers(3)
    cluster.aws.states[instance(3)] = "Pending:Wait"
    with late.here():
        check_times.request_check(cluster.config.efs_mount, "demo", instance(3))
    clock[0] += 5
    assert "list_objects_v2" in tick(master) and len(cluster.list["members"]) == 2
    # It is in service some seconds after its report.
    clock[0] += 5
    assert tick(master) == ["describe_auto_scaling_groups", "describe_instances"]
    cluster.aws.states[instance(3)] = "InService"
    clock[0] += 5
    tick(master)
    assert len(cluster.list["members"]) == 3


def test_what_ended_or_changed_is_found_by_a_quick_check(cluster: Cluster, clock: list[float]) -> None:
    master = cluster.master()
    cluster.workers(2, 3, 4)
    tick(master)
    cluster.aws.instances[instance(4)]["State"] = {"Name": "terminated"}
    clock[0] += check_times.QUICK_SECONDS
    tick(master)
    assert len(cluster.list["members"]) == 3
    cluster.aws.end(4)
    tick(master)
    clock[0] += check_times.QUICK_SECONDS
    tick(master, ["deeplearning-worker2"])
    assert cluster.aws.used() == {2: "run1"}
    cluster.path.unlink()
    clock[0] += check_times.QUICK_SECONDS
    tick(master, ["deeplearning-worker2"])
    assert len(cluster.list["members"]) == 3


def test_an_error_is_followed_by_a_full_check_soon(cluster: Cluster, clock: list[float]) -> None:
    master = cluster.master()
    cluster.aws.denied.add("list_objects_v2")
    with pytest.raises(UserError, match="list_objects_v2"):
        tick(master)
    cluster.aws.denied.clear()
    clock[0] += 5
    with master.here():
        assert not check_times.should_check()
    clock[0] += check_times.UNSETTLED_SECONDS
    tick(master)
    assert cluster.list["generation"] == 1


def test_what_is_no_request_keeps_nothing_busy(cluster: Cluster, clock: list[float]) -> None:
    master = cluster.master()
    tick(master)
    requests = cluster.path.parent / "check"
    (requests / "No request").touch()
    clock[0] += 5
    assert tick(master) == [] and (requests / "No request").exists()
    (requests / "folder").mkdir()
    assert tick(master) == ["describe_auto_scaling_groups", "describe_instances"]


REQUESTS = ".deeplearning/demo/check"


@pytest.mark.root
@pytest.mark.parametrize("foreign", [".deeplearning", ".deeplearning/demo", REQUESTS])
@pytest.mark.parametrize("kind", ["link", "folder"])
def test_root_removes_nothing_where_another_user_prepared_the_folder_of_requests(
    foreign: str, kind: str, cluster: Cluster, tmp_path: Path
) -> None:
    """On a file system without any of our folders: its root is open to all, like /tmp."""
    with open_folder() as mount:
        master = cluster.master()
        master.config = replace(cluster.config, efs_mount=str(mount))
        victim = tmp_path / "etc"
        above, name = os.path.split(foreign)
        (mount / above).mkdir(parents=True, exist_ok=True)
        (mount / above).chmod(0o777)
        end = REQUESTS.removeprefix(foreign).strip("/")
        target = victim if kind == "link" else mount / foreign
        if kind == "link":
            victim.joinpath(end).mkdir(parents=True)
            as_nobody(lambda: (mount / above / name).symlink_to(victim))
        else:
            as_nobody(lambda: (mount / foreign).joinpath(end).mkdir(parents=True))
        (target / end / "shadow").write_text("root")
        with master.here():
            check_times.record_full_check(str(mount), "demo", "", True)
            check_times.record_end_check()
            assert not check_times.should_check()
            assert not check_times.take_requests(str(mount), "demo")
            check_times.request_check(str(mount), "demo", instance(3))
        assert os.listdir(target / end) == ["shadow"]
        (mount / above).chmod(0o755)
