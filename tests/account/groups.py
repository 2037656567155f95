"""A master's and a workers' Auto Scaling group, made by plain boto3."""

from __future__ import annotations

import time
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster.capacity import GroupTarget, Policy, WaitRules
from ansible_collections.deeplearning.aws.plugins.plugin_utils.cluster.capacity_watcher import (
    AutoScaling,
    CapacityWatch,
)

TYPE, ZONE = "g5.xlarge", "us-east-1a"


class Groups:
    """A master's and a workers' group, as the role machines creates them."""

    def __init__(self, account: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.account = account
        self.ec2, self.scaling = account.client("ec2"), account.client("autoscaling")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, account.environment[name])
        images = self.ec2.describe_images(Filters=[{"Name": "name", "Values": ["Deep Learning Base*22.04*"]}])
        self.image = images["Images"][0]["ImageId"]
        vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnet = self.ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24", AvailabilityZone=ZONE)
        self.subnet = subnet["Subnet"]["SubnetId"]
        self.lines: list[str] = []

    def template(self, name: str = "c-workers", **more: Any) -> str:
        data = {"ImageId": self.image, "InstanceType": TYPE, **more}
        created = self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        return str(created["LaunchTemplate"]["LaunchTemplateId"])

    def make(self, template: str, version: str = "1", desired: int | None = None, **sizes: int) -> None:
        for what, size in sizes.items():
            self.scaling.create_auto_scaling_group(
                AutoScalingGroupName=f"c-{what}",
                MinSize=0,
                MaxSize=size,
                DesiredCapacity=size if desired is None else desired,
                VPCZoneIdentifier=self.subnet,
                LaunchTemplate={"LaunchTemplateId": template, "Version": version},
            )

    def wait(
        self,
        *targets: GroupTarget,
        policy: Policy = Policy.AT_LEAST,
        seconds: float = 60,
        since: float = 5,
        role_arn: str = "",
    ) -> dict[str, Any]:
        api = AutoScaling(Aws("us-east-1", role_arn=role_arn, endpoint=self.account.endpoint))
        rules = WaitRules(policy, time.time() + seconds, settle=3)
        return CapacityWatch(api, targets, rules, time.time() - since, self.lines.append).run()

    def running(self) -> int:
        filters = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        reservations = self.ec2.describe_instances(Filters=filters)["Reservations"]
        return sum(len(reservation["Instances"]) for reservation in reservations)

    def group(self, what: str) -> Any:
        return self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[f"c-{what}"])["AutoScalingGroups"][0]
