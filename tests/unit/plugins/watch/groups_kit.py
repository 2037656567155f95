"""Auto Scaling groups in an account whose time passes only while the caller waits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch import capacity_watcher
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity import GroupTarget, Policy, WaitRules
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity_watcher import AutoScaling, CapacityWatch
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.setup_reports import SetupReports

from tests.account.fleet import ACCOUNT
from tests.unit.conftest import Account

REGION = "us-east-1"
BUCKET = f"c-{ACCOUNT}-{REGION}"
BUNDLE = "1" * 64
TYPE, ZONE = "g5.xlarge", f"{REGION}a"
STEP_SECONDS = 1.0
"""How often something can happen during one wait."""
LONGEST_WAIT = 120


class Groups:
    """A master's and a workers' group, as the role machines creates them."""

    def __init__(self, account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
        self.account = account
        self.clock = account.cloud.clock
        monkeypatch.setattr(time, "sleep", self.wait)
        monkeypatch.setattr(capacity_watcher, "time", SimpleNamespace(time=self.clock.time, sleep=self.wait))
        # moto dates objects by the time that it really is.
        monkeypatch.setattr("moto.s3.models.utcnow", self.now)
        self.ec2, self.scaling = account.client("ec2"), account.client("autoscaling")
        images = self.ec2.describe_images(Filters=[{"Name": "name", "Values": ["Deep Learning Base*22.04*"]}])
        self.image = images["Images"][0]["ImageId"]
        vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnet = self.ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24", AvailabilityZone=ZONE)
        self.subnet = subnet["Subnet"]["SubnetId"]
        account.client("s3").create_bucket(Bucket=BUCKET)
        self.lines: list[str] = []
        self._in_step = False

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.time(), UTC)

    def wait(self, seconds: float) -> None:
        """Let time pass, and what happens in it."""
        end = self.clock.time() + seconds
        while (left := end - self.clock.time()) > 0:
            with self.account.cloud.lock:
                self.clock.advance(min(left, STEP_SECONDS))
            if not self._in_step:
                self._in_step = True
                try:
                    self.step()
                finally:
                    self._in_step = False

    def step(self) -> None:
        """Do what happens beside the one who waits."""

    def wait_until(self, condition: Callable[[], bool]) -> None:
        end = self.clock.time() + LONGEST_WAIT
        while not condition():
            assert self.clock.time() < end, "it has not come about"
            self.wait(STEP_SECONDS)

    def aws(self, role_arn: str = "") -> Aws:
        return Aws(REGION, role_arn=role_arn, endpoint=self.account.endpoint, wait=self.wait)

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

    def wait_for_capacity(
        self,
        *targets: GroupTarget,
        policy: Policy = Policy.AT_LEAST,
        seconds: float = 60,
        since: float = 5,
        settle: float = 3,
        role_arn: str = "",
    ) -> dict[str, Any]:
        """Wait as the action does; `since` is how long ago the run began. No machine reports."""
        now, aws = self.clock.time(), self.aws(role_arn)
        rules = WaitRules(policy, now + seconds, settle, BUNDLE)
        reports = SetupReports(aws, BUCKET, ACCOUNT, {target.name: "AROA" for target in targets})
        return CapacityWatch(AutoScaling(aws), targets, rules, now - since, self.lines.append, reports).run()

    def running(self) -> int:
        filters = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        reservations = self.ec2.describe_instances(Filters=filters)["Reservations"]
        return sum(len(reservation["Instances"]) for reservation in reservations)

    def group(self, what: str) -> Any:
        return self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[f"c-{what}"])["AutoScalingGroups"][0]

    def writes(self) -> list[str]:
        """The writing calls so far, as service:Operation."""
        return [
            f"{call['service']}:{call['operation']}"
            for call in self.account.cloud.calls.since()
            if call["writes"] and call["caller"].endswith("user/operator")
        ]

    def role(self, name: str) -> str:
        """The ARN of a new role that everybody in the account may assume, and that may do everything."""
        iam = self.account.client("iam")
        trust = {"Effect": "Allow", "Principal": {"AWS": "123456789012"}, "Action": "sts:AssumeRole"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        created = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)["Role"]
        iam.attach_role_policy(RoleName=name, PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess")
        return str(created["Arn"])
