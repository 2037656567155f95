"""Elastic File System: mount targets, each with a network interface in its subnet."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from moto.backends import get_backend

from localcloud.api.efs_records import (
    FileSystem,
    MountTarget,
    bad_request,
    find_access_point,
    find_available,
    find_file_system,
    find_mount_target,
    new_id,
    page,
    records_of,
    region_of,
    show_mount_target,
    without_none,
)
from localcloud.api.iam_linked_roles import ensure_service_linked_role
from localcloud.api.registry import Call, Result, answers
from localcloud.cloud import Cloud
from localcloud.errors import AwsError
from localcloud.settings import ACCOUNT

MAX_GROUPS = 5
# What EC2 says when it has no address to give: what EFS makes of it.
_OF_EC2 = {
    "InsufficientFreeAddressesInSubnet": ("NoFreeAddressesInSubnet", 409),
    "InvalidIPAddress.InUse": ("IpAddressInUse", 409),
    "InvalidParameterValue": ("BadRequest", 400),
}
_LINKED_SERVICE = "elasticfilesystem.amazonaws.com"


def _ec2(region: str) -> Any:
    return get_backend("ec2")[ACCOUNT][region]


def zone_ids(call: Call) -> Mapping[str, str]:
    """The zones of the region: name to id."""
    answer = call.cloud.moto("ec2", "DescribeAvailabilityZones", call.region, {})
    return {zone["ZoneName"]: zone["ZoneId"] for zone in answer["AvailabilityZones"]}


@answers("efs", "CreateMountTarget")
def create_mount_target(call: Call) -> Result:
    cloud, params = call.cloud, call.params
    if params.get("IpAddressType", "IPV4_ONLY") != "IPV4_ONLY" or params.get("Ipv6Address"):
        raise bad_request("The local cloud has mount targets with IPv4 addresses only.")
    file_system = find_available(call, params["FileSystemId"])
    subnet = _subnet(call.region, params["SubnetId"])
    zone_id = zone_ids(call)[subnet.availability_zone]
    _check_place(file_system, region_of(call).targets_of(file_system.id), subnet)
    groups = _groups(call.region, subnet.vpc_id, params.get("SecurityGroups") or [])
    target_id = new_id("fsmt")
    description = f"EFS mount target for {file_system.id} ({target_id})"
    interface = _add_interface(call, subnet, params.get("IpAddress"), groups, description)
    target = MountTarget(
        id=target_id,
        file_system_id=file_system.id,
        region=call.region,
        number=records_of(cloud).next_number(),
        vpc_id=subnet.vpc_id,
        subnet_id=subnet.id,
        zone=subnet.availability_zone,
        zone_id=zone_id,
        ip=str(interface.private_ip_address),
        interface_id=str(interface.id),
        security_groups=groups,
    )
    region_of(call).mount_targets[target.id] = target
    ensure_service_linked_role(cloud, _LINKED_SERVICE)
    cloud.clock.later(cloud.latency.of("mount_target_available"), lambda: _become_available(cloud, target))
    return show_mount_target(target)


def _become_available(cloud: Cloud, target: MountTarget) -> None:
    if target.state == "creating":
        target.state = "available"
        cloud.network.changed()


def _subnet(region: str, subnet_id: str) -> Any:
    for subnets in _ec2(region).subnets.values():
        if subnet_id in subnets:
            return subnets[subnet_id]
    raise AwsError("SubnetNotFound", f"The subnet ID '{subnet_id}' does not exist", 400)


def _check_place(file_system: FileSystem, others: Sequence[MountTarget], subnet: Any) -> None:
    """All targets of a file system are in one network, one a zone; a file system of one zone has them there."""
    if file_system.zone and file_system.zone != subnet.availability_zone:
        raise AwsError(
            "AvailabilityZonesMismatch",
            f"The mount target must be in the Availability Zone of the file system, {file_system.zone}.",
            400,
        )
    if any(other.vpc_id != subnet.vpc_id for other in others):
        message = "requested subnet for new mount target is not in the same VPC as existing mount targets"
        raise AwsError("MountTargetConflict", message, 409)
    if any(other.zone == subnet.availability_zone for other in others):
        raise AwsError("MountTargetConflict", "mount target already exists in this AZ", 409)


def _groups(region: str, vpc_id: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """The security groups asked for, or the default one of the network."""
    ec2 = _ec2(region)
    if not wanted:
        return (str(ec2.get_default_security_group(vpc_id).id),)
    if len(wanted) > MAX_GROUPS:
        message = f"The maximum number of security groups per interface, {MAX_GROUPS}, has been reached."
        raise AwsError("SecurityGroupLimitExceeded", message, 400)
    for group_id in wanted:
        group = ec2.get_security_group_from_id(group_id)
        if group is None or group.vpc_id != vpc_id:
            message = f"The security group '{group_id}' does not exist in VPC '{vpc_id}'"
            raise AwsError("SecurityGroupNotFound", message, 400)
    return tuple(dict.fromkeys(wanted))


def _add_interface(call: Call, subnet: Any, wanted: str | None, groups: Sequence[str], description: str) -> Any:
    """A network interface that belongs to EFS: the account sees it and cannot change it."""
    params: dict[str, Any] = {"SubnetId": subnet.id, "Groups": list(groups), "Description": description}
    if wanted is not None:
        if ipaddress.ip_address(wanted) not in subnet.cidr:
            raise bad_request(f"Address {wanted} does not fall within the subnet's address range.")
        params["PrivateIpAddress"] = wanted
    try:
        made = call.cloud.moto("ec2", "CreateNetworkInterface", call.region, params)["NetworkInterface"]
    except AwsError as error:
        code, status = _OF_EC2.get(error.code, (error.code, error.status))
        raise AwsError(code, error.message, status) from error
    interface = _ec2(call.region).enis[made["NetworkInterfaceId"]]
    interface.requester_managed = True
    interface.requester_id = "EFS"
    interface.status = "in-use"
    return interface


@answers("efs", "DescribeMountTargets")
def describe_mount_targets(call: Call) -> Result:
    params = call.params
    given = [key for key in ("FileSystemId", "MountTargetId", "AccessPointId") if params.get(key)]
    if len(given) != 1:
        raise bad_request("Give exactly one of FileSystemId, MountTargetId and AccessPointId.")
    if given == ["MountTargetId"]:
        found = [find_mount_target(call, params["MountTargetId"])]
    elif given == ["AccessPointId"]:
        found = region_of(call).targets_of(find_access_point(call, params["AccessPointId"]).file_system_id)
    else:
        found = region_of(call).targets_of(find_file_system(call, params["FileSystemId"]).id)
    shown, following = page(found, params.get("MaxItems"), params.get("Marker"))
    return without_none(
        {
            "Marker": params.get("Marker"),
            "MountTargets": [show_mount_target(target) for target in shown],
            "NextMarker": following,
        }
    )


@answers("efs", "DeleteMountTarget")
def delete_mount_target(call: Call) -> Result:
    cloud = call.cloud
    target = find_mount_target(call, call.params["MountTargetId"])
    if target.state != "deleting":
        target.state = "deleting"
        targets = region_of(call).mount_targets

        def vanish() -> None:
            del targets[target.id]
            _ec2(target.region).delete_network_interface(target.interface_id)
            cloud.network.changed()

        cloud.clock.later(cloud.latency.of("mount_target_deleted"), vanish)
    return None


def _find_usable(call: Call) -> MountTarget:
    target = find_mount_target(call, call.params["MountTargetId"])
    if target.state == "deleting":
        message = f"Mount target '{target.id}' is in the life cycle state '{target.state}'."
        raise AwsError("IncorrectMountTargetState", message, 409)
    return target


@answers("efs", "DescribeMountTargetSecurityGroups")
def describe_mount_target_security_groups(call: Call) -> Result:
    return {"SecurityGroups": list(_find_usable(call).security_groups)}


@answers("efs", "ModifyMountTargetSecurityGroups")
def modify_mount_target_security_groups(call: Call) -> Result:
    target = _find_usable(call)
    target.security_groups = _groups(call.region, target.vpc_id, call.params.get("SecurityGroups") or [])
    ec2 = _ec2(call.region)
    groups = [ec2.get_security_group_from_id(group) for group in target.security_groups]
    ec2.enis[target.interface_id]._group_set = groups
    return None
