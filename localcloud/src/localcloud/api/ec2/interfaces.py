"""What is shown of network interfaces: those of instances, NAT gateways, endpoints and mount targets."""

from __future__ import annotations

from typing import Any

from localcloud.api.ec2.filters import listing, tag_list
from localcloud.api.ec2.moto_records import backend_of, interface_named, spelled, tags_in
from localcloud.api.ec2.patches import private_dns
from localcloud.core.cloud import Call, answers

_OF_ADDRESS = ("AllocationId", "AssociationId")


def groups_of(interface: Any) -> list[dict[str, str]]:
    return [{"GroupId": group.id, "GroupName": group.name} for group in interface._group_set]


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


def of_instance(interface: Any) -> dict[str, Any]:
    """Return what DescribeInstances shows of it."""
    shown = described(interface)
    for name in ("AvailabilityZone", "RequesterManaged", "TagSet"):
        del shown[name]
    if "Attachment" in shown:
        del shown["Attachment"]["InstanceId"], shown["Attachment"]["InstanceOwnerId"]
    if "Association" in shown:
        association = {key: value for key, value in shown["Association"].items() if key not in _OF_ADDRESS}
        shown["Association"] = shown["PrivateIpAddresses"][0]["Association"] = association
    return shown


@answers("ec2", "DescribeNetworkInterfaces")
def describe_network_interfaces(call: Call) -> dict[str, Any]:
    backend = backend_of(call.region)
    ids = call.params.get("NetworkInterfaceIds") or ()
    matches = [interface_named(backend, str(key)) for key in dict.fromkeys(ids)] or backend.enis.values()
    return listing(call, "NetworkInterfaces", map(described, matches))
