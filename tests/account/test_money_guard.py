"""The end of the machines that AWS itself brings about: what site.yml schedules, and what the master may do to it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.scheduled_end import IDLE, SETUP, once
from botocore.exceptions import ClientError
from deeplearning.aws import AwsClient
from deeplearning.upkeep import money_guard

from tests.account.booting import nodes_of
from tests.account.fleet import wait_until
from tests.account.kit import CLOUD_HALF, REGION, account_in, new_session
from tests.account.operators import operator
from tests.forking import ForkingPython

CLUSTER = "red"
GROUPS = (f"{CLUSTER}-master", f"{CLUSTER}-workers")
HOUR = 3600


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory, forking: ForkingPython) -> Iterator[Any]:
    with account_in(tmp_path_factory.mktemp("guard"), forking=forking) as account:
        account.wants(CLUSTER, provision_settle_seconds=1)
        yield account


def play(account: Any, playbook: str = CLOUD_HALF, code: int = 0, **extra: Any) -> Any:
    ran = account.play(playbook, **extra)
    assert ran.code == code, ran.output[-4000:]
    return ran


def play_until(account: Any, task: str, playbook: str, *arguments: str, **extra: Any) -> None:
    """Run a playbook until this task begins, and kill it then."""
    lines = []
    with account.playing(playbook, *arguments, forking=account.forking, **extra) as playing:
        for line in playing.lines():
            lines.append(line)
            if line.startswith("TASK [") and task in line:
                return
    raise AssertionError("".join(lines)[-4000:])


def actions(account: Any) -> dict[str, dict[str, Any]]:
    """Return the actions of both groups, which are the same, by what they are for."""
    client = account.client("autoscaling")
    listed = client.describe_scheduled_actions()["ScheduledUpdateGroupActions"]
    by_group: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for action in listed:
        assert [action[size] for size in ("MinSize", "MaxSize", "DesiredCapacity")] == [0, 0, 0]
        by_group[action["AutoScalingGroupName"]][action["ScheduledActionName"].removeprefix(f"{CLUSTER}-")] = action
    assert by_group[GROUPS[0]].keys() == by_group[GROUPS[1]].keys()
    return by_group[GROUPS[0]]


def seconds_left(action: dict[str, Any]) -> float:
    return float((action["StartTime"] - datetime.now(UTC)).total_seconds())


def machines(account: Any) -> list[str]:
    alive = {"Name": "instance-state-name", "Values": ["pending", "running"]}
    reservations = account.client("ec2").describe_instances(Filters=[alive])["Reservations"]
    return [instance["InstanceId"] for reservation in reservations for instance in reservation["Instances"]]


def let_it_come(account: Any, kind: str) -> None:
    """Let AWS run the actions of a kind now."""
    account.cloud.run_scheduled_action(f"{CLUSTER}-{kind}", REGION)


def test_machines_have_an_end_until_a_playbook_meets_one_in_service(account: Any) -> None:
    """site.yml is killed after it requested them; train.yml begins, first with --check, and is killed at its login."""
    ends = {"cluster_ttl_hours": 8, "cluster_idle_minutes": 60, "cluster_capacity_timeout_minutes": 1440}
    play_until(account, "Create the routes out of the subnets", CLOUD_HALF, **ends)
    scheduled = actions(account)
    assert 1495 * 60 < seconds_left(scheduled["setup"]) < 1503 * 60
    assert 7.5 * HOUR < seconds_left(scheduled["ttl"]) < 8 * HOUR + 180
    # Until the master can postpone it, machines have the time that they may take to start as well.
    assert 1495 * 60 < seconds_left(scheduled["idle"]) < 1503 * 60
    wait_until(lambda: len(in_service(account)) == 2)
    nodes = nodes_of(account, CLUSTER, "b" * 64)
    for group, machine in in_service(account):
        nodes.report(group, machine, "ready")
    for arguments, kinds in ((["--check"], {"setup", "ttl", "idle"}), ([], {"ttl", "idle"})):
        play_until(account, "Log in to the master", "train.yml", *arguments, framework="pytorch")
        assert actions(account).keys() == kinds
    play(account)
    assert actions(account)["ttl"] == scheduled["ttl"] and len(machines(account)) == 2


def test_an_end_is_postponed_whether_aws_keeps_fields_or_not(account: Any) -> None:
    before = actions(account)["ttl"]["StartTime"]
    for group in GROUPS:
        account.client("autoscaling").put_scheduled_update_group_action(
            AutoScalingGroupName=group, ScheduledActionName=f"{CLUSTER}-setup", **once(SETUP, time.time() + 2 * HOUR)
        )
    with keeping_fields(account, True):
        printed = " ".join(play(account, "playbooks/extend.yml", hours=1.5).output.split())
    assert actions(account).keys() == {"ttl", "idle"}
    postponed = actions(account)["ttl"]["StartTime"]
    assert (postponed - before).total_seconds() == 1.5 * HOUR
    assert f"machines end {postponed:%Y-%m-%d %H:%M} UTC" in printed


def in_service(account: Any) -> list[tuple[str, str]]:
    """Return the groups and ids of the machines in service."""
    listed = account.client("autoscaling").describe_auto_scaling_instances()["AutoScalingInstances"]
    return [
        (item["AutoScalingGroupName"], item["InstanceId"]) for item in listed if item["LifecycleState"] == "InService"
    ]


@contextmanager
def keeping_fields(account: Any, keeps: bool) -> Iterator[None]:
    """Let actions keep the fields that a new request leaves out, or not: which of both AWS does is not known."""
    fault = account.cloud.faults.add("keep-fields", {}) if keeps else None
    try:
        yield
    finally:
        if fault:
            account.cloud.faults.remove(fault)


def as_master(account: Any, service: str) -> Any:
    """Return a client with the rights of the master's role."""
    issued = account.cloud.credentials.issue(f"{CLUSTER}-{REGION}-master", "i-0123456789abcdef0", 3600)
    session = new_session(issued.access_key, issued.secret, REGION, issued.token)
    return session.client(service, endpoint_url=account.endpoint)


