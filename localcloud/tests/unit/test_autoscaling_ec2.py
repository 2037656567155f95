"""Auto Scaling with the EC2 of this cloud: what each asks of the other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localcloud.api.ec2.images import API_ONLY
from localcloud.core.caller import Caller
from localcloud.core.cloud import Call, Cloud, handler_of
from localcloud.core.errors import AwsError
from localcloud.core.latency import Latency
from localcloud.testing.clock import ManualClock

REGION = "us-east-1"


class Site:
    """A network, a template, and a group of the name g."""

    def __init__(self, cloud: Cloud, clock: ManualClock) -> None:
        self.cloud, self.clock = cloud, clock
        vpc = self.ask("ec2", "CreateVpc", CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.subnets = [
            self.ask("ec2", "CreateSubnet", VpcId=vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone=zone)[
                "Subnet"
            ]["SubnetId"]
            for number, zone in enumerate(("us-east-1a", "us-east-1b"))
        ]
        group = self.ask("ec2", "CreateSecurityGroup", GroupName="all", Description="all", VpcId=vpc)["GroupId"]
        self.data = {"ImageId": API_ONLY.id, "InstanceType": "t3.micro", "SecurityGroupIds": [group]}
        self.template = self.make_template(self.data)

    def ask(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        handler = handler_of(service, operation)
        call = Call(self.cloud, service, operation, params, REGION, Caller.service("tests"))
        return dict((handler(call) if handler else call.moto()) or {})

    def make_template(self, data: dict[str, Any], name: str = "web") -> str:
        made = self.ask("ec2", "CreateLaunchTemplate", LaunchTemplateName=name, LaunchTemplateData=data)
        return str(made["LaunchTemplate"]["LaunchTemplateId"])

    def create(self, desired: int, subnets: int = 1, wait: float = 3, **more: Any) -> None:
        self.ask(
            "autoscaling",
            "CreateAutoScalingGroup",
            AutoScalingGroupName="g",
            MinSize=0,
            MaxSize=100,
            DesiredCapacity=desired,
            **{
                "VPCZoneIdentifier": ",".join(self.subnets[:subnets]),
                "LaunchTemplate": {"LaunchTemplateId": self.template},
                **more,
            },
        )
        self.clock.advance(wait)

    @property
    def states(self) -> dict[str, str]:
        groups = self.ask("autoscaling", "DescribeAutoScalingGroups")["AutoScalingGroups"]
        return {member["InstanceId"]: member["LifecycleState"] for group in groups for member in group["Instances"]}

    @property
    def activities(self) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = self.ask("autoscaling", "DescribeScalingActivities")["Activities"]
        return result

    def instance(self, name: str) -> dict[str, Any]:
        result: dict[str, Any] = self.ask("ec2", "DescribeInstances", InstanceIds=[name])["Reservations"][0][
            "Instances"
        ][0]
        return result


@pytest.fixture
def site(cloud: Cloud, clock: ManualClock) -> Site:
    return Site(cloud, clock)


def test_instances_bear_what_group_and_template_say(site: Site) -> None:
    site.template = site.make_template(
        {**site.data, "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "t", "Value": "2"}]}]},
        "tagged",
    )
    site.create(1, Tags=[{"Key": "a", "Value": "1", "PropagateAtLaunch": True}, {"Key": "hidden", "Value": "x"}])
    (name,) = site.states
    instance = site.instance(name)
    assert {tag["Key"]: tag["Value"] for tag in instance["Tags"]} == {
        "a": "1",
        "t": "2",
        "aws:autoscaling:groupName": "g",
        "aws:ec2launchtemplate:id": site.template,
        "aws:ec2launchtemplate:version": "1",
    }
    assert (instance["SubnetId"], instance["InstanceType"]) == (site.subnets[0], "t3.micro")
    assert site.states == {name: "InService"}


def test_interfaces_of_a_template_get_the_subnet(site: Site) -> None:
    interface = {"DeviceIndex": 0, "Groups": site.data.pop("SecurityGroupIds"), "DeleteOnTermination": True}
    site.template = site.make_template({**site.data, "NetworkInterfaces": [interface]}, "cards")
    site.create(1)
    assert site.instance(next(iter(site.states)))["SubnetId"] == site.subnets[0]


def test_capacity_that_is_missing_and_comes_back(site: Site) -> None:
    fault = site.cloud.faults.add("capacity", {"type": "t3.micro", "zone": "us-east-1a"}, 2)
    site.create(3)
    assert list(site.states.values()) == ["InService", "InService"]
    output = site.activities[0]["StatusMessage"]
    assert output.startswith(
        "We currently do not have sufficient t3.micro capacity in the Availability Zone you requested"
    )
    assert output.endswith("Launching EC2 instance failed.")
    site.cloud.faults.remove(fault)
    site.clock.advance(6)
    assert list(site.states.values()) == ["InService"] * 3


def test_what_is_killed_is_replaced_within_a_second(site: Site) -> None:
    site.create(2)
    dead = next(iter(site.states))
    site.ask("ec2", "TerminateInstances", InstanceIds=[dead])
    site.clock.advance(0.5)
    assert dead not in site.states
    assert list(site.states.values()) == ["InService", "InService"]


def test_what_is_frozen_is_replaced_after_its_grace_period(site: Site) -> None:
    site.create(1, HealthCheckGracePeriod=30)
    (name,) = site.states
    site.cloud.faults.add("frozen", {"instance": name})
    site.clock.advance(20)
    assert list(site.states) == [name]
    site.clock.advance(20)
    assert name not in site.states


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ImageId": "ami-0123456789abcdef0"}, "valid fully-formed launch template. The image id"),
        ({"IamInstanceProfile": {"Name": "missing"}}, "valid fully-formed launch template. Value (missing)"),
        ({"InstanceType": "t3.enormous"}, "valid fully-formed launch template. Invalid value 't3.enormous'"),
    ],
)
def test_a_template_that_launches_nothing_is_refused(site: Site, wrong: dict[str, Any], words: str) -> None:
    site.template = site.make_template({**site.data, **wrong}, "wrong")
    with pytest.raises(AwsError) as caught:
        site.create(1)
    assert (caught.value.code, words in caught.value.message) == ("ValidationError", True), caught.value.message
    assert site.ask("ec2", "DescribeInstances")["Reservations"] == []


def test_a_template_that_goes_away_is_a_failed_activity(site: Site) -> None:
    site.create(0)
    site.ask("ec2", "DeleteLaunchTemplate", LaunchTemplateId=site.template)
    site.ask("autoscaling", "SetDesiredCapacity", AutoScalingGroupName="g", DesiredCapacity=1)
    site.clock.advance(1)
    assert (site.activities[0]["StatusCode"], site.states) == ("Failed", {})
    assert site.activities[0]["StatusMessage"].endswith("does not exist. Launching EC2 instance failed.")


def test_a_subnet_that_is_gone_is_one_more_failed_activity(site: Site) -> None:
    site.create(0, subnets=2)
    site.ask("ec2", "DeleteSubnet", SubnetId=site.subnets[0])
    site.ask("autoscaling", "SuspendProcesses", AutoScalingGroupName="g", ScalingProcesses=["AZRebalance"])
    site.ask("autoscaling", "SetDesiredCapacity", AutoScalingGroupName="g", DesiredCapacity=2)
    site.clock.advance(3)
    failed = [
        json.loads(activity["Details"])["Subnet ID"]
        for activity in site.activities
        if activity["StatusCode"] == "Failed"
    ]
    assert (failed, len(site.states)) == ([site.subnets[0]], 2)


def test_termination_protection_does_not_bind_auto_scaling(site: Site) -> None:
    site.template = site.make_template({**site.data, "DisableApiTermination": True}, "kept")
    site.create(1)
    site.ask("autoscaling", "DeleteAutoScalingGroup", AutoScalingGroupName="g", ForceDelete=True)
    site.clock.advance(3)
    assert site.ask("autoscaling", "DescribeAutoScalingGroups")["AutoScalingGroups"] == []


def test_a_detached_instance_is_no_member(site: Site) -> None:
    site.create(1)
    (name,) = site.states
    group = {"AutoScalingGroupName": "g", "InstanceIds": [name]}
    site.ask("autoscaling", "DetachInstances", ShouldDecrementDesiredCapacity=True, **group)
    assert "aws:autoscaling:groupName" not in {tag["Key"] for tag in site.instance(name)["Tags"]}
    assert site.states == {}


def test_the_role_of_auto_scaling_is_made(site: Site) -> None:
    site.create(0)
    role = site.ask("iam", "GetRole", RoleName="AWSServiceRoleForAutoScaling")["Role"]
    assert role["Path"] == "/aws-service-role/autoscaling.amazonaws.com/"


class TestWithLatency:
    @pytest.fixture
    def latency(self) -> Latency:
        return Latency("some", {"autoscaling_launch": 5, "instance_running": 20, "instance_terminated": 30})

    def test_states_follow_in_their_time(self, site: Site) -> None:
        site.create(1, wait=4)
        assert site.states == {}
        site.clock.advance(2)
        assert list(site.states.values()) == ["Pending"]
        site.clock.advance(20)
        assert list(site.states.values()) == ["InService"]
        site.ask("autoscaling", "SetDesiredCapacity", AutoScalingGroupName="g", DesiredCapacity=0)
        site.clock.advance(20)
        assert list(site.states.values()) == ["Terminating"]
        site.clock.advance(15)
        assert site.states == {}
