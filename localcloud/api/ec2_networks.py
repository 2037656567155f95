"""What is shown of network interfaces: those of instances, NAT gateways, endpoints and mount targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from localcloud.api.ec2_describe import groups_of
from localcloud.api.ec2_filters import Values, chosen, page, refuse_dry_run, tag_list
from localcloud.api.ec2_moto import private_dns
from localcloud.api.ec2_records import backend_of, interface_named, spelled, tags_in
from localcloud.api.registry import Call, answers


def described(interface: Any) -> dict[str, Any]:
    region = interface.ec2_backend.region_name
    addresses = [
        {
            "Primary": item["PrivateIpAddress"] == interface.private_ip_address,
            "PrivateDnsName": private_dns(item["PrivateIpAddress"], region),
            "PrivateIpAddress": item["PrivateIpAddress"],
        }
        for item in interface.private_ip_addresses
    ]
    shown: dict[str, Any] = {
        "AvailabilityZone": interface.subnet.availability_zone,
        "Description": interface.description,
        "Groups": groups_of(interface),
        "InterfaceType": interface.interface_type,
        "Ipv6Addresses": [],
        "MacAddress": interface.mac_address,
        "NetworkInterfaceId": interface.id,
        "OwnerId": interface.owner_id,
        "PrivateDnsName": private_dns(interface.private_ip_address, region),
        "PrivateIpAddress": interface.private_ip_address,
        "PrivateIpAddresses": addresses,
        "RequesterManaged": bool(interface.requester_managed),
        "SourceDestCheck": bool(interface.source_dest_check),
        "Status": interface.status,
        "SubnetId": interface.subnet.id,
        "TagSet": tag_list(tags_in(region, interface.id)),
        "VpcId": interface.subnet.vpc_id,
    }
    if interface.attachment_id and interface.instance is not None:
        shown["Attachment"] = {
            "AttachTime": spelled(interface.attach_time),
            "AttachmentId": interface.attachment_id,
            "DeleteOnTermination": bool(interface.delete_on_termination),
            "DeviceIndex": getattr(interface, "shown_index", interface.device_index),
            "InstanceId": interface.instance.id,
            "InstanceOwnerId": interface.owner_id,
            "NetworkCardIndex": getattr(interface, "card_index", 0),
            "Status": "attached",
        }
    if interface.public_ip:
        shown["Association"] = addresses[0]["Association"] = interface.association
    return shown


def _shown(*path: str) -> Callable[[Any], Values]:
    """The value at a path of what is shown, through lists."""

    def walk(value: Any, rest: tuple[str, ...]) -> list[str]:
        if isinstance(value, list):
            return [found for item in value for found in walk(item, rest)]
        if not rest:
            return [str(value).lower() if isinstance(value, bool) else str(value)]
        return walk(value[rest[0]], rest[1:]) if rest[0] in value else []

    return lambda interface: walk(described(interface), path)


_FILTERS: Mapping[str, Callable[[Any], Values]] = {
    "addresses.association.public-ip": _shown("PrivateIpAddresses", "Association", "PublicIp"),
    "addresses.primary": _shown("PrivateIpAddresses", "Primary"),
    "addresses.private-ip-address": _shown("PrivateIpAddresses", "PrivateIpAddress"),
    "association.allocation-id": _shown("Association", "AllocationId"),
    "association.association-id": _shown("Association", "AssociationId"),
    "association.ip-owner-id": _shown("Association", "IpOwnerId"),
    "association.public-dns-name": _shown("Association", "PublicDnsName"),
    "association.public-ip": _shown("Association", "PublicIp"),
    "attachment.attachment-id": _shown("Attachment", "AttachmentId"),
    "attachment.delete-on-termination": _shown("Attachment", "DeleteOnTermination"),
    "attachment.device-index": _shown("Attachment", "DeviceIndex"),
    "attachment.instance-id": _shown("Attachment", "InstanceId"),
    "attachment.instance-owner-id": _shown("Attachment", "InstanceOwnerId"),
    "attachment.status": _shown("Attachment", "Status"),
    "availability-zone": _shown("AvailabilityZone"),
    "description": _shown("Description"),
    "group-id": _shown("Groups", "GroupId"),
    "group-name": _shown("Groups", "GroupName"),
    "interface-type": _shown("InterfaceType"),
    "mac-address": _shown("MacAddress"),
    "network-interface-id": _shown("NetworkInterfaceId"),
    "owner-id": _shown("OwnerId"),
    "private-dns-name": _shown("PrivateDnsName"),
    "private-ip-address": _shown("PrivateIpAddress"),
    "requester-id": lambda _interface: (),
    "requester-managed": _shown("RequesterManaged"),
    "source-dest-check": _shown("SourceDestCheck"),
    "status": _shown("Status"),
    "subnet-id": _shown("SubnetId"),
    "vpc-id": _shown("VpcId"),
}


@answers("ec2", "DescribeNetworkInterfaces")
def describe_network_interfaces(call: Call) -> dict[str, Any]:
    backend = backend_of(call.region)
    ids = call.params.get("NetworkInterfaceIds") or ()
    found = [interface_named(backend, str(key)) for key in dict.fromkeys(ids)] or list(backend.enis.values())
    found = chosen(found, call.params.get("Filters"), _FILTERS, lambda one: tags_in(call.region, one.id))
    refuse_dry_run(call.params)
    shown, token = page(found, call.params)
    answer: dict[str, Any] = {"NetworkInterfaces": [described(interface) for interface in shown]}
    return answer | ({"NextToken": token} if token else {})
