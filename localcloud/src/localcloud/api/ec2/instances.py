"""What is shown of instances. Plain dicts, straight from the records: a thousand in 0.1 s."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from localcloud.api.ec2 import interfaces
from localcloud.api.ec2.errors import conflicting
from localcloud.api.ec2.filters import Described, listing, refuse_dry_run, tag_list
from localcloud.api.ec2.images import COMMON
from localcloud.api.ec2.instance import Instance
from localcloud.api.ec2.moto_records import spelled
from localcloud.api.ec2.patches import private_dns, public_dns
from localcloud.api.ec2.records import instance_of, instances_in, instances_named, now
from localcloud.core.cloud import Call, Cloud, answers


def reservation_as_dict(instances: Sequence[Instance]) -> dict[str, Any]:
    return _reservation(instances[0], [instance_as_dict(instance) for instance in instances])


def _reservation(first: Instance, instances: list[Described]) -> dict[str, Any]:
    return {
        "Groups": [],
        "Instances": instances,
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
        **COMMON["instance"],
        "AmiLaunchIndex": instance.ami_launch_index,
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
        "ClientToken": instance.client_token,
        "EbsOptimized": instance.ebs_optimized,
        "ImageId": instance.image_id,
        "InstanceId": instance.id,
        "InstanceType": instance.instance_type,
        "LaunchTime": launched,
        "MetadataOptions": metadata_options(instance),
        "Monitoring": {"State": instance.monitoring_state},
        "NetworkInterfaces": [interfaces.of_instance(interface) for interface in instance.nics.values()],
        "Placement": placement,
        "PrivateDnsName": private_dns_of(instance),
        "PublicDnsName": "",
        "RootDeviceName": instance.root_device_name,
        "SecurityGroups": interfaces.groups_of(instance.nics[0]) if 0 in instance.nics else [],
        "State": {"Code": instance.state_code, "Name": instance.state},
        "StateTransitionReason": instance._reason,
        "Tags": tag_list(instance.tags),
        "UsageOperationUpdateTime": launched,
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


def _asked_for(call: Call) -> list[Instance]:
    ids = call.params.get("InstanceIds")
    if ids and call.params.get("MaxResults") is not None:
        raise conflicting("The parameter instancesSet cannot be used with the parameter maxResults")
    return instances_named(call.cloud, call.region, ids) if ids else instances_in(call.cloud, call.region)


@answers("ec2", "DescribeInstances")
def describe_instances(call: Call) -> dict[str, Any]:
    existing = {instance.id: instance for instance in _asked_for(call)}
    default = None if call.params.get("InstanceIds") else 1000
    answer = listing(call, "Instances", map(instance_as_dict, existing.values()), default=default)
    reservations: dict[str, list[Described]] = {}
    for described in answer.pop("Instances"):
        reservations.setdefault(existing[described["InstanceId"]].reservation_id, []).append(described)
    shown = [_reservation(existing[items[0]["InstanceId"]], items) for items in reservations.values()]
    return answer | {"Reservations": shown}


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
    default = None if call.params.get("InstanceIds") else 1000
    return listing(call, "InstanceStatuses", [_status(cloud, instance) for instance in matches], default=default)


@answers("ec2", "GetConsoleOutput")
def get_console_output(call: Call) -> dict[str, Any]:
    """Return the last 64 KB of the machine's console. Without `Latest`, AWS has posted nothing until the machine is
    stopped or terminated: https://github.com/canonical/pycloudlib/issues/193,
    https://github.com/NixOS/amis/issues/4, https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html
    """
    instance = instance_of(call.cloud, call.region, str(call.params.get("InstanceId")))
    refuse_dry_run(call.params)
    text = "" if instance.boots_nothing or call.cloud.machines is None else call.cloud.machines.console(instance.id)
    answer = {"InstanceId": instance.id, "Timestamp": spelled(now(call.cloud))}
    is_posted = str(call.params.get("Latest")).lower() == "true" or instance.state in ("stopped", "terminated")
    if not text or not is_posted:
        return answer
    return answer | {"Output": base64.b64encode(text.encode()[-65536:]).decode()}
