"""All that Auto Scaling asks of EC2."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from localcloud.api.auth import Caller, service_caller
from localcloud.api.ec2_describe import status_of
from localcloud.api.ec2_records import records_of
from localcloud.autoscaling.records import Place, Spec
from localcloud.errors import AwsError

if TYPE_CHECKING:
    from localcloud.api.ec2_instance import Instance
    from localcloud.cloud import Cloud

OF_THE_PLACE = frozenset(
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
"""Errors that another zone, or another type, may not have."""


@dataclass(frozen=True)
class Template:
    """A version of a launch template."""

    spec: Spec
    """with the version as a number"""
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Order:
    """One instance to be launched."""

    place: Place
    tags: Mapping[str, str]
    template: Template | None = None
    configuration: Mapping[str, Any] | None = None
    type: str | None = None
    """instead of the template's"""
    placement_group: str | None = None


@dataclass(frozen=True)
class Launched:
    id: str
    type: str
    image: str
    zone: str
    subnet: str | None


@dataclass(frozen=True)
class Seen:
    """An instance as EC2 knows it."""

    state: str
    impaired: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Known:
    """An instance that a group shall take in."""

    launched: Launched
    state: str
    tags: Mapping[str, str] = field(default_factory=dict)


class Ec2Port(Protocol):
    """Whatever EC2 refuses is raised as AwsError."""

    def template(self, spec: Mapping[str, Any]) -> Template:
        """A version of a template by LaunchTemplateId or LaunchTemplateName, and Version."""

    def zones_of(self, subnets: Sequence[str]) -> dict[str, str]:
        """The zone of each subnet."""

    def zones(self) -> list[str]:
        """All zones of the region."""

    def try_out(self, order: Order, caller: Caller) -> None:
        """Would EC2 accept it, from this caller?"""

    def run(self, order: Order) -> Launched: ...

    def look(self, ids: Collection[str]) -> dict[str, Seen]:
        """Those that EC2 still knows."""

    def know(self, instance_id: str) -> Known: ...

    def terminate(self, instance_id: str) -> None: ...

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None: ...

    def untag(self, instance_id: str, keys: Sequence[str]) -> None: ...


def run_params(order: Order) -> dict[str, Any]:
    """What RunInstances is asked for."""
    params: dict[str, Any] = {"MinCount": 1, "MaxCount": 1}
    data: Mapping[str, Any] = {}
    if order.template is not None:
        data = order.template.data
        params["LaunchTemplate"] = {"LaunchTemplateId": order.template.spec.id, "Version": order.template.spec.version}
    elif order.configuration is not None:
        params.update(order.configuration)
    if order.type:
        params["InstanceType"] = order.type
    interfaces = params.get("NetworkInterfaces") or data.get("NetworkInterfaces")
    if interfaces and order.place.subnet:
        # A subnet beside network interfaces would be refused: it belongs to each of them.
        params["NetworkInterfaces"] = [{**interface, "SubnetId": order.place.subnet} for interface in interfaces]
    elif order.place.subnet:
        params["SubnetId"] = order.place.subnet
    placement = {"GroupName": order.placement_group} if order.placement_group else {}
    if not order.place.subnet:
        placement["AvailabilityZone"] = order.place.zone
    if placement:
        params["Placement"] = placement
    tags = [{"Key": key, "Value": value} for key, value in order.tags.items()]
    params["TagSpecifications"] = [{"ResourceType": "instance", "Tags": tags}]
    return params


class CloudEc2:
    """EC2 as this cloud has it."""

    def __init__(self, cloud: Cloud, region: str) -> None:
        self._cloud = cloud
        self._region = region
        self._self = service_caller("autoscaling.amazonaws.com")

    def _ask(self, operation: str, caller: Caller | None = None, **params: Any) -> dict[str, Any]:
        return self._cloud.ask("ec2", operation, self._region, params, caller or self._self)

    def template(self, spec: Mapping[str, Any]) -> Template:
        named = {key: spec[key] for key in ("LaunchTemplateId", "LaunchTemplateName") if spec.get(key)}
        if "LaunchTemplateId" in named:
            named.pop("LaunchTemplateName", None)
        version = str(spec.get("Version") or "$Default")
        found = self._ask("DescribeLaunchTemplateVersions", **named, Versions=[version])["LaunchTemplateVersions"]
        if not found:
            raise AwsError(
                "InvalidLaunchTemplateId.VersionNotFound",
                f"Could not find the specified version {version} for the launch template with ID "
                f"{spec.get('LaunchTemplateId') or spec.get('LaunchTemplateName')}.",
            )
        one = found[0]
        resolved = Spec(one["LaunchTemplateId"], one["LaunchTemplateName"], str(one["VersionNumber"]))
        return Template(resolved, one["LaunchTemplateData"])

    def zones_of(self, subnets: Sequence[str]) -> dict[str, str]:
        found = self._ask("DescribeSubnets", SubnetIds=list(subnets))["Subnets"]
        return {subnet["SubnetId"]: subnet["AvailabilityZone"] for subnet in found}

    def zones(self) -> list[str]:
        return [zone["ZoneName"] for zone in self._ask("DescribeAvailabilityZones")["AvailabilityZones"]]

    def try_out(self, order: Order, caller: Caller) -> None:
        try:
            self._ask("RunInstances", caller, DryRun=True, **run_params(order))
        except AwsError as error:
            if error.code != "DryRunOperation":
                raise

    def run(self, order: Order) -> Launched:
        return _launched(self._ask("RunInstances", **run_params(order))["Instances"][0])

    def look(self, ids: Collection[str]) -> dict[str, Seen]:
        # Straight from the records: this is asked every second, and describing a thousand instances takes its time.
        known = records_of(self._cloud).instances
        return {name: _seen(self._cloud, known[name]) for name in ids if name in known}

    def know(self, instance_id: str) -> Known:
        found = self._ask("DescribeInstances", InstanceIds=[instance_id])["Reservations"]
        instance = found[0]["Instances"][0]
        tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
        return Known(_launched(instance), instance["State"]["Name"], tags)

    def terminate(self, instance_id: str) -> None:
        try:
            self._ask("TerminateInstances", InstanceIds=[instance_id])
        except AwsError as error:
            if error.code != "OperationNotPermitted":
                raise
            # Termination protection is against users: it does not hold Auto Scaling up.
            self._ask("ModifyInstanceAttribute", InstanceId=instance_id, DisableApiTermination={"Value": False})
            self._ask("TerminateInstances", InstanceIds=[instance_id])

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
        self._ask("CreateTags", Resources=[instance_id], Tags=pairs)

    def untag(self, instance_id: str, keys: Sequence[str]) -> None:
        self._ask("DeleteTags", Resources=[instance_id], Tags=[{"Key": key} for key in keys])


def _seen(cloud: Cloud, instance: Instance) -> Seen:
    why = getattr(instance.state_reason, "message", None) or ""
    return Seen(instance.state, status_of(cloud, instance) == "impaired", why)


def _launched(instance: Mapping[str, Any]) -> Launched:
    return Launched(
        id=instance["InstanceId"],
        type=instance["InstanceType"],
        image=instance.get("ImageId", ""),
        zone=instance["Placement"]["AvailabilityZone"],
        subnet=instance.get("SubnetId"),
    )
