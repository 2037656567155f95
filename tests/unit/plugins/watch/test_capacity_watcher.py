"""Waiting for machines of Auto Scaling groups, with the faults that AWS has."""

from __future__ import annotations

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity import GroupTarget, Policy

from tests.unit.conftest import Account
from tests.unit.plugins.watch.groups_kit import TYPE, ZONE, Groups

MASTER = GroupTarget("c-master", 1, 1, essential=True)


@pytest.fixture
def groups(aws: Account, monkeypatch: pytest.MonkeyPatch) -> Groups:
    return Groups(aws, monkeypatch)


def test_three_of_five_stand_and_the_others_follow_when_there_is_capacity(groups: Groups) -> None:
    faults = groups.account.cloud.faults
    fault = faults.add("capacity", {"type": TYPE, "zone": ZONE}, value=4)
    groups.make(groups.template(), master=1, workers=5)
    workers = GroupTarget("c-workers", 5, 2)

    result = groups.wait_for_capacity(MASTER, workers)
    assert (result["outcome"], result["desired"]) == ("degraded", 6)
    assert groups.running() == 4
    assert sum(shortage["count"] for shortage in result["missing"]) == 2
    assert {shortage["why"] for shortage in result["missing"]} == {"capacity"}
    assert "We currently do not have sufficient g5.xlarge capacity" in result["msg"]
    group = groups.group("workers")
    assert (group["DesiredCapacity"], group["MaxSize"], group["SuspendedProcesses"]) == (3, 5, [])

    faults.remove(fault)
    result = groups.wait_for_capacity(MASTER, workers)
    assert (result["outcome"], result["changed"], groups.running()) == ("full", True, 6)

    before = groups.writes()
    result = groups.wait_for_capacity(MASTER, workers)
    assert (result["outcome"], result["changed"], groups.writes()) == ("full", False, before)


@pytest.mark.parametrize("policy", [Policy.AT_LEAST, Policy.ALL_OR_NOTHING])
def test_too_few_leave_no_machine_running(groups: Groups, policy: Policy) -> None:
    groups.account.cloud.faults.add("capacity", {"type": TYPE, "zone": ZONE}, value=4)
    groups.make(groups.template(), master=1, workers=5)
    result = groups.wait_for_capacity(MASTER, GroupTarget("c-workers", 5, 4), policy=policy)
    assert (result["outcome"], result["failed"], result["elsewhere"]) == ("failed", True, True)
    assert groups.running() == 0
    assert "no machine is left running" in result["msg"]
    assert [groups.group(what)["DesiredCapacity"] for what in ("master", "workers")] == [0, 0]


def test_a_session_that_ends_while_all_are_waited_for_leaves_no_machine_running(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session lasts 20 s here, and the wait is over later."""
    groups.account.cloud.credentials.default_seconds = 20
    groups.account.cloud.faults.add("capacity", {"type": TYPE, "zone": ZONE}, value=4)
    groups.make(groups.template(), master=1, workers=5)
    workers = GroupTarget("c-workers", 5, 5)
    role = groups.role("operator")
    result = groups.wait_for_capacity(MASTER, workers, policy=Policy.ALL_OR_NOTHING, settle=25, role_arn=role)
    assert (result["outcome"], groups.running()) == ("failed", 0)
    assert result["waited_seconds"] > 20
    assert "no machine is left running" in result["msg"]


def test_machines_of_an_earlier_run_outlive_a_failure(groups: Groups) -> None:
    groups.make(groups.template(), desired=2, workers=5)
    assert groups.wait_for_capacity(GroupTarget("c-workers", 2, 2))["outcome"] == "full"
    before = {instance["InstanceId"] for instance in groups.group("workers")["Instances"]}
    groups.account.cloud.faults.add("capacity", {"type": TYPE, "zone": ZONE}, value=2)
    result = groups.wait_for_capacity(GroupTarget("c-workers", 5, 5), since=-2)
    assert result["failed"]
    group = groups.group("workers")
    assert {instance["InstanceId"] for instance in group["Instances"]} == before
    assert (group["DesiredCapacity"], group["SuspendedProcesses"]) == (2, [])
    assert "2 that ran before this are left running" in result["msg"]


def test_a_quota_is_distinguished_from_missing_capacity(groups: Groups) -> None:
    groups.account.cloud.faults.add("quota", {"code": "L-DB2E81BA"}, value=8)
    groups.make(groups.template(), workers=5)
    result = groups.wait_for_capacity(GroupTarget("c-workers", 5, 2))
    assert (result["outcome"], groups.running()) == ("degraded", 2)
    assert [(shortage["why"], shortage["count"]) for shortage in result["missing"]] == [("unknown", 3)]
    assert "vCPU limit of 8" in result["msg"]


def test_a_bad_image_fails_at_once(groups: Groups) -> None:
    template = groups.template()
    groups.make(template, workers=5, version="$Latest", desired=0)
    groups.ec2.create_launch_template_version(
        LaunchTemplateId=template, LaunchTemplateData={"ImageId": "ami-0bad0bad0bad0bad0", "InstanceType": TYPE}
    )
    started = groups.clock.time()
    result = groups.wait_for_capacity(GroupTarget("c-workers", 5, 2), seconds=600)
    assert result["failed"]
    assert groups.clock.time() - started < 60
    assert {shortage["why"] for shortage in result["missing"]} == {"configuration"}
    assert "ami-0bad0bad0bad0bad0" in result["msg"]
    assert not result["elsewhere"]


def test_a_late_instance_profile_is_waited_for(groups: Groups) -> None:
    iam = groups.account.client("iam")
    trust = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},'
    iam.create_role(RoleName="r", AssumeRolePolicyDocument=trust + '"Action":"sts:AssumeRole"}]}')
    iam.create_instance_profile(InstanceProfileName="p")
    iam.add_role_to_instance_profile(InstanceProfileName="p", RoleName="r")
    groups.make(groups.template(IamInstanceProfile={"Name": "p"}), desired=0, workers=2)
    groups.account.cloud.faults.add("late-iam", {}, value=10.0)
    result = groups.wait_for_capacity(GroupTarget("c-workers", 2, 2))
    assert (result["outcome"], groups.running()) == ("full", 2)
    assert any("waiting for IAM" in line for line in groups.lines)