def put(client: Any, group: str, seconds: float = HOUR, **sizes: int) -> None:
    times = {
        key: value
        for key, value in once(IDLE, time.time() + seconds).items()
        if key in ("StartTime", "EndTime", "Recurrence")
    }
    client.put_scheduled_update_group_action(
        AutoScalingGroupName=group, ScheduledActionName=f"{CLUSTER}-idle", **times, **sizes
    )


@pytest.mark.parametrize(
    ("sizes", "code"),
    [
        ({"MinSize": 0, "MaxSize": 9, "DesiredCapacity": 9}, "AccessDenied"),
        ({"MinSize": 0, "MaxSize": 9}, "AccessDenied"),
        ({"MinSize": 3, "MaxSize": 0}, "AccessDenied"),
        ({"DesiredCapacity": 9}, "AccessDenied"),
        ({"MaxSize": 0, "DesiredCapacity": 0}, "AccessDenied"),
        # IAM has no key for the desired capacity, but Auto Scaling compares it with the others.
        ({"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 9}, "ValidationError"),
    ],
    ids=str,
)
def test_the_master_cannot_raise_a_size(account: Any, sizes: dict[str, int], code: str) -> None:
    with pytest.raises(ClientError) as refused:
        put(as_master(account, "autoscaling"), GROUPS[1], **sizes)
    assert refused.value.response["Error"]["Code"] == code
    assert max(seconds_left(action) for action in actions(account).values()) > HOUR


@pytest.mark.parametrize("keeps", [False, True], ids=["replaces", "keeps"])
def test_the_master_postpones_the_end_whether_aws_keeps_fields_or_not(account: Any, keeps: bool) -> None:
    for group in GROUPS:
        put(account.client("autoscaling"), group, 300, MinSize=0, MaxSize=0, DesiredCapacity=0)
    config: Any = SimpleNamespace(cluster=CLUSTER, idle_seconds=HOUR)
    with keeping_fields(account, keeps):
        money_guard._postpone(config, MasterClient(account), {}, ["lenet-1"], time.time())
    assert HOUR - 60 < seconds_left(actions(account)["idle"]) <= HOUR + 180


class MasterClient(AwsClient):
    """What the master calls AWS with, with the rights of its role."""

    def __init__(self, account: Any) -> None:
        super().__init__(REGION)
        self._clients["autoscaling"] = as_master(account, "autoscaling")


def test_the_master_postpones_the_end_of_its_own_groups_and_does_nothing_else_to_them(account: Any) -> None:
    master, sizes = as_master(account, "autoscaling"), {"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}
    for group in GROUPS:
        put(master, group, **sizes)
    assert HOUR - 60 < seconds_left(actions(account)["idle"]) <= HOUR + 180
    other = {"AutoScalingGroupName": "blue-workers"}
    group = {"AutoScalingGroupName": GROUPS[1]}
    entry = {"ScheduledActionName": "more", "StartTime": datetime.now(UTC), **sizes}
    for operation, arguments in (
        ("put_scheduled_update_group_action", {**other, **entry}),
        ("delete_scheduled_action", {**group, "ScheduledActionName": f"{CLUSTER}-ttl"}),
        ("set_desired_capacity", {**group, "DesiredCapacity": 9}),
        ("update_auto_scaling_group", {**group, "MaxSize": 9}),
        ("suspend_processes", {**group, "ScalingProcesses": ["ScheduledActions"]}),
        ("set_instance_protection", {**group, "InstanceIds": machines(account), "ProtectedFromScaleIn": True}),
    ):
        with pytest.raises(ClientError) as refused:
            getattr(master, operation)(**arguments)
        assert refused.value.response["Error"]["Code"] == "AccessDenied", operation


def test_what_others_schedule_is_named_and_deleted_by_its_name_alone(account: Any) -> None:
    client, end = account.client("autoscaling"), {"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}
    theirs = {"AutoScalingGroupName": GROUPS[1], "ScheduledActionName": "night ly"}
    night = datetime.fromtimestamp(time.time() + 9 * HOUR, UTC)
    client.put_scheduled_update_group_action(**theirs, StartTime=night, MaxSize=4)
    hostile = {"AutoScalingGroupName": GROUPS[1], "ScheduledActionName": "zz"}
    soon = datetime.fromtimestamp(time.time() + 0.5 * HOUR, UTC)
    as_master(account, "autoscaling").put_scheduled_update_group_action(**hostile, StartTime=soon, **end)
    printed = " ".join(play(account, "status.yml").output.split())
    for name, sizes, at in (
        ("night%20ly", "MaxSize 4", night),
        ("zz", "MinSize 0, MaxSize 0, DesiredCapacity 0", soon),
    ):
        action = (
            f"{GROUPS[1]} has the scheduled action {name}, which is not ours: {sizes}, next run {at:%Y-%m-%d %H:%M}"
        )
        command = f"ansible-playbook deeplearning.aws.site -e .* -e delete_actions={name}"
        assert re.search(f"{re.escape(action)} UTC\\. To delete it: {command}", printed), printed
    # Its machines would be gone before they are of use.
    printed = " ".join(play(account, code=2).output.split())
    assert (
        "it would end the machines within the hour. To delete it: ansible-playbook deeplearning.aws.site -e "
        "delete_actions=zz" in printed
    )
    ttl = client.describe_scheduled_actions(ScheduledActionNames=["red-ttl"])["ScheduledUpdateGroupActions"]
    printed = " ".join(play(account, delete_actions=["zz"]).output.split())
    assert "scheduled action night%20ly, which is not ours" in printed
    names = [
        action["ScheduledActionName"] for action in client.describe_scheduled_actions()["ScheduledUpdateGroupActions"]
    ]
    # The ends stay although no play specifies them again.
    assert sorted(names) == sorted([*2 * ["red-idle", "red-ttl"], "night ly"])
    listed = client.describe_scheduled_actions(ScheduledActionNames=["red-ttl"])["ScheduledUpdateGroupActions"]
    assert listed == ttl and len(listed) == 2
    never = {"cluster_ttl_hours": "never", "cluster_idle_minutes": "never", "remove_end": True}
    play(account, delete_actions="night%20ly", **never)
    assert actions(account) == {}


def test_the_end_of_extend_stays_and_a_cluster_that_grows_gets_none(account: Any) -> None:
    # Without an end, this makes one.
    play(operator(account), "playbooks/extend.yml", hours=2)
    end = actions(account)
    assert end.keys() == {"ttl"} and 1.5 * HOUR < seconds_left(end["ttl"]) < 2 * HOUR + 180
    started = time.time()
    play(account, cluster_worker_count=2)
    assert len(machines(account)) == 3 and actions(account) == end
    assert "autoscaling:PutScheduledUpdateGroupAction" not in account.writes(started)


def test_the_machines_end_without_anybody(account: Any) -> None:
    assert len(machines(account)) == 3
    let_it_come(account, "ttl")
    wait_until(lambda: not machines(account))
    printed = " ".join(play(account, "status.yml").output.split())
    assert "its groups are set to 0 machines" in printed and "site.yml brings the machines back" in printed


@pytest.mark.long
def test_site_yml_brings_them_back_with_a_new_end_and_keeps_that(account: Any) -> None:
    refused = play(account, "playbooks/extend.yml", code=2, hours=1)
    assert "has no machines whose end could be postponed" in " ".join(refused.output.split())
    play(account, cluster_worker_count=2, cluster_ttl_hours=8, cluster_idle_minutes=60)
    assert len(machines(account)) == 3
    end = actions(account)["ttl"]["StartTime"]
    assert 7.5 * HOUR < seconds_left(actions(account)["ttl"]) < 8 * HOUR + 180
    assert play(account).changed == 0
    assert actions(account)["ttl"]["StartTime"] == end


@pytest.mark.long
def test_what_is_switched_off_is_deleted_with_a_consent(account: Any) -> None:
    refused = play(account, code=2, cluster_idle_minutes=0)
    assert "cluster_idle_minutes is 0: the machines are scheduled to end at" in refused.output
    assert actions(account).keys() == {"ttl", "idle"}
    play(account, cluster_idle_minutes=0, remove_end=True)
    assert actions(account).keys() == {"ttl"}
    with pytest.raises(ClientError) as refused:
        put(as_master(account, "autoscaling"), GROUPS[1], MinSize=0, MaxSize=0)
    assert refused.value.response["Error"]["Code"] == "AccessDenied"
    play(account, cluster_ttl_hours="never", cluster_idle_minutes="never", remove_end=True)
    assert actions(account) == {}
    play(account, "destroy.yml", destroy=CLUSTER)
    assert account.client("autoscaling").describe_scheduled_actions()["ScheduledUpdateGroupActions"] == []
