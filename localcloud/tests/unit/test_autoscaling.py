"""Groups: what they are asked, how they grow, shrink, fail and replace."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError
from localcloud.testing.clock import ManualClock
from localcloud_kits.autoscaling_kit import Kit, kit_for, no_capacity


@pytest.fixture
def kit(cloud: Cloud, clock: ManualClock) -> Kit:
    return kit_for(cloud, clock)


def refusal(kit: Kit, operation: str, **params: Any) -> str:
    with pytest.raises(AwsError) as caught:
        kit.on(operation, **params)
    return str(caught.value)


# What a group is


def test_a_group_is_shown_as_it_was_asked_for(kit: Kit) -> None:
    kit.create(
        2,
        1,
        3,
        VPCZoneIdentifier="subnet-a, subnet-b",
        HealthCheckGracePeriod=60,
        PlacementGroup="together",
        CapacityRebalance=True,
        Tags=[{"Key": "cluster", "Value": "x", "PropagateAtLaunch": True, "ResourceId": "g"}],
    )
    group = kit.group
    assert (group["MinSize"], group["DesiredCapacity"], group["MaxSize"]) == (1, 2, 3)
    assert group["AvailabilityZones"] == ["us-east-1a", "us-east-1b"]
    assert group["VPCZoneIdentifier"] == "subnet-a,subnet-b"
    assert group["LaunchTemplate"] == {"LaunchTemplateId": "lt-1", "LaunchTemplateName": "web", "Version": "$Latest"}
    assert group["TerminationPolicies"] == ["Default"]
    assert group["PlacementGroup"] == "together"
    assert group["CapacityRebalance"] is True
    assert group["HealthCheckType"] == "EC2"
    assert group["ServiceLinkedRoleARN"].endswith("/AWSServiceRoleForAutoScaling")
    assert group["AutoScalingGroupARN"].startswith("arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:")
    assert group["Tags"] == [
        {
            "ResourceId": "g",
            "ResourceType": "auto-scaling-group",
            "Key": "cluster",
            "Value": "x",
            "PropagateAtLaunch": True,
        }
    ]
    assert [instance["LaunchTemplate"]["Version"] for instance in group["Instances"]] == ["1", "1"]
    assert "Status" not in group


@pytest.mark.parametrize(
    ("least", "most", "desired", "words"),
    [
        (3, 1, 2, "Max bound, 1, must be greater than or equal to min bound, 3"),
        (4, 10, 2, "Desired capacity:2 must be between the specified min size:4 and max size:10"),
        (0, 1, 2, "Desired capacity:2 must be between the specified min size:0 and max size:1"),
    ],
)
def test_sizes_must_fit(kit: Kit, least: int, most: int, desired: int, words: str) -> None:
    with pytest.raises(AwsError) as caught:
        kit.create(desired, least, most)
    assert (caught.value.code, caught.value.message) == ("ValidationError", words)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"LaunchTemplate": {"LaunchTemplateId": "lt-2"}}, "valid fully-formed launch template. The specified launch"),
        ({"LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "7"}}, "Could not find the specified version 7"),
        ({"LaunchTemplate": {"LaunchTemplateId": "lt-1", "LaunchTemplateName": "web"}}, "either launchTemplateId or"),
        ({"LaunchTemplate": None}, "must contain either LaunchTemplate, LaunchConfigurationName"),
        ({"LaunchTemplate": None, "LaunchConfigurationName": "old"}, "does not have LaunchConfigurationName"),
        ({"VPCZoneIdentifier": "subnet-x"}, "The subnet ID 'subnet-x' does not exist"),
        ({"VPCZoneIdentifier": None}, "no groups without subnets"),
        ({"AvailabilityZones": ["mars-1a"]}, "availability zones of the specified subnets and the Auto Scaling group"),
        ({"TerminationPolicies": ["Random"]}, "no termination policy but Default"),
        ({"Tags": [{"Key": "aws:mine", "Value": "x"}]}, "aws: prefixed tag key names are not allowed"),
    ],
)
def test_what_does_not_exist_is_refused(kit: Kit, settings: dict[str, Any], words: str) -> None:
    options = {
        "VPCZoneIdentifier": "subnet-a",
        "LaunchTemplate": {"LaunchTemplateId": "lt-1"},
        "MinSize": 0,
        "MaxSize": 1,
        **settings,
    }
    assert words in refusal(kit, "CreateAutoScalingGroup", **options)
    assert kit.scaling.groups == {}


def test_a_template_that_ec2_would_not_take_is_refused_at_once(kit: Kit) -> None:
    kit.ec2.refuses_dry_run = AwsError("InvalidParameterValue", "Invalid IAM Instance Profile name")
    with pytest.raises(AwsError, match="valid fully-formed launch template. Invalid IAM Instance Profile name"):
        kit.create(1)


def test_names_are_unique_and_unknown_ones_refused(kit: Kit) -> None:
    kit.create(0)
    with pytest.raises(AwsError, match="AlreadyExists: AutoScalingGroup by this name already exists"):
        kit.create(0)
    with pytest.raises(AwsError, match="ValidationError: AutoScalingGroup name not found - null"):
        kit.ask("UpdateAutoScalingGroup", AutoScalingGroupName="h", MinSize=0)
    assert kit.ask("DescribeAutoScalingGroups", AutoScalingGroupNames=["h"])["AutoScalingGroups"] == []


def test_groups_are_paged_and_filtered_by_tags(kit: Kit) -> None:
    for name, value in (("a", "1"), ("b", "2"), ("c", "1")):
        kit.ask(
            "CreateAutoScalingGroup",
            AutoScalingGroupName=name,
            MinSize=0,
            MaxSize=0,
            VPCZoneIdentifier="subnet-a",
            LaunchTemplate={"LaunchTemplateName": "web"},
            Tags=[{"Key": "k", "Value": value}],
        )

    def names(**params: Any) -> list[str]:
        listed = kit.ask("DescribeAutoScalingGroups", **params)["AutoScalingGroups"]
        return [group["AutoScalingGroupName"] for group in listed]

    assert names(Filters=[{"Name": "tag:k", "Values": ["1"]}]) == ["a", "c"]
    assert names(Filters=[{"Name": "tag-key", "Values": ["k"]}, {"Name": "tag-value", "Values": ["2"]}]) == ["b"]
    first = kit.ask("DescribeAutoScalingGroups", MaxRecords=2)
    assert len(first["AutoScalingGroups"]) == 2
    assert names(MaxRecords=2, NextToken=first["NextToken"]) == ["c"]
    with pytest.raises(AwsError, match="InvalidNextToken"):
        names(NextToken="bogus")


# Growing


def test_launches_come_after_the_call_and_each_has_an_activity(kit: Kit) -> None:
    kit.create(2, wait=0.0)
    assert list(kit.states.values()) == ["Pending", "Pending"]
    assert {activity["StatusCode"] for activity in kit.activities} == {"PreInService"}
    kit.wait(1)
    assert list(kit.states.values()) == ["InService", "InService"]
    newest = kit.activities[0]
    assert newest["Description"] == f"Launching a new EC2 instance: {kit.ids[1]}"
    assert newest["Cause"] == (
        "At 2027-01-15T08:00:00Z a user request created an AutoScalingGroup changing the desired capacity from 0 to 2."
        "  At 2027-01-15T08:00:00Z an instance was started in response to a difference between desired and actual "
        "capacity, increasing the capacity from 0 to 2."
    )
    assert (newest["StatusCode"], newest["Progress"]) == ("Successful", 100)
    assert newest["EndTime"] > newest["StartTime"]
    assert json.loads(newest["Details"]) == {"Subnet ID": "subnet-a", "Availability Zone": "us-east-1a"}


def test_nothing_is_launched_before_its_time(kit: Kit) -> None:
    kit.scaling.launch_takes = lambda: 5.0
    kit.create(1, wait=4)
    assert (kit.ids, kit.activities[0]["StatusCode"]) == ([], "WaitingForInstanceId")
    kit.wait(3)
    assert list(kit.states.values()) == ["InService"]


def test_instances_get_the_tags_that_the_group_hands_on(kit: Kit) -> None:
    kit.create(1, Tags=[{"Key": "a", "Value": "1", "PropagateAtLaunch": True}, {"Key": "hidden", "Value": "x"}])
    tags = [{"Key": "a", "Value": "1"}, {"Key": "aws:autoscaling:groupName", "Value": "g"}]
    assert kit.ec2.runs[0]["TagSpecifications"] == [{"ResourceType": "instance", "Tags": tags}]


def test_the_subnet_goes_where_the_template_has_its_interfaces(kit: Kit) -> None:
    kit.ec2.data["NetworkInterfaces"] = [{"DeviceIndex": 0, "Groups": ["sg-1"]}]
    kit.create(1, PlacementGroup="together")
    asked = kit.ec2.runs[0]
    assert "SubnetId" not in asked
    assert asked["NetworkInterfaces"] == [{"DeviceIndex": 0, "Groups": ["sg-1"], "SubnetId": "subnet-a"}]
    assert asked["Placement"] == {"GroupName": "together"}
    assert asked["LaunchTemplate"] == {"LaunchTemplateId": "lt-1", "Version": "1"}


def test_a_new_template_version_is_for_new_instances_only(kit: Kit) -> None:
    kit.create(1)
    kit.ec2.latest = 2
    kit.on("SetDesiredCapacity", DesiredCapacity=2)
    kit.wait()
    assert [instance["LaunchTemplate"]["Version"] for instance in kit.group["Instances"]] == ["1", "2"]


def test_instances_are_spread_over_zones(kit: Kit) -> None:
    kit.create(5, VPCZoneIdentifier="subnet-a,subnet-b,subnet-c")
    zones = sorted(instance["AvailabilityZone"][-1] for instance in kit.group["Instances"])
    assert "".join(zones) == "aabbc"


# Failing


def test_two_of_three_and_the_third_when_there_is_room(kit: Kit) -> None:
    kit.ec2.capacity = {("t3.micro", "us-east-1a"): 2}
    kit.create(3)
    assert len(kit.ids) == 2
    failed = kit.activities[0]
    assert failed["StatusCode"] == "Failed"
    assert failed["StatusMessage"] == (
        "We currently do not have sufficient t3.micro capacity in the Availability Zone you requested (us-east-1a). "
        "Our system will be working on provisioning additional capacity. Launching EC2 instance failed."
    )
    assert failed["Description"] == f"Launching a new EC2 instance.  Status Reason: {failed['StatusMessage']}"
    assert kit.group["DesiredCapacity"] == 3
    kit.ec2.capacity.clear()
    kit.wait(6)
    assert len(kit.ids) == 3
    assert "increasing the capacity from 2 to 3" in kit.activities[0]["Cause"]


def test_attempts_grow_rarer_and_a_change_brings_one_at_once(kit: Kit) -> None:
    kit.ec2.refuses = AwsError("VcpuLimitExceeded", "You have requested more vCPU capacity than allowed.")
    kit.create(1, wait=0)

    def attempts_in(seconds: float) -> int:
        before = len(kit.activities)
        kit.wait(seconds)
        return len(kit.activities) - before

    assert len(kit.activities) == 1
    assert attempts_in(4) == 0
    assert attempts_in(600) == 3 + 9
    kit.on("UpdateAutoScalingGroup", MaxSize=9)
    assert attempts_in(0) == 1
    assert {activity["StatusCode"] for activity in kit.activities} == {"Failed"}


def test_another_zone_takes_what_one_has_no_room_for(kit: Kit) -> None:
    kit.ec2.capacity = {("t3.micro", "us-east-1a"): 0}
    kit.create(3, VPCZoneIdentifier="subnet-a,subnet-b")
    kit.on("SuspendProcesses", ScalingProcesses=["AZRebalance"])
    assert [instance["AvailabilityZone"] for instance in kit.group["Instances"]] == ["us-east-1b"] * 3
    failed = [activity for activity in kit.activities if activity["StatusCode"] == "Failed"]
    assert [json.loads(activity["Details"])["Subnet ID"] for activity in failed][-1:] == ["subnet-a"]


def test_what_other_zones_cannot_mend_is_not_tried_there(kit: Kit) -> None:
    kit.ec2.refuses = AwsError("InvalidAMIID.NotFound", "The image id '[ami-1]' does not exist")
    kit.create(1, wait=0, VPCZoneIdentifier="subnet-a,subnet-b")
    assert [activity["StatusMessage"] for activity in kit.activities] == [
        "The image id '[ami-1]' does not exist. Launching EC2 instance failed."
    ]


def test_what_breaks_in_ec2_breaks_no_group(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_order: Any) -> Any:
        raise ZeroDivisionError

    kit.create(0)
    with monkeypatch.context() as patch:
        patch.setattr(kit.ec2, "run", broken)
        kit.on("SetDesiredCapacity", DesiredCapacity=1)
        kit.wait(0)
    assert "ZeroDivisionError" in kit.activities[0]["StatusMessage"]
    kit.wait(6)
    assert len(kit.ids) == 1


def test_one_that_dies_before_it_serves_is_replaced_after_a_while(kit: Kit) -> None:
    kit.ec2.slow = True
    kit.create(1)
    first = kit.ids[0]
    kit.ec2.become(first, "terminated", reason="Server.InternalError: Internal error on launch")
    kit.wait(2)
    assert kit.ids == []
    cancelled = next(activity for activity in kit.activities if activity["StatusCode"] == "Cancelled")
    assert cancelled["StatusMessage"] == (
        "Instance became unhealthy while waiting for instance to be in InService state. "
        "Termination Reason: Server.InternalError: Internal error on launch"
    )
    kit.wait(6)
    assert len(kit.ids) == 1


# Shrinking


def test_bounds_of_the_desired_capacity(kit: Kit) -> None:
    kit.create(2, 2, 3)
    below = "New SetDesiredCapacity value 1 is below min value 2 for the AutoScalingGroup."
    above = "New SetDesiredCapacity value 4 is above max value 3 for the AutoScalingGroup."
    assert refusal(kit, "SetDesiredCapacity", DesiredCapacity=1) == f"ValidationError: {below}"
    assert refusal(kit, "SetDesiredCapacity", DesiredCapacity=4) == f"ValidationError: {above}"
    assert refusal(kit, "UpdateAutoScalingGroup", MinSize=4).startswith("ValidationError: Max bound, 3")
    kit.on("UpdateAutoScalingGroup", MinSize=3)
    assert kit.group["DesiredCapacity"] == 3
    kit.on("UpdateAutoScalingGroup", MinSize=0, MaxSize=1)
    assert kit.group["DesiredCapacity"] == 1


def test_the_oldest_goes_first(kit: Kit) -> None:
    kit.create(1)
    old = kit.ids[0]
    kit.on("SetDesiredCapacity", DesiredCapacity=2)
    kit.wait()
    kit.on("SetDesiredCapacity", DesiredCapacity=1)
    kit.wait()
    assert old not in kit.ids
    ended = kit.activities[0]
    assert ended["Description"] == f"Terminating EC2 instance: {old}"
    assert "explicitly set group desired capacity changing the desired capacity from 2 to 1." in ended["Cause"]
    assert "shrinking the capacity from 2 to 1." in ended["Cause"]
    assert f"instance {old} was selected for termination." in ended["Cause"]
    assert ended["StatusCode"] == "Successful"


def test_launches_that_are_not_wanted_any_more_are_cancelled(kit: Kit) -> None:
    kit.scaling.launch_takes = lambda: 5.0
    kit.create(3, wait=1)
    kit.on("SetDesiredCapacity", DesiredCapacity=1)
    kit.wait(10)
    assert len(kit.ids) == len(kit.ec2.runs) == 1
    assert sorted(activity["StatusCode"] for activity in kit.activities) == ["Cancelled", "Cancelled", "Successful"]


# Replacing


def test_the_dead_are_replaced(kit: Kit) -> None:
    kit.create(2)
    dead, alive = kit.ids
    kit.ec2.become(dead, "terminated")
    kit.wait()
    assert dead not in kit.ids
    assert list(kit.states.values()) == ["InService", "InService"]
    launched, ended = kit.activities[:2]
    assert "taken out of service in response to an EC2 health check indicating it has been" in ended["Cause"]
    assert launched["Cause"].endswith(
        "an instance was launched in response to an unhealthy instance needing to be replaced."
    )


@pytest.mark.parametrize("state", ["stopped", "stopping", "shutting-down"])
def test_whatever_does_not_run_is_unhealthy(kit: Kit, state: str) -> None:
    kit.create(1)
    dead = kit.ids[0]
    kit.ec2.become(dead, state)
    kit.wait()
    assert dead not in kit.ids
    assert kit.ec2.instances[dead].state == "terminated"


def test_an_impaired_one_has_its_grace_period(kit: Kit) -> None:
    kit.create(1, HealthCheckGracePeriod=60)
    ill = kit.ids[0]
    kit.ec2.become(ill, "running", impaired=True)
    kit.wait(50)
    assert kit.ids == [ill]
    kit.wait(20)
    assert ill not in kit.ids
    assert "EC2 instance status checks failure" in kit.activities[1]["Cause"]


@pytest.mark.parametrize(
    ("process", "healths"),
    [("HealthCheck", ["Healthy"]), ("ReplaceUnhealthy", ["Unhealthy"]), ("Terminate", ["Unhealthy"]), ("Launch", [])],
)
def test_suspended_processes_do_nothing(kit: Kit, process: str, healths: list[str]) -> None:
    kit.create(1)
    dead = kit.ids[0]
    kit.on("SuspendProcesses", ScalingProcesses=[process])
    assert [process["ProcessName"] for process in kit.group["SuspendedProcesses"]] == [process]
    kit.ec2.become(dead, "terminated")
    kit.wait(30)
    assert [instance["HealthStatus"] for instance in kit.group["Instances"]] == healths
    kit.on("ResumeProcesses")
    kit.wait()
    assert kit.group["SuspendedProcesses"] == []
    assert (len(kit.ids), dead in kit.ids) == (1, False)


def test_launches_in_flight_finish_when_launch_is_suspended(kit: Kit) -> None:
    kit.scaling.launch_takes = lambda: 5.0
    kit.create(2, wait=1)
    kit.on("SuspendProcesses", ScalingProcesses=["Launch"])
    kit.on("SetDesiredCapacity", DesiredCapacity=4)
    kit.wait(30)
    assert list(kit.states.values()) == ["InService", "InService"]


# Ending


def test_a_group_with_instances_is_deleted_by_force_only(kit: Kit) -> None:
    kit.ec2.lingers = True
    kit.create(2)
    assert refusal(kit, "DeleteAutoScalingGroup").startswith(
        "ResourceInUse: You cannot delete an AutoScalingGroup while"
    )
    kit.on("UpdateAutoScalingGroup", MinSize=0, DesiredCapacity=0)
    kit.wait()
    assert refusal(kit, "DeleteAutoScalingGroup").startswith("ScalingActivityInProgress")
    kit.on("DeleteAutoScalingGroup", ForceDelete=True)
    assert kit.group["Status"] == "Delete in progress"
    assert refusal(kit, "SetDesiredCapacity", DesiredCapacity=0).startswith("ScalingActivityInProgress")
    for name in kit.ids:
        kit.ec2.become(name, "terminated")
    kit.wait()
    assert kit.ask("DescribeAutoScalingGroups")["AutoScalingGroups"] == []
    assert {activity["AutoScalingGroupState"] for activity in kit.activities} == {"Deleted"}
    assert refusal(kit, "DescribeScalingActivities").startswith("ValidationError")
    assert refusal(kit, "DeleteAutoScalingGroup").endswith("AutoScalingGroup 'g' not found")


def test_force_ends_what_hooks_hold_and_launches_nothing(kit: Kit) -> None:
    kit.scaling.launch_takes = lambda: 5.0
    hooks = [{"LifecycleHookName": "h", "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING"}]
    kit.create(1, wait=10, LifecycleHookSpecificationList=hooks)
    kit.on("SetDesiredCapacity", DesiredCapacity=2)
    kit.wait(1)
    kit.on("DeleteAutoScalingGroup", ForceDelete=True)
    kit.wait(10)
    assert kit.scaling.groups == {}
    assert len(kit.ec2.runs) == 1
    kit.create(0)
    assert kit.group["Instances"] == []


def test_an_empty_group_is_deleted(kit: Kit) -> None:
    kit.create(0)
    kit.on("DeleteAutoScalingGroup")
    kit.wait(0)
    assert kit.ask("DescribeAutoScalingGroups")["AutoScalingGroups"] == []


def test_activities_are_paged_from_the_newest(kit: Kit) -> None:
    kit.create(5)
    first = kit.on("DescribeScalingActivities", MaxRecords=3)
    second = kit.on("DescribeScalingActivities", MaxRecords=3, NextToken=first["NextToken"])
    ids = [activity["ActivityId"] for activity in first["Activities"] + second["Activities"]]
    assert ids == [activity["ActivityId"] for activity in kit.activities]
    assert "NextToken" not in second
    assert len(kit.on("DescribeScalingActivities", ActivityIds=ids[:1])["Activities"]) == 1


def test_messages_of_ec2_appear_in_activities() -> None:
    assert no_capacity("t3.micro", "us-east-1a").code == "InsufficientInstanceCapacity"
