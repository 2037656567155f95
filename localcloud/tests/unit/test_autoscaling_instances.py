"""Lifecycle hooks, detaching and tags of groups."""

from __future__ import annotations

from typing import Any

import pytest

from localcloud.api.autoscaling.records import Hook, LaunchTemplateSpecification, Member, Subnet
from localcloud.api.autoscaling.selection import select_for_termination, spread
from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError
from localcloud.testing.clock import ManualClock
from localcloud_kits.autoscaling_kit import Kit, kit_for


@pytest.fixture
def kit(cloud: Cloud, clock: ManualClock) -> Kit:
    return kit_for(cloud, clock)


def launch_hook(**more: Any) -> dict[str, Any]:
    transition = {"LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING"}
    return {"LifecycleHookName": "ready", **transition, "HeartbeatTimeout": 60, **more}


def complete(kit: Kit, result: str, hook: str = "ready", **who: str) -> None:
    who = who or {"InstanceId": kit.ids[0]}
    kit.on("CompleteLifecycleAction", LifecycleHookName=hook, LifecycleActionResult=result, **who)


# Hooks


def test_a_launch_hook_holds_until_it_is_completed(kit: Kit) -> None:
    kit.create(1, LifecycleHookSpecificationList=[launch_hook()])
    kit.wait(30)
    assert list(kit.states.values()) == ["Pending:Wait"]
    assert kit.activities[0]["StatusCode"] == "MidLifecycleAction"
    complete(kit, "CONTINUE")
    with pytest.raises(AwsError, match="No active Lifecycle Action found with instance ID"):
        complete(kit, "CONTINUE")
    kit.wait(0)
    assert list(kit.states.values()) == ["InService"]
    assert kit.activities[0]["StatusCode"] == "Successful"


def test_abandoning_a_launch_replaces_it(kit: Kit) -> None:
    kit.create(1, LifecycleHookSpecificationList=[launch_hook()])
    first = kit.ids[0]
    token = kit.scaling.groups["g"].members[first].actions[0].token
    complete(kit, "ABANDON", LifecycleActionToken=token)
    kit.wait()
    assert first not in kit.ids
    assert list(kit.states.values()) == ["Pending:Wait"]
    cancelled = next(activity for activity in kit.activities if activity["StatusCode"] == "Cancelled")
    assert cancelled["StatusMessage"] == (
        f"Instance failed to complete user's Lifecycle Action: Lifecycle Action with token {token} was abandoned: "
        "Lifecycle Action Completed with ABANDON Result"
    )


@pytest.mark.parametrize(("default", "same"), [("CONTINUE", True), ("ABANDON", False)])
def test_a_hook_has_its_time_and_heartbeats_extend_it(kit: Kit, default: str, same: bool) -> None:
    kit.create(1, LifecycleHookSpecificationList=[launch_hook(DefaultResult=default)])
    first = kit.ids[0]
    kit.wait(50)
    kit.on("RecordLifecycleActionHeartbeat", LifecycleHookName="ready", InstanceId=first)
    kit.wait(50)
    assert kit.states == {first: "Pending:Wait"}
    kit.wait(15)
    assert (kit.states.get(first) == "InService") == same
    if not same:
        assert any(
            "was abandoned: Heartbeat Timeout" in activity.get("StatusMessage", "") for activity in kit.activities
        )


