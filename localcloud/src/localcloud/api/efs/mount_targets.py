"""Elastic File System: mount targets, each with a network interface in its subnet."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from localcloud.api.ec2.moto_records import backend_of, new_id, subnet_named
from localcloud.api.efs.records import (
    MountTarget,
    bad_request,
    find_available,
    find_file_system,
    find_mount_target,
    region_of,
    show_mount_target,
    show_page,
)
from localcloud.api.iam.linked_roles import ensure_service_linked_role
from localcloud.core.cloud import Call, Cloud, Result, answers
from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error

MAX_GROUPS = 5
# What EC2 says when it has no address to give: what EFS makes of it.
_OF_EC2 = {
    "InsufficientFreeAddressesInSubnet": ("NoFreeAddressesInSubnet", 409),
    "InvalidIPAddress.InUse": ("IpAddressInUse", 409),
    "InvalidParameterValue": ("BadRequest", 400),
}
_LINKED_SERVICE = "elasticfilesystem.amazonaws.com"


@answers("efs", "CreateMountTarget")
def create_mount_target(call: Call) -> Result:
    cloud, params = call.cloud, call.params
    if params.get("IpAddressType", "IPV4_ONLY") != "IPV4_ONLY" or params.get("Ipv6Address"):
        raise bad_request("The local cloud has mount targets with IPv4 addresses only.")
    file_system = find_available(call, params["FileSystemId"])
    subnet = _subnet(call.region, params["SubnetId"])
    _check_subnet(region_of(call).targets_of(file_system.id), subnet)
    groups = _groups(call.region, subnet.vpc_id, params.get("SecurityGroups") or [])
    target_id = new_id("fsmt")
    description = f"EFS mount target for {file_system.id} ({target_id})"
    interface = _add_interface(call, subnet, params.get("IpAddress"), groups, description)
    target = MountTarget(
        id=target_id,
        file_system_id=file_system.id,
        region=call.region,
        vpc_id=subnet.vpc_id,
        subnet_id=subnet.id,
        zone=subnet.availability_zone,
        zone_id=subnet.availability_zone_id,
        ip=str(interface.private_ip_address),
        interface_id=str(interface.id),
        security_groups=groups,
    )
    region_of(call).mount_targets[target.id] = target
    ensure_service_linked_role(cloud, _LINKED_SERVICE)
    cloud.clock.later(cloud.latency.of("mount_target_available"), lambda: _become_available(cloud, target))
    cloud.clock.later(cloud.latency.of("mount_target_name"), lambda: _become_resolvable(cloud, target))
    return show_mount_target(target)


def _become_available(cloud: Cloud, target: MountTarget) -> None:
    if target.state == "creating":
        target.state = "available"
        cloud.network.changed()


def _become_resolvable(cloud: Cloud, target: MountTarget) -> None:
    target.resolvable = True
    cloud.network.changed()


def _subnet(region: str, subnet_id: str) -> Any:
    try:
        return subnet_named(backend_of(region), subnet_id)
    except AwsError as error:
        raise AwsError("SubnetNotFound", error.message) from error


def _check_subnet(others: Sequence[MountTarget], subnet: Any) -> None:
    """Raise AwsError unless all targets of a file system are in one VPC, and each in another zone."""
    if any(other.vpc_id != subnet.vpc_id for other in others):
        raise aws_error("efs:CreateMountTarget", "MountTargetConflict", "same VPC")
    if any(other.zone == subnet.availability_zone for other in others):
        raise aws_error("efs:CreateMountTarget", "MountTargetConflict", "in this AZ")


def _groups(region: str, vpc_id: str, requested: Sequence[str]) -> tuple[str, ...]:
    """Return the requested security groups, or the default one of the network."""
    ec2 = backend_of(region)
    if not requested:
        return (str(ec2.get_default_security_group(vpc_id).id),)
    if len(requested) > MAX_GROUPS:
        raise aws_error("efs:CreateMountTarget", "SecurityGroupLimitExceeded", limit=MAX_GROUPS)
    for group_id in requested:
        group = ec2.get_security_group_from_id(group_id)
        if group is None or group.vpc_id != vpc_id:
            raise aws_error("efs:CreateMountTarget", "SecurityGroupNotFound", group=group_id, network=vpc_id)
    return tuple(dict.fromkeys(requested))


def _add_interface(call: Call, subnet: Any, requested: str | None, groups: Sequence[str], description: str) -> Any:
    """Add a network interface that belongs to EFS: the account sees it and cannot change it."""
    params: dict[str, Any] = {"SubnetId": subnet.id, "Groups": list(groups), "Description": description}
    if requested is not None:
        if ipaddress.ip_address(requested) not in subnet.cidr:
            raise bad_request(f"Address {requested} does not fall within the subnet's address range.")
        params["PrivateIpAddress"] = requested
    try:
        made = call.cloud.moto("ec2", "CreateNetworkInterface", call.region, params)["NetworkInterface"]
    except AwsError as error:
        code, status = _OF_EC2.get(error.code, (error.code, error.status))
        raise AwsError(code, error.message, status) from error
    interface = backend_of(call.region).enis[made["NetworkInterfaceId"]]
    interface.requester_managed = True
    interface.requester_id = "EFS"
    interface.status = "in-use"
    return interface


@answers("efs", "DescribeMountTargets")
def describe_mount_targets(call: Call) -> Result:
    params = call.params
    values = [key for key in ("FileSystemId", "MountTargetId") if params.get(key)]
    if len(values) != 1:
        raise bad_request("Specify either FileSystemId or MountTargetId.")
    if values == ["MountTargetId"]:
        matches = [find_mount_target(call, params["MountTargetId"])]
    else:
        matches = region_of(call).targets_of(find_file_system(call, params["FileSystemId"]).id)
    return show_page(call, "MountTargets", matches, show_mount_target)


@answers("efs", "DeleteMountTarget")
def delete_mount_target(call: Call) -> Result:
    cloud = call.cloud
    target = find_mount_target(call, call.params["MountTargetId"])
    if target.state != "deleting":
        target.state = "deleting"
        targets = region_of(call).mount_targets

        def vanish() -> None:
            del targets[target.id]
            backend_of(target.region).delete_network_interface(target.interface_id)
            cloud.network.changed()

        cloud.clock.later(cloud.latency.of("mount_target_deleted"), vanish)
    return None


def _find_usable(call: Call) -> MountTarget:
    target = find_mount_target(call, call.params["MountTargetId"])
    if target.state == "deleting":
        raise aws_error("efs:*", "IncorrectMountTargetState", id=target.id, state=target.state)
    return target


@answers("efs", "DescribeMountTargetSecurityGroups")
def describe_mount_target_security_groups(call: Call) -> Result:
    return {"SecurityGroups": list(_find_usable(call).security_groups)}


@answers("efs", "ModifyMountTargetSecurityGroups")
def modify_mount_target_security_groups(call: Call) -> Result:
    target = _find_usable(call)
    target.security_groups = _groups(call.region, target.vpc_id, call.params.get("SecurityGroups") or [])
    ec2 = backend_of(call.region)
    groups = [ec2.get_security_group_from_id(group) for group in target.security_groups]
    ec2.enis[target.interface_id]._group_set = groups
    return None
