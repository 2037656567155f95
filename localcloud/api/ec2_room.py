"""How many instances there is room for: quota, capacity, and addresses of the subnet."""

from __future__ import annotations

from collections import Counter

from localcloud.api.ec2_instance import Launch
from localcloud.api.ec2_records import instances_in, zones_of
from localcloud.api.ec2_types import vcpus, zones_with
from localcloud.api.quotas import family_of, vcpu_limit
from localcloud.cloud import Cloud
from localcloud.errors import AwsError


def room(cloud: Cloud, launch: Launch, least: int, most: int) -> int:
    """As many instances as quota, capacity and subnet leave room for; too few are a refusal."""
    quota = quota_room(cloud, launch)
    if quota < least:
        limit = int(vcpu_limit(cloud, launch.type, launch.spot))
        if launch.spot:
            raise AwsError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        raise AwsError(
            "VcpuLimitExceeded",
            f"You have requested more vCPU capacity than your current vCPU limit of {limit} allows for the "
            "instance bucket "
            "that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to "
            "request an adjustment to this limit.",
        )
    count = min(most, quota, _addresses_left(launch, least))
    capacity = cloud.faults.capacity_left(launch.type, launch.zone)
    if capacity is not None and capacity < least:
        raise no_capacity(cloud, launch.region, launch.type, launch.zone)
    return count if capacity is None else min(count, capacity)


def _addresses_left(launch: Launch, least: int) -> int:
    """How many instances the subnets have addresses for."""
    if any(spec.existing is not None or spec.address is not None for spec in launch.interfaces):
        if least > 1:
            raise AwsError(
                "InvalidParameterCombination", "One address or network interface cannot be that of several instances."
            )
        return 1
    needed = Counter(spec.subnet.id for spec in launch.interfaces)
    subnets = {spec.subnet.id: spec.subnet for spec in launch.interfaces}
    for key, each in needed.items():
        if subnets[key].available_ip_address_count < each * least:
            raise AwsError(
                "InsufficientFreeAddressesInSubnet",
                f"There are not enough free addresses in subnet '{key}' to satisfy the requested number of instances.",
            )
    return min(int(subnets[key].available_ip_address_count) // each for key, each in needed.items())


def quota_room(cloud: Cloud, launch: Launch) -> int:
    """How many more instances of a type the quota of vCPUs allows."""
    used = used_vcpus(cloud, launch.region, launch.type, launch.spot)
    return int((vcpu_limit(cloud, launch.type, launch.spot) - used) // vcpus(launch.type))


def used_vcpus(cloud: Cloud, region: str, instance_type: str, spot: bool) -> int:
    family = family_of(instance_type)
    counted: dict[str, int] = {}
    for instance in instances_in(cloud, region):
        if instance.state in ("pending", "running") and (instance.lifecycle == "spot") == spot:
            counted[instance.instance_type] = counted.get(instance.instance_type, 0) + 1
    return sum(vcpus(kind) * number for kind, number in counted.items() if family_of(kind) == family)


def no_capacity(cloud: Cloud, region: str, instance_type: str, zone: str) -> AwsError:
    zones = zones_with(instance_type, region, [candidate.name for candidate in zones_of(region)])
    others = [other for other in zones if other != zone and _has_room(cloud, instance_type, other)]
    hint = (
        f"You can currently get {instance_type} capacity by not specifying an Availability Zone in your "
        "request or choosing "
        f"{', '.join(others)}."
        if others
        else f"You can currently not get {instance_type} capacity in this region."
    )
    return AwsError(
        "InsufficientInstanceCapacity",
        f"We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested "
        f"({zone}). Our "
        f"system will be working on provisioning additional capacity. {hint}",
        500,
    )


def _has_room(cloud: Cloud, instance_type: str, zone: str) -> bool:
    left = cloud.faults.capacity_left(instance_type, zone)
    return left is None or left > 0
