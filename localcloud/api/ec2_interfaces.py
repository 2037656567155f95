"""Where in the network a launch goes: its interfaces, their subnets, security groups and addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localcloud.api.ec2_instance import InterfaceSpec
from localcloud.api.ec2_moto import check_free
from localcloud.api.ec2_records import (
    backend_of,
    group_named,
    groups_in,
    interface_named,
    subnet_named,
    subnets_in,
    zones_of,
)
from localcloud.api.ec2_types import types
from localcloud.errors import AwsError


def interfaces_for_launch(region: str, asked: Mapping[str, Any], kind: str) -> tuple[InterfaceSpec, ...]:
    given = sorted(
        asked.get("NetworkInterfaces") or (), key=lambda item: (_card(item), int(item.get("DeviceIndex") or 0))
    )
    if not given:
        return (_primary(region, asked),)
    for key in ("SubnetId", "SecurityGroupIds", "SecurityGroups", "PrivateIpAddress"):
        if asked.get(key):
            what = "an instance-level subnet ID" if key == "SubnetId" else f"instance-level {key}"
            raise AwsError(
                "InvalidParameterCombination", f"Network interfaces and {what} may not be specified on the same request"
            )
    if len(given) > 1 and any(item.get("AssociatePublicIpAddress") is not None for item in given):
        raise AwsError(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network "
            "interfaces.",
        )
    if _card(given[0]) != 0 or int(given[0].get("DeviceIndex") or 0) != 0:
        raise AwsError("InvalidParameterCombination", "A primary network interface (device index 0) must be specified.")
    _check_cards(given, kind)
    return tuple(_interface(region, item, asked, number, alone=len(given) == 1) for number, item in enumerate(given))


def _card(item: Mapping[str, Any]) -> int:
    return int(item.get("NetworkCardIndex") or 0)


def _check_cards(given: Sequence[Mapping[str, Any]], kind: str) -> None:
    network = types()[kind]["NetworkInfo"]
    if len(given) > int(network.get("MaximumNetworkInterfaces") or 1):
        raise AwsError("AttachmentLimitExceeded", f"Interface count {len(given)} exceeds the limit for {kind}")
    if _card(given[-1]) >= int(network.get("MaximumNetworkCards") or 1):
        raise AwsError("InvalidParameterValue", f"Network card index {_card(given[-1])} exceeds the limit for {kind}")
    elastic = [item for item in given if item.get("InterfaceType") in ("efa", "efa-only")]
    if elastic and not network.get("EfaSupported"):
        raise AwsError("InvalidParameterCombination", f"EFA interfaces are not supported on {kind}")
    if len(elastic) > int((network.get("EfaInfo") or {}).get("MaximumEfaInterfaces") or 0):
        raise AwsError("AttachmentLimitExceeded", f"EFA interface count {len(elastic)} exceeds the limit for {kind}")
    if given[0].get("InterfaceType") == "efa-only":
        raise AwsError("InvalidParameterCombination", "An EFA-only interface cannot be the primary network interface.")


def _interface(
    region: str, item: Mapping[str, Any], asked: Mapping[str, Any], number: int, alone: bool
) -> InterfaceSpec:
    backend = backend_of(region)
    index = int(item.get("DeviceIndex") or 0)
    if item.get("NetworkInterfaceId"):
        existing = interface_named(backend, str(item["NetworkInterfaceId"]))
        if existing.instance is not None:
            raise AwsError("InvalidNetworkInterface.InUse", f"Interface: [{existing.id}] in use.")
        return InterfaceSpec(
            index,
            _card(item),
            existing.subnet,
            tuple(existing._group_set),
            existing=existing,
            delete_on_termination=False,
        )
    subnet = subnet_named(backend, str(item["SubnetId"])) if item.get("SubnetId") else _default_subnet(region, asked)
    addresses = item.get("PrivateIpAddresses") or ()
    address = item.get("PrivateIpAddress") or next(
        (one["PrivateIpAddress"] for one in addresses if one.get("Primary")), None
    )
    if address:
        check_free(subnet, address)
    wanted = item.get("AssociatePublicIpAddress")
    return InterfaceSpec(
        index=index,
        card=_card(item),
        subnet=subnet,
        groups=_groups(backend, item.get("Groups"), (), subnet),
        address=address,
        public=number == 0 and alone and bool(subnet.map_public_ip_on_launch if wanted is None else wanted),
        delete_on_termination=bool(item.get("DeleteOnTermination", True)),
        description=str(item.get("Description") or ""),
        kind=str(item.get("InterfaceType") or "interface"),
    )


def _primary(region: str, asked: Mapping[str, Any]) -> InterfaceSpec:
    backend = backend_of(region)
    subnet = subnet_named(backend, str(asked["SubnetId"])) if asked.get("SubnetId") else _default_subnet(region, asked)
    if asked.get("PrivateIpAddress"):
        check_free(subnet, str(asked["PrivateIpAddress"]))
    return InterfaceSpec(
        index=0,
        card=0,
        subnet=subnet,
        groups=_groups(backend, asked.get("SecurityGroupIds"), asked.get("SecurityGroups"), subnet),
        address=asked.get("PrivateIpAddress"),
        public=bool(subnet.map_public_ip_on_launch),
    )


def _default_subnet(region: str, asked: Mapping[str, Any]) -> Any:
    backend = backend_of(region)
    zone = (asked.get("Placement") or {}).get("AvailabilityZone")
    if zone and zone not in [candidate.name for candidate in zones_of(region)]:
        raise AwsError("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
    for subnet in subnets_in(backend):
        vpc = backend.vpcs.get(subnet.vpc_id)
        if vpc is not None and vpc.is_default and (zone is None or subnet.availability_zone == zone):
            return subnet
    raise AwsError(
        "VPCIdNotSpecified",
        "No default VPC for this user. GroupName is only supported for EC2-Classic and default VPC.",
    )


def _groups(backend: Any, ids: Any, names: Any, subnet: Any) -> tuple[Any, ...]:
    found = [group_named(backend, str(group_id), subnet.vpc_id) for group_id in ids or ()]
    for name in names or ():
        group = next((one for one in groups_in(backend) if one.name == name and one.vpc_id == subnet.vpc_id), None)
        if group is None:
            raise AwsError(
                "InvalidGroup.NotFound", f"The security group '{name}' does not exist in VPC '{subnet.vpc_id}'"
            )
        found.append(group)
    if not found:
        default = backend.get_default_security_group(subnet.vpc_id)
        found = [default] if default else []
    return tuple(dict.fromkeys(found))


def subnet_into_interface(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Auto Scaling puts the subnet of its choice into the interfaces of the template; a user has to write it there."""
    interfaces = [{**interface, "SubnetId": asked["SubnetId"]} for interface in asked["NetworkInterfaces"]]
    return {**{key: value for key, value in asked.items() if key != "SubnetId"}, "NetworkInterfaces": interfaces}
