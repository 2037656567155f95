"""How many instances can be launched: quotas, capacity, and addresses."""

from __future__ import annotations

from collections import Counter

from localcloud.api.ec2.instance import Launch
from localcloud.api.ec2.instance_types import vcpus, zones_with
from localcloud.api.ec2.moto_records import zones_of
from localcloud.api.ec2.records import instances_in
from localcloud.api.quotas import code_of, vcpu_limit
from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error


def launchable_count(cloud: Cloud, launch: Launch, min_count: int, max_count: int) -> int:
    """Return the number of instances that quota, capacity and subnet allow. Raise AwsError if it is too low."""
    quota = quota_room(cloud, launch)
    if quota < min_count:
        raise _quota_exceeded(cloud, launch.type, launch.spot)
    count = min(max_count, quota, _addresses_left(launch, min_count))
    capacity = cloud.faults.capacity_left(launch.type, launch.zone)
    if capacity is not None and capacity < min_count:
        raise no_capacity(cloud, launch.region, launch.type, launch.zone)
    return count if capacity is None else min(count, capacity)


def _quota_exceeded(cloud: Cloud, instance_type: str, spot: bool) -> AwsError:
    if spot:
        return aws_error("ec2:RunInstances", "MaxSpotInstanceCountExceeded")
    limit = int(vcpu_limit(cloud, instance_type))
    return aws_error("ec2:RunInstances", "VcpuLimitExceeded", limit=limit)


def _addresses_left(launch: Launch, min_count: int) -> int:
    """Return the number of instances for which the subnets have free addresses."""
    needed = Counter(spec.subnet.id for spec in launch.interfaces)
    subnets = {spec.subnet.id: spec.subnet for spec in launch.interfaces}
    for key, each in needed.items():
        if subnets[key].available_ip_address_count < each * min_count:
            raise aws_error("ec2:RunInstances", "InsufficientFreeAddressesInSubnet", subnet=key)
    return min(int(subnets[key].available_ip_address_count) // each for key, each in needed.items())


def quota_room(cloud: Cloud, launch: Launch) -> int:
    """Return the number of instances of a type that the quota of vCPUs still allows."""
    used = used_vcpus(cloud, launch.region, launch.type, launch.spot)
    return int((vcpu_limit(cloud, launch.type, launch.spot) - used) // vcpus(launch.type))


def used_vcpus(cloud: Cloud, region: str, instance_type: str, spot: bool) -> int:
    code = code_of(instance_type, spot)
    counted: dict[str, int] = {}
    for instance in instances_in(cloud, region):
        if instance.state in ("pending", "running") and (instance.lifecycle == "spot") == spot:
            counted[instance.instance_type] = counted.get(instance.instance_type, 0) + 1
    return sum(vcpus(kind) * number for kind, number in counted.items() if code_of(kind, spot) == code)


def no_capacity(cloud: Cloud, region: str, instance_type: str, zone: str) -> AwsError:
    zones = zones_with(instance_type, region, [candidate.name for candidate in zones_of(region)])
    others = [other for other in zones if other != zone and _has_capacity(cloud, instance_type, other)]
    hint = {"others": ", ".join(others)} if others else {}
    return aws_error("ec2:RunInstances", "InsufficientInstanceCapacity", type=instance_type, zone=zone, **hint)


def _has_capacity(cloud: Cloud, instance_type: str, zone: str) -> bool:
    left = cloud.faults.capacity_left(instance_type, zone)
    return left is None or left > 0
