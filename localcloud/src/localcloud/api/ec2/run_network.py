"""Where in the network a launch goes: its interfaces, their subnets, security groups and addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from localcloud.api.ec2.errors import conflicting, invalid
from localcloud.api.ec2.instance import InterfaceSpec
from localcloud.api.ec2.instance_types import types
from localcloud.api.ec2.moto_records import (
    backend_of,
    group_named,
    subnet_named,
    subnets_in,
    zones_of,
)
from localcloud.core.errors import AwsError

# Card 0 of these has no EFA. Other types that have EFA on some cards only have it on the first ones.
_PRIMARY_CARD_WITHOUT_EFA = ("p6-b300.48xlarge",)


def interfaces_for_launch(region: str, request: Mapping[str, Any], kind: str) -> tuple[InterfaceSpec, ...]:
    interfaces = sorted(
        request.get("NetworkInterfaces") or (), key=lambda item: (_card(item), int(item.get("DeviceIndex") or 0))
    )
    _refuse_absent(request, "PrivateIpAddress", "SecurityGroups")
    if not interfaces:
        primary = {"SubnetId": request.get("SubnetId"), "Groups": request.get("SecurityGroupIds")}
        return (_interface(region, primary, request, 0, alone=True),)
    for key in ("SubnetId", "SecurityGroupIds"):
        if request.get(key):
            what = "an instance-level subnet ID" if key == "SubnetId" else f"instance-level {key}"
            raise conflicting(f"Network interfaces and {what} may not be specified on the same request")
    if len(interfaces) > 1 and any(item.get("AssociatePublicIpAddress") is not None for item in interfaces):
        raise conflicting(
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network "
            "interfaces."
        )
    if _card(interfaces[0]) != 0 or int(interfaces[0].get("DeviceIndex") or 0) != 0:
        raise conflicting("A primary network interface (device index 0) must be specified.")
    check_cards(interfaces, kind)
    return tuple(
        _interface(region, item, request, number, alone=len(interfaces) == 1) for number, item in enumerate(interfaces)
    )


def _refuse_absent(request: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if request.get(key):
            raise AwsError("UnsupportedOperation", f"The local cloud launches no instances with {key}.")


def _card(item: Mapping[str, Any]) -> int:
    return int(item.get("NetworkCardIndex") or 0)


def check_cards(interfaces: Sequence[Mapping[str, Any]], kind: str) -> None:
    """Refuse interfaces that the network cards of a type cannot have.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-eni.html#network-cards
    """
    network = types()[kind]["NetworkInfo"]
    if len(interfaces) > int(network.get("MaximumNetworkInterfaces") or 1):
        raise AwsError("AttachmentLimitExceeded", f"Interface count {len(interfaces)} exceeds the limit for {kind}")
    if _card(interfaces[-1]) >= int(network.get("MaximumNetworkCards") or 1):
        raise invalid(f"Network card index {_card(interfaces[-1])} exceeds the limit for {kind}")
    if len({(_card(item), int(item.get("DeviceIndex") or 0)) for item in interfaces}) < len(interfaces):
        raise invalid("Each network interface requires a unique device index.")
    on_card = Counter(map(_card, interfaces))
    for card in network.get("NetworkCards") or ():
        index = card["NetworkCardIndex"]
        count = on_card[index]
        if count > card["MaximumNetworkInterfaces"]:
            message = f"Interface count {count} exceeds the limit for network card {index} of {kind}"
            raise AwsError("AttachmentLimitExceeded", message)
    _check_efa([item for item in interfaces if item.get("InterfaceType") in ("efa", "efa-only")], kind, network)


def _check_efa(elastic: Sequence[Mapping[str, Any]], kind: str, network: Mapping[str, Any]) -> None:
    """Refuse EFA interfaces that a type cannot have: it takes one on each card that supports EFA.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html
    """
    if elastic and not network.get("EfaSupported"):
        raise conflicting(f"EFA interfaces are not supported on {kind}")
    limit = int((network.get("EfaInfo") or {}).get("MaximumEfaInterfaces") or 0)
    if len(elastic) > limit:
        raise AwsError("AttachmentLimitExceeded", f"EFA interface count {len(elastic)} exceeds the limit for {kind}")
    first = 1 if kind in _PRIMARY_CARD_WITHOUT_EFA else 0
    for item in elastic:
        card = _card(item)
        if card not in range(first, first + limit):
            raise conflicting(f"EFA interfaces are not supported on network card {card} of {kind}")
        if item.get("InterfaceType") == "efa-only" and (card, int(item.get("DeviceIndex") or 0)) == (0, 0):
            message = "An EFA-only interface cannot be the primary network interface."
            raise conflicting(message)
    if len(set(map(_card, elastic))) < len(elastic):
        raise AwsError("AttachmentLimitExceeded", "You can attach only one EFA interface to each network card.")


def _interface(
    region: str, item: Mapping[str, Any], request: Mapping[str, Any], number: int, alone: bool
) -> InterfaceSpec:
    backend = backend_of(region)
    _refuse_absent(item, "NetworkInterfaceId", "PrivateIpAddress", "PrivateIpAddresses")
    subnet = subnet_named(backend, str(item["SubnetId"])) if item.get("SubnetId") else _default_subnet(region, request)
    requested = item.get("AssociatePublicIpAddress")
    return InterfaceSpec(
        index=int(item.get("DeviceIndex") or 0),
        card=_card(item),
        subnet=subnet,
        groups=_groups(backend, item.get("Groups") or (), subnet),
        public=number == 0 and alone and bool(subnet.map_public_ip_on_launch if requested is None else requested),
        delete_on_termination=bool(item.get("DeleteOnTermination", True)),
        description=str(item.get("Description") or ""),
        kind=str(item.get("InterfaceType") or "interface"),
    )


def _default_subnet(region: str, request: Mapping[str, Any]) -> Any:
    backend = backend_of(region)
    zone = (request.get("Placement") or {}).get("AvailabilityZone")
    if zone and zone not in [candidate.name for candidate in zones_of(region)]:
        raise invalid(f"Invalid availability zone: [{zone}]")
    for subnet in subnets_in(backend):
        vpc = backend.vpcs.get(subnet.vpc_id)
        if vpc is not None and vpc.is_default and (zone is None or subnet.availability_zone == zone):
            return subnet
    raise AwsError(
        "VPCIdNotSpecified",
        "No default VPC for this user. GroupName is only supported for EC2-Classic and default VPC.",
    )


def _groups(backend: Any, ids: Iterable[str], subnet: Any) -> tuple[Any, ...]:
    matches = [group_named(backend, str(group_id), subnet.vpc_id) for group_id in ids]
    return tuple(dict.fromkeys(matches)) or (backend.get_default_security_group(subnet.vpc_id),)
