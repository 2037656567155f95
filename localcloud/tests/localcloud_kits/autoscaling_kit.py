"""What the tests of Auto Scaling share: an EC2 that obeys at once, and a way to call."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localcloud.api.autoscaling.ec2 import InstanceStatus, LaunchRequest, Template, run_parameters
from localcloud.api.autoscaling.engine import Scaling
from localcloud.api.autoscaling.records import LaunchTemplateSpecification
from localcloud.api.autoscaling.regions import Regions, scaling_in
from localcloud.core.caller import Caller
from localcloud.core.cloud import Call, Cloud, handler_of
from localcloud.core.errors import AwsError
from localcloud.testing.clock import ManualClock

REGION = "us-east-1"
SUBNETS = {"subnet-a": "us-east-1a", "subnet-b": "us-east-1b", "subnet-c": "us-east-1c"}


def no_capacity(kind: str, zone: str) -> AwsError:
    return AwsError(
        "InsufficientInstanceCapacity",
        f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested ({zone}). "
        "Our system will be working on provisioning additional capacity.",
        500,
    )


@dataclass
class FakeEc2:
    """Instances run as soon as they are launched (unless `slow`), and end as soon as they are terminated."""

    latest: int = 1
    data: dict[str, Any] = field(default_factory=lambda: {"InstanceType": "t3.micro", "ImageId": "ami-1"})
    capacity: dict[tuple[str, str], int] = field(default_factory=dict)
    refuses: AwsError | None = None
    refuses_dry_run: AwsError | None = None
    slow: bool = False
    lingers: bool = False
    instances: dict[str, InstanceStatus] = field(default_factory=dict)
    requests: list[LaunchRequest] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def template(self, specification: Mapping[str, Any]) -> Template:
        if "lt-1" not in (specification.get("LaunchTemplateId"),) and specification.get("LaunchTemplateName") != "web":
            raise AwsError(
                "InvalidLaunchTemplateId.NotFound",
                f"The specified launch template, with template ID {specification.get('LaunchTemplateId')}, "
                "does not exist.",
            )
        version = str(specification.get("Version") or "$Default")
        number = {"$Latest": str(self.latest), "$Default": "1"}.get(version, version)
        if int(number) > self.latest:
            raise AwsError(
                "InvalidLaunchTemplateId.VersionNotFound", f"Could not find the specified version {version}."
            )
        return Template(LaunchTemplateSpecification("lt-1", "web", number), self.data)

    def zones_of(self, subnets: Sequence[str]) -> dict[str, str]:
        for name in subnets:
            if name not in SUBNETS:
                raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{name}' does not exist")
        return {name: SUBNETS[name] for name in subnets}

    def dry_run(self, request: LaunchRequest, caller: Caller) -> None:
        if self.refuses_dry_run:
            raise self.refuses_dry_run

    def run(self, request: LaunchRequest) -> tuple[str, str]:
        params = run_parameters(request)
        kind = params.get("InstanceType") or self.data["InstanceType"]
        self.requests.append(request)
        if self.refuses:
            raise self.refuses
        left = self.capacity.get((kind, request.subnet.zone))
        if left is not None:
            if left <= 0:
                raise no_capacity(kind, request.subnet.zone)
            self.capacity[kind, request.subnet.zone] = left - 1
        self.runs.append(params)
        name = f"i-{next(self._numbers):017x}"
        self.instances[name] = InstanceStatus("pending" if self.slow else "running")
        self.tags[name] = dict(request.tags)
        return name, kind

    def statuses(self, ids: Collection[str]) -> dict[str, InstanceStatus]:
        return {name: self.instances[name] for name in ids if name in self.instances}

    def terminate(self, instance_id: str) -> None:
        self.become(instance_id, "shutting-down" if self.lingers else "terminated")

    def untag(self, instance_id: str, keys: Sequence[str]) -> None:
        for key in keys:
            self.tags[instance_id].pop(key, None)

    def become(self, instance_id: str, state: str, **what: Any) -> None:
        self.instances[instance_id] = replace(self.instances[instance_id], state=state, **what)


@dataclass
class Kit:
    cloud: Cloud
    clock: ManualClock
    ec2: FakeEc2

    @property
    def scaling(self) -> Scaling:
        return scaling_in(self.cloud, REGION)

    def ask(self, operation: str, **params: Any) -> dict[str, Any]:
        handler = handler_of("autoscaling", operation)
        assert handler is not None, operation
        call = Call(self.cloud, "autoscaling", operation, params, REGION, Caller.service("tests"))
        return dict(handler(call) or {})

    def on(self, operation: str, **params: Any) -> dict[str, Any]:
        """Asked of the group g."""
        return self.ask(operation, AutoScalingGroupName="g", **params)

    def create(self, desired: int, least: int = 0, most: int = 10, wait: float = 3, **more: Any) -> None:
        settings: dict[str, Any] = {
            "VPCZoneIdentifier": "subnet-a",
            "LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "$Latest"},
        }
        settings |= {"HealthCheckGracePeriod": 0, **more}
        self.on("CreateAutoScalingGroup", MinSize=least, MaxSize=most, DesiredCapacity=desired, **settings)
        self.clock.advance(wait)

    def wait(self, seconds: float = 3) -> None:
        self.clock.advance(seconds)

    @property
    def group(self) -> dict[str, Any]:
        result: dict[str, Any] = self.ask("DescribeAutoScalingGroups", AutoScalingGroupNames=["g"])[
            "AutoScalingGroups"
        ][0]
        return result

    @property
    def states(self) -> dict[str, str]:
        return {instance["InstanceId"]: instance["LifecycleState"] for instance in self.group["Instances"]}

    @property
    def ids(self) -> list[str]:
        return list(self.states)

    @property
    def activities(self) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = self.ask(
            "DescribeScalingActivities", AutoScalingGroupName="g", IncludeDeletedGroups=True
        )["Activities"]
        return result


def kit_for(cloud: Cloud, clock: ManualClock) -> Kit:
    ec2 = FakeEc2()
    regions: Regions = cloud.records("autoscaling", Regions)
    regions.port = lambda _cloud, _region: ec2
    return Kit(cloud, clock, ec2)
