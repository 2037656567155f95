"""What is shown of instances. Plain dicts, straight from the records: a thousand in 0.1 s."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from localcloud.api.ec2.filters import Values, chosen, page, refuse_dry_run
from localcloud.api.ec2.instance import Instance
from localcloud.api.ec2.moto_records import spelled
from localcloud.api.ec2.patches import private_dns, public_dns
from localcloud.api.ec2.records import instance_of, instances_in, instances_named, now
from localcloud.core.cloud import Call, Cloud, answers
from localcloud.core.errors import AwsError


def reservation_as_dict(instances: Sequence[Instance]) -> dict[str, Any]:
    first = instances[0]
    return {
        "Groups": [],
        "Instances": [instance_as_dict(instance) for instance in instances],
        "OwnerId": first.owner_id,
        "ReservationId": first.reservation_id,
    }


def public_dns_of(instance: Instance) -> str:
    """Return the public name of an address. Only a VPC with DNS host names has such names."""
    if not instance.public_ip or not instance.ec2_backend.vpcs[instance.vpc_id].enable_dns_hostnames:
        return ""
    return public_dns(instance.public_ip, instance.region_name)


def private_dns_of(instance: Instance) -> str:
    return private_dns(instance.private_ip, instance.region_name) if instance.private_ip else ""


def instance_as_dict(instance: Instance) -> dict[str, Any]:
    launched = spelled(instance.launch_time)
    placement: dict[str, Any] = {
        "AvailabilityZone": instance.availability_zone,
        "GroupName": instance.placement.group_name,
        "Tenancy": instance.placement.tenancy,
    }
    if instance.placement_group:
        placement["GroupId"] = instance.placement_group.id
    described: dict[str, Any] = {
        "AmiLaunchIndex": instance.ami_launch_index,
        "Architecture": instance.architecture,
        "BlockDeviceMappings": [
            {
                "DeviceName": device,
                "Ebs": {
                    "AttachTime": spelled(mapping.attach_time),
                    "DeleteOnTermination": mapping.delete_on_termination,
                    "Status": "attached",
                    "VolumeId": mapping.volume_id,
                },
            }
            for device, mapping in instance.block_device_mapping.items()
        ],
        "BootMode": "uefi-preferred",
        "CapacityReservationSpecification": {"CapacityReservationPreference": "open"},
        "ClientToken": instance.client_token,
        "CurrentInstanceBootMode": "uefi",
        "EbsOptimized": instance.ebs_optimized,
        "EnaSupport": True,
        "EnclaveOptions": {"Enabled": False},
        "HibernationOptions": {"Configured": False},
        "Hypervisor": "xen",
        "ImageId": instance.image_id,
        "InstanceId": instance.id,
        "InstanceType": instance.instance_type,
        "LaunchTime": launched,
        "MaintenanceOptions": {"AutoRecovery": "default"},
        "MetadataOptions": metadata_options(instance),
        "Monitoring": {"State": instance.monitoring_state},
        "NetworkInterfaces": [_interface(instance, interface) for interface in instance.nics.values()],
        "Placement": placement,
        "PlatformDetails": "Linux/UNIX",
        "PrivateDnsName": private_dns_of(instance),
        "ProductCodes": [],
        "PublicDnsName": "",
        "RootDeviceName": instance.root_device_name,
        "RootDeviceType": "ebs",
        "SecurityGroups": groups_of(instance.nics[0]) if 0 in instance.nics else [],
        "State": {"Code": instance.state_code, "Name": instance.state},
        "StateTransitionReason": instance._reason,
        "Tags": [{"Key": key, "Value": value} for key, value in instance.tags.items()],
        "UsageOperation": "RunInstances",
        "UsageOperationUpdateTime": launched,
        "VirtualizationType": "hvm",
    }
    if 0 in instance.nics:
        described |= {
            "PrivateDnsNameOptions": {
                "EnableResourceNameDnsAAAARecord": False,
                "EnableResourceNameDnsARecord": False,
                "HostnameType": "ip-name",
            },
            "PrivateIpAddress": instance.private_ip,
            "PublicDnsName": public_dns_of(instance),
            "SourceDestCheck": instance.source_dest_check,
            "SubnetId": instance.subnet_id,
            "VpcId": instance.vpc_id,
        }
        if instance.public_ip:
            described["PublicIpAddress"] = instance.public_ip
    if instance.key_name:
        described["KeyName"] = instance.key_name
    if instance.profile:
        described["IamInstanceProfile"] = instance.iam_instance_profile
    if instance.lifecycle:
        described["InstanceLifecycle"] = instance.lifecycle
    if instance.state_reason.code:
        described["StateReason"] = {"Code": instance.state_reason.code, "Message": instance.state_reason.message}
    return described


def metadata_options(instance: Instance) -> dict[str, Any]:
    options = instance.metadata_options
    return {
        "HttpEndpoint": options.http_endpoint,
        "HttpProtocolIpv6": options.http_protocol_ipv6,
        "HttpPutResponseHopLimit": options.http_put_response_hop_limit,
        "HttpTokens": options.http_tokens,
        "InstanceMetadataTags": options.instance_metadata_tags,
        "State": options.state,
    }


def groups_of(interface: Any) -> list[dict[str, str]]:
    return [{"GroupId": group.id, "GroupName": group.name} for group in interface._group_set]


def _interface(instance: Instance, interface: Any) -> dict[str, Any]:
    address = interface.private_ip_address
    name = private_dns(address, instance.region_name)
    described: dict[str, Any] = {
        "Attachment": {
            "AttachTime": spelled(interface.attach_time),
            "AttachmentId": interface.attachment_id,
            "DeleteOnTermination": bool(interface.delete_on_termination),
            "DeviceIndex": getattr(interface, "shown_index", interface.device_index),
            "NetworkCardIndex": getattr(interface, "card_index", 0),
            "Status": "attached",
        },
        "Description": interface.description,
        "Groups": groups_of(interface),
        "InterfaceType": interface.interface_type,
        "Ipv6Addresses": [],
        "MacAddress": interface.mac_address,
        "NetworkInterfaceId": interface.id,
        "OwnerId": instance.owner_id,
        "PrivateDnsName": name,
        "PrivateIpAddress": address,
        "PrivateIpAddresses": [{"Primary": True, "PrivateDnsName": name, "PrivateIpAddress": address}],
        "SourceDestCheck": interface.source_dest_check,
        "Status": "in-use",
        "SubnetId": interface.subnet.id,
        "VpcId": interface.subnet.vpc_id,
    }
    if interface.public_ip:
        association = {key: interface.association[key] for key in ("IpOwnerId", "PublicDnsName", "PublicIp")}
        described["Association"] = association
        described["PrivateIpAddresses"][0]["Association"] = association
    return described


# Filters


def _each(attribute: str) -> Callable[[Instance], Values]:
    def get(instance: Instance) -> Values:
        value = getattr(instance, attribute)
        if isinstance(value, bool):
            return ("true" if value else "false",)
        return (None if value is None else str(value),)

    return get


_FILTERS: Mapping[str, Callable[[Instance], Values]] = {
    "availability-zone": _each("availability_zone"),
    "group-id": lambda instance: [group.id for group in instance.security_groups],
    "image-id": _each("image_id"),
    "instance-id": _each("id"),
    "instance-lifecycle": _each("lifecycle"),
    "instance-state-name": _each("state"),
    "instance-type": _each("instance_type"),
    "instance.group-id": lambda instance: [group.id for group in instance.security_groups],
    "instance.group-name": lambda instance: [group.name for group in instance.security_groups],
    "ip-address": _each("public_ip"),
    "key-name": _each("key_name"),
    "private-dns-name": lambda instance: (private_dns_of(instance),),
    "private-ip-address": _each("private_ip"),
    "subnet-id": lambda instance: (instance.subnet_id if instance.nics else None,),
    "tenancy": lambda instance: (instance.placement.tenancy,),
    "vpc-id": _each("vpc_id"),
}


def _asked_for(call: Call) -> list[Instance]:
    ids = call.params.get("InstanceIds")
    if ids and call.params.get("MaxResults") is not None:
        raise AwsError(
            "InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults"
        )
    return instances_named(call.cloud, call.region, ids) if ids else instances_in(call.cloud, call.region)


@answers("ec2", "DescribeInstances")
def describe_instances(call: Call) -> dict[str, Any]:
    matches = chosen(_asked_for(call), call.params.get("Filters"), _FILTERS, lambda instance: instance.tags)
    refuse_dry_run(call.params)
    items, token = page(matches, call.params, default=None if call.params.get("InstanceIds") else 1000)
    reservations: dict[str, list[Instance]] = {}
    for instance in items:
        reservations.setdefault(instance.reservation_id, []).append(instance)
    answer: dict[str, Any] = {"Reservations": [reservation_as_dict(instances) for instances in reservations.values()]}
    return answer | ({"NextToken": token} if token else {})


# Health and what the machine says


def status_of(cloud: Cloud, instance: Instance) -> str:
    """ok, initializing (it has not come up yet), impaired (it is frozen), or not-applicable."""
    if instance.state not in ("running", "pending"):
        return "not-applicable"
    if cloud.faults.of_kind("frozen", instance=instance.id):
        return "impaired"
    return "ok" if instance.state == "running" else "initializing"


def _status(cloud: Cloud, instance: Instance) -> dict[str, Any]:
    status = status_of(cloud, instance)
    check: dict[str, Any] = {"Status": status}
    if status != "not-applicable":
        result = {"ok": "passed", "impaired": "failed"}.get(status, status)
        check["Details"] = [{"Name": "reachability", "Status": result}]
        if status == "impaired":
            check["Details"][0]["ImpairedSince"] = spelled(now(cloud))
    # A host that is in order can have a machine that does not answer.
    healthy = {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
    return {
        "AvailabilityZone": instance.availability_zone,
        "Events": [],
        "InstanceId": instance.id,
        "InstanceState": {"Code": instance.state_code, "Name": instance.state},
        "InstanceStatus": check,
        "SystemStatus": healthy if status == "impaired" else check,
    }


@answers("ec2", "DescribeInstanceStatus")
def describe_instance_status(call: Call) -> dict[str, Any]:
    cloud = call.cloud
    matches = _asked_for(call)
    if not call.params.get("IncludeAllInstances"):
        matches = [instance for instance in matches if instance.state == "running"]
    matches = chosen(matches, call.params.get("Filters"), {}, lambda instance: instance.tags)
    refuse_dry_run(call.params)
    items, token = page(matches, call.params, default=None if call.params.get("InstanceIds") else 1000)
    return {"InstanceStatuses": [_status(cloud, instance) for instance in items]} | (
        {"NextToken": token} if token else {}
    )


@answers("ec2", "GetConsoleOutput")
def get_console_output(call: Call) -> dict[str, Any]:
    """Return the last 64 KB of the machine's console; always the latest, whether requested or not."""
    instance = instance_of(call.cloud, call.region, str(call.params.get("InstanceId")))
    refuse_dry_run(call.params)
    text = "" if instance.boots_nothing or call.cloud.machines is None else call.cloud.machines.console(instance.id)
    answer = {"InstanceId": instance.id, "Timestamp": spelled(now(call.cloud))}
    if not text:
        return answer
    return answer | {"Output": base64.b64encode(text.encode()[-65536:]).decode()}
