"""What is shown of network interfaces: those of instances, NAT gateways, endpoints and mount targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from localcloud.api.ec2.filters import Values, chosen, page, refuse_dry_run, tag_list
from localcloud.api.ec2.instances import groups_of
from localcloud.api.ec2.moto_records import backend_of, interface_named, spelled, tags_in
from localcloud.api.ec2.patches import private_dns
from localcloud.core.cloud import Call, answers


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
    response: dict[str, Any] = {
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
        response["Attachment"] = {
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
        response["Association"] = addresses[0]["Association"] = interface.association
    return response


def _shown(*path: str) -> Callable[[Any], Values]:
    """Return a function that gets the values at a path of an interface, through lists."""

    def walk(value: Any, rest: tuple[str, ...]) -> list[str]:
        if isinstance(value, list):
            return [result for item in value for result in walk(item, rest)]
        if not rest:
            return [str(value).lower() if isinstance(value, bool) else str(value)]
        return walk(value[rest[0]], rest[1:]) if rest[0] in value else []

    return lambda interface: walk(described(interface), path)


_FILTERS: Mapping[str, Callable[[Any], Values]] = {
    "addresses.private-ip-address": _shown("PrivateIpAddresses", "PrivateIpAddress"),
    "attachment.instance-id": _shown("Attachment", "InstanceId"),
    "description": _shown("Description"),
    "group-id": _shown("Groups", "GroupId"),
    "network-interface-id": _shown("NetworkInterfaceId"),
    "private-ip-address": _shown("PrivateIpAddress"),
    "status": _shown("Status"),
    "subnet-id": _shown("SubnetId"),
    "vpc-id": _shown("VpcId"),
}


@answers("ec2", "DescribeNetworkInterfaces")
def describe_network_interfaces(call: Call) -> dict[str, Any]:
    backend = backend_of(call.region)
    ids = call.params.get("NetworkInterfaceIds") or ()
    matches = [interface_named(backend, str(key)) for key in dict.fromkeys(ids)] or list(backend.enis.values())
    matches = chosen(matches, call.params.get("Filters"), _FILTERS, lambda one: tags_in(call.region, one.id))
    refuse_dry_run(call.params)
    items, token = page(matches, call.params)
    answer: dict[str, Any] = {"NetworkInterfaces": [described(interface) for interface in items]}
    return answer | ({"NextToken": token} if token else {})
