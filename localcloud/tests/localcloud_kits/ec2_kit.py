"""What the tests of EC2 share: short ways to ask, and machines that only record their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localcloud.api.ec2 import images
from localcloud.api.ec2.lifecycle import machine_exited, machine_started
from localcloud.core.caller import Caller
from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError
from localcloud.core.views import InstanceView
from localcloud.testing.clock import ManualClock

REGION = "us-east-1"
USER = Caller("user", "tester", "arn:aws:iam::123456789012:user/tester", "AIDATESTER")


class Recorder:
    """Machines that do nothing; the tests say what becomes of them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.views: list[InstanceView] = []
        self.order: list[str] = []
        self.written = ""
        self.settings: dict[str, Mapping[str, Any]] = {}
        self.reports: dict[str, Callable[..., None]] = {}

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def _note(self, name: str, instance_id: str) -> None:
        self.calls.append((name, instance_id))
        self.order.append(name)

    def start(self, instance: InstanceView) -> None:
        self.views.append(instance)
        self._note("start", instance.id)

    def stop(self, instance_id: str) -> None:
        self._note("stop", instance_id)

    def destroy(self, instance_id: str) -> None:
        self._note("destroy", instance_id)

    def reboot(self, instance_id: str) -> None:
        self._note("reboot", instance_id)

    def provision(self, instance_id: str, settings: Mapping[str, Any], report: Callable[..., None]) -> None:
        self._note("provision", instance_id)
        self.settings[instance_id] = settings
        self.reports[instance_id] = report

    def copy_disk(self, instance_id: str, name: str, done: Callable[[tuple[Path, ...]], None]) -> None:
        self._note("copy_disk", instance_id)
        self.copied = done

    def console(self, instance_id: str) -> str:
        return self.written


class Ec2:
    """`ec2("RunInstances", …)` asks as a user would."""

    def __init__(self, cloud: Cloud, clock: ManualClock) -> None:
        self.cloud = cloud
        self.clock = clock

    def __call__(self, operation: str, region: str = REGION, service: str = "ec2", **params: Any) -> dict[str, Any]:
        return self.cloud.ask(service, operation, region, params, USER)

    def run(self, boots_nothing: bool = False, **params: Any) -> dict[str, Any]:
        image = images.API_ONLY if boots_nothing else images.BASE
        if "LaunchTemplate" not in params:
            params = {"ImageId": image.id, "InstanceType": "t3.micro", **params}
        return self("RunInstances", **{"MinCount": 1, "MaxCount": 1, **params})

    def running(self, **params: Any) -> dict[str, Any]:
        """One instance whose machine has come up."""
        [instance] = self.run(**params)["Instances"]
        machine_started(self.cloud, instance["InstanceId"])
        self.clock.advance(60)
        assert self.state(instance) == "running"
        return self.describe(instance)

    def stopped(self, instance: dict[str, Any]) -> None:
        self("StopInstances", InstanceIds=[instance["InstanceId"]])
        machine_exited(self.cloud, instance["InstanceId"], "stopped")
        self.clock.advance(60)
        assert self.state(instance) == "stopped"

    def terminated(self, instance: dict[str, Any]) -> None:
        self("TerminateInstances", InstanceIds=[instance["InstanceId"]])
        machine_exited(self.cloud, instance["InstanceId"], "destroyed")
        self.clock.advance(60)
        assert self.state(instance) == "terminated"

    def describe(self, instance: dict[str, Any]) -> dict[str, Any]:
        [reservation] = self("DescribeInstances", InstanceIds=[instance["InstanceId"]])["Reservations"]
        described: dict[str, Any] = reservation["Instances"][0]
        return described

    def state(self, instance: dict[str, Any]) -> str:
        return str(self.describe(instance)["State"]["Name"])

    def tags_of(self, resource_id: str) -> dict[str, str]:
        result = self("DescribeTags", Filters=[{"Name": "resource-id", "Values": [resource_id]}])["Tags"]
        return {tag["Key"]: tag["Value"] for tag in result}

    def subnet(self, cidr: str = "10.0.0.0/24", zone: str = f"{REGION}a", vpc: str | None = None) -> tuple[str, str]:
        """A subnet, in a new VPC if none is given."""
        vpc = vpc or self("CreateVpc", CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        made = self("CreateSubnet", VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]
        return vpc, made["SubnetId"]

    def nat_gateway(self, subnet: str) -> str:
        address = self("AllocateAddress", Domain="vpc")["AllocationId"]
        made: str = self("CreateNatGateway", SubnetId=subnet, AllocationId=address)["NatGateway"]["NatGatewayId"]
        return made

    @contextmanager
    def refused(self, code: str, words: str = "") -> Iterator[None]:
        with pytest.raises(AwsError) as caught:
            yield
        assert caught.value.code == code, caught.value
        assert words in caught.value.message
