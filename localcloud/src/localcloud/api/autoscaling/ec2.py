"""The calls of EC2 that Auto Scaling makes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localcloud.api.autoscaling.records import LaunchTemplateSpecification, Subnet
from localcloud.api.ec2.filters import tag_list
from localcloud.api.ec2.instance import Instance
from localcloud.api.ec2.instances import status_of
from localcloud.api.ec2.launch_data import version_of
from localcloud.api.ec2.records import records_of
from localcloud.core.caller import Caller
from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError

ZONE_ERRORS = frozenset(
    {
        "InsufficientCapacityOnHost",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InvalidAvailabilityZone",
        "InvalidSubnetID.NotFound",
        "Unsupported",
    }
)
"""Errors that do not rule out another zone or another instance type."""


@dataclass(frozen=True)
class Template:
    """A version of a launch template."""

    specification: LaunchTemplateSpecification
    """with the version as a number"""
    data: Mapping[str, Any]


@dataclass(frozen=True)
class LaunchRequest:
    """A launch of one instance."""

    subnet: Subnet
    tags: Mapping[str, str]
    template: Template
    placement_group: str | None = None


@dataclass(frozen=True)
class InstanceStatus:
    """The state of an instance in EC2."""

    state: str
    impaired: bool = False
    reason: str = ""


def run_parameters(request: LaunchRequest) -> dict[str, Any]:
    """Return the parameters of RunInstances."""
    params: dict[str, Any] = {"MinCount": 1, "MaxCount": 1}
    specification = request.template.specification
    params["LaunchTemplate"] = {"LaunchTemplateId": specification.id, "Version": specification.version}
    interfaces = request.template.data.get("NetworkInterfaces")
    if interfaces:
        # EC2 refuses a subnet next to network interfaces: each interface names its own.
        params["NetworkInterfaces"] = [{**interface, "SubnetId": request.subnet.id} for interface in interfaces]
    else:
        params["SubnetId"] = request.subnet.id
    if request.placement_group:
        params["Placement"] = {"GroupName": request.placement_group}
    tags = tag_list(request.tags)
    params["TagSpecifications"] = [{"ResourceType": "instance", "Tags": tags}]
    return params


class CloudEc2:
    """The EC2 of the local cloud. Its errors are raised as AwsError."""

    def __init__(self, cloud: Cloud, region: str) -> None:
        self._cloud = cloud
        self._region = region
        self._self = Caller.service("autoscaling.amazonaws.com")

    def _ask(self, operation: str, caller: Caller | None = None, **params: Any) -> dict[str, Any]:
        return self._cloud.ask("ec2", operation, self._region, params, caller or self._self)

    def template(self, specification: Mapping[str, Any]) -> Template:
        """Return a version of a template by LaunchTemplateId or LaunchTemplateName, and Version."""
        version = version_of(self._region, specification)
        resolved = LaunchTemplateSpecification(version.template.id, version.template.name, str(version.number))
        return Template(resolved, version.data)

    def zones_of(self, subnets: Sequence[str]) -> dict[str, str]:
        records = self._ask("DescribeSubnets", SubnetIds=list(subnets))["Subnets"]
        return {record["SubnetId"]: record["AvailabilityZone"] for record in records}

    def dry_run(self, request: LaunchRequest, caller: Caller) -> None:
        """Raise AwsError if EC2 would refuse this launch to this caller."""
        # Auto Scaling itself adds the tags that a caller may not.
        tags = {key: value for key, value in request.tags.items() if not key.startswith("aws:")}
        try:
            self._ask("RunInstances", caller, DryRun=True, **run_parameters(replace(request, tags=tags)))
        except AwsError as error:
            if error.code != "DryRunOperation":
                raise

    def run(self, request: LaunchRequest) -> tuple[str, str]:
        """Launch an instance, and return its id and its type."""
        made = self._ask("RunInstances", **run_parameters(request))["Instances"][0]
        return made["InstanceId"], made["InstanceType"]

    def statuses(self, ids: Collection[str]) -> dict[str, InstanceStatus]:
        """Return the status of each of these instances that still exists."""
        # Straight from the records: this is asked every second, and describing a thousand instances takes its time.
        instances = records_of(self._cloud).instances
        return {name: _status(self._cloud, instances[name]) for name in ids if name in instances}

    def terminate(self, instance_id: str) -> None:
        try:
            self._ask("TerminateInstances", InstanceIds=[instance_id])
        except AwsError as error:
            if error.code != "OperationNotPermitted":
                raise
            # Termination protection does not stop Auto Scaling.
            records_of(self._cloud).instances[instance_id].disable_api_termination = False
            self._ask("TerminateInstances", InstanceIds=[instance_id])

    def untag(self, instance_id: str, keys: Sequence[str]) -> None:
        self._ask("DeleteTags", Resources=[instance_id], Tags=[{"Key": key} for key in keys])


def _status(cloud: Cloud, instance: Instance) -> InstanceStatus:
    reason = getattr(instance.state_reason, "message", None) or ""
    return InstanceStatus(instance.state, status_of(cloud, instance) == "impaired", reason)