@pytest.mark.parametrize(("heartbeat", "end"), [(60, 6000), (7200, 48 * 3600)])
def test_heartbeats_extend_a_hook_for_a_hundred_times_its_timeout_or_two_days(heartbeat: int, end: int) -> None:
    template = LaunchTemplateSpecification("lt-1", "t", "1")
    member = Member("i-1", "t3.micro", Subnet("us-east-1a", "subnet-1"), launched=0.0, template=template)
    member.hold([Hook("ready", heartbeat)], 0.0)
    for now in range(0, end, heartbeat // 2):
        member.actions[0].extend(now)
    assert (member.outcome(end - 1), member.outcome(end)) == (None, "ABANDON")


def test_several_hooks_are_waited_for_together(kit: Kit) -> None:
    kit.create(1, LifecycleHookSpecificationList=[launch_hook(), launch_hook(LifecycleHookName="also")])
    complete(kit, "CONTINUE")
    kit.wait(5)
    assert list(kit.states.values()) == ["Pending:Wait"]
    complete(kit, "CONTINUE", "also")
    kit.wait(1)
    assert list(kit.states.values()) == ["InService"]


def test_hooks_are_shown_changed_and_deleted(kit: Kit) -> None:
    kit.create(1, LifecycleHookSpecificationList=[launch_hook()])
    kit.on("PutLifecycleHook", LifecycleHookName="ready", DefaultResult="CONTINUE")
    shown = kit.on("DescribeLifecycleHooks")["LifecycleHooks"]
    assert [(hook["HeartbeatTimeout"], hook["GlobalTimeout"], hook["DefaultResult"]) for hook in shown] == [
        (60, 6000, "CONTINUE")
    ]
    kit.on("DeleteLifecycleHook", LifecycleHookName="ready")
    assert kit.on("DescribeLifecycleHooks")["LifecycleHooks"] == []
    with pytest.raises(AwsError, match="ValidationError"):
        kit.on("DeleteLifecycleHook", LifecycleHookName="ready")
    with pytest.raises(AwsError, match="between 30 and 7200"):
        kit.on("PutLifecycleHook", **launch_hook(HeartbeatTimeout=5))


# Instances by request


def test_terminating_one_replaces_it_or_shrinks_the_group(kit: Kit) -> None:
    kit.create(2, 1)
    first, second = kit.ids
    answer = kit.ask("TerminateInstanceInAutoScalingGroup", InstanceId=first, ShouldDecrementDesiredCapacity=False)
    assert answer["Activity"]["Cause"].endswith(
        f"instance {first} was taken out of service in response to a user request."
    )
    assert answer["Activity"]["StatusCode"] == "InProgress"
    kit.wait()
    assert len(kit.ids) == 2
    kit.ask("TerminateInstanceInAutoScalingGroup", InstanceId=second, ShouldDecrementDesiredCapacity=True)
    kit.wait()
    assert (kit.group["DesiredCapacity"], len(kit.ids)) == (1, 1)
    assert "shrinking the capacity from 2 to 1." in kit.activities[0]["Cause"]
    with pytest.raises(AwsError, match="desiredSize equals minSize"):
        kit.ask("TerminateInstanceInAutoScalingGroup", InstanceId=kit.ids[0], ShouldDecrementDesiredCapacity=True)
    with pytest.raises(AwsError, match="No managed instance found"):
        kit.ask("TerminateInstanceInAutoScalingGroup", InstanceId="i-1", ShouldDecrementDesiredCapacity=True)


@pytest.mark.parametrize(("decrement", "size"), [(True, 1), (False, 2)])
def test_detaching(kit: Kit, decrement: bool, size: int) -> None:
    kit.create(2, 1, 3)
    first = kit.ids[0]
    kit.on("DetachInstances", InstanceIds=[first], ShouldDecrementDesiredCapacity=decrement)
    kit.wait()
    assert (len(kit.ids), kit.group["DesiredCapacity"], first in kit.ids) == (size, size, False)
    assert kit.ec2.instances[first].state == "running"
    assert "aws:autoscaling:groupName" not in kit.ec2.tags[first]
    kit.on("UpdateAutoScalingGroup", MinSize=size)
    with pytest.raises(AwsError, match="To detach 1 instances, please update"):
        kit.on("DetachInstances", InstanceIds=kit.ids[:1], ShouldDecrementDesiredCapacity=True)


def test_instances_are_described_by_themselves(kit: Kit) -> None:
    kit.create(3)
    listed = kit.ask("DescribeAutoScalingInstances", InstanceIds=kit.ids[:1])["AutoScalingInstances"]
    assert [(item["AutoScalingGroupName"], item["HealthStatus"], item["LifecycleState"]) for item in listed] == [
        ("g", "HEALTHY", "InService")
    ]
    first = kit.ask("DescribeAutoScalingInstances", MaxRecords=2)
    rest = kit.ask("DescribeAutoScalingInstances", MaxRecords=2, NextToken=first["NextToken"])
    assert len(first["AutoScalingInstances"] + rest["AutoScalingInstances"]) == 3


# Tags and the rest


def test_tags_change_and_are_described(kit: Kit) -> None:
    kit.create(0, Tags=[{"Key": "a", "Value": "1"}])
    tag = {"ResourceId": "g", "ResourceType": "auto-scaling-group"}
    kit.ask("CreateOrUpdateTags", Tags=[{**tag, "Key": "b", "Value": "2", "PropagateAtLaunch": True}])
    kit.ask("DeleteTags", Tags=[{**tag, "Key": "a"}])
    assert kit.ask("DescribeTags")["Tags"] == [{**tag, "Key": "b", "Value": "2", "PropagateAtLaunch": True}]
    filters = [{"Name": "auto-scaling-group", "Values": ["h"]}]
    assert kit.ask("DescribeTags", Filters=filters)["Tags"] == []
    with pytest.raises(AwsError, match="aws: prefixed"):
        kit.ask("CreateOrUpdateTags", Tags=[{**tag, "Key": "aws:x", "Value": "2"}])


# Choices

A, B = Subnet("a", "first"), Subnet("b", "third")
A2 = Subnet("a", "second")


@pytest.mark.parametrize(
    ("subnets", "occupied", "count", "expected"),
    [
        ([A, B], [], 3, [A, B, A]),
        ([A, B], [A, A], 3, [B, B, A]),
        ([A, A2, B], [], 4, [A, B, A2, B]),
    ],
)
def test_spread(subnets: list[Subnet], occupied: list[Subnet], count: int, expected: list[Subnet]) -> None:
    assert spread(subnets, occupied, count) == expected


def member(name: str, launched: float, version: str = "1", subnet: Subnet = A, **more: Any) -> Member:
    return Member(
        name,
        "t3.micro",
        subnet,
        launched,
        LaunchTemplateSpecification("lt-1", "web", version),
        state="InService",
        **more,
    )


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([member("x", 2), member("y", 1)], "y"),
        ([member("x", 2, "1"), member("y", 1, "2")], "x"),
        ([member("x", 2, "10"), member("y", 3, "9")], "y"),
        ([member("x", 1, subnet=A), member("y", 2, subnet=B), member("z", 3, subnet=B)], "y"),
        ([member("x", 2, health="Unhealthy"), member("y", 1)], "x"),
    ],
)
def test_select_for_termination(members: list[Member], expected: str) -> None:
    current = LaunchTemplateSpecification("lt-1", "web", "$Latest")
    assert [selected.id for selected in select_for_termination(members, current, 1)] == [expected]
