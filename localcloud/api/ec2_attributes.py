"""Attributes of an instance, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.api.ec2_describe import instance_as_dict, metadata_options
from localcloud.api.ec2_filters import refuse_dry_run
from localcloud.api.ec2_instance import Instance
from localcloud.api.ec2_records import group_named, instance_of, instances_named
from localcloud.api.ec2_request import check_metadata, check_user_data
from localcloud.api.ec2_types import types
from localcloud.api.registry import Call, answers
from localcloud.errors import AwsError

# Attributes that are one value: their name in a call, and in moto's record.
_VALUES: Mapping[str, str] = {
    "DisableApiStop": "disable_api_stop",
    "DisableApiTermination": "disable_api_termination",
    "EbsOptimized": "ebs_optimized",
    "InstanceInitiatedShutdownBehavior": "instance_initiated_shutdown_behavior",
    "InstanceType": "instance_type",
    "SourceDestCheck": "source_dest_check",
    "UserData": "user_data",
}
_ONLY_STOPPED = ("InstanceType", "UserData", "EbsOptimized")
_BOOLEAN = ("DisableApiStop", "DisableApiTermination", "EbsOptimized", "SourceDestCheck")


def _instance(call: Call) -> Instance:
    return instance_of(call.cloud, call.region, str(call.params.get("InstanceId")))


@answers("ec2", "DescribeInstanceAttribute")
def describe_instance_attribute(call: Call) -> dict[str, Any]:
    instance = _instance(call)
    attribute = str(call.params.get("Attribute") or "")
    name = attribute[:1].upper() + attribute[1:]
    refuse_dry_run(call.params)
    answer: dict[str, Any] = {"InstanceId": instance.id}
    if name == "GroupSet":
        return answer | {
            "Groups": [{"GroupId": group.id, "GroupName": group.name} for group in instance.security_groups]
        }
    if name == "BlockDeviceMapping":
        return answer | {"BlockDeviceMappings": instance_as_dict(instance)["BlockDeviceMappings"]}
    if name in _VALUES:
        value = getattr(instance, _VALUES[name])
        return answer | {name: {} if value is None else {"Value": value}}
    fixed: Mapping[str, dict[str, Any]] = {
        "RootDeviceName": {"RootDeviceName": {"Value": instance.root_device_name}},
        "Kernel": {"KernelId": {}},
        "Ramdisk": {"RamdiskId": {}},
        "ProductCodes": {"ProductCodes": []},
        "SriovNetSupport": {"SriovNetSupport": {"Value": "simple"}},
        "EnaSupport": {"EnaSupport": {"Value": True}},
        "EnclaveOptions": {"EnclaveOptions": {"Enabled": False}},
    }
    if name not in fixed:
        raise AwsError(
            "InvalidParameterValue", f"Value ({attribute}) for parameter attribute is invalid. Unknown attribute."
        )
    return answer | fixed[name]


@answers("ec2", "ModifyInstanceAttribute")
def modify_instance_attribute(call: Call) -> dict[str, Any]:
    instance, params = _instance(call), call.params
    if params.get("Attribute"):
        attribute = str(params["Attribute"])
        given = {attribute[:1].upper() + attribute[1:]: params.get("Value")}
    else:
        given = {name: params[name].get("Value") for name in _VALUES if isinstance(params.get(name), Mapping)}
    for name, value in given.items():
        _check(instance, name, value)
    groups = [group_named(instance.ec2_backend, str(key), str(instance.vpc_id)) for key in params.get("Groups") or ()]
    refuse_dry_run(params)
    for name, value in given.items():
        converted = _converted(name, value)
        setattr(instance, _VALUES[name], converted)
        if name == "SourceDestCheck":
            instance.nics[0].source_dest_check = bool(converted)
    if groups:
        instance.security_groups = groups
    for mapping in params.get("BlockDeviceMappings") or ():
        device = instance.block_device_mapping.get(mapping.get("DeviceName"))
        if device is None:
            raise AwsError(
                "InvalidInstanceAttributeValue", f"No device is currently mapped at {mapping.get('DeviceName')}"
            )
        if (mapping.get("Ebs") or {}).get("DeleteOnTermination") is not None:
            device.delete_on_termination = bool(mapping["Ebs"]["DeleteOnTermination"])
    return {}


def _converted(name: str, value: Any) -> Any:
    if name in _BOOLEAN:
        return str(value).lower() == "true"
    return check_user_data(value) if name == "UserData" else value


def _check(instance: Instance, name: str, value: Any) -> None:
    if name not in _VALUES:
        raise AwsError(
            "InvalidParameterValue", f"Value ({name}) for parameter attribute is invalid. Unknown attribute."
        )
    if name in _ONLY_STOPPED and instance.state != "stopped":
        raise AwsError("IncorrectInstanceState", f"The instance '{instance.id}' is not in the 'stopped' state.")
    if name == "InstanceType" and value not in types():
        raise AwsError("InvalidParameterValue", f"Invalid value '{value}' for InstanceType.")
    if name == "InstanceInitiatedShutdownBehavior" and value not in ("stop", "terminate"):
        raise AwsError(
            "InvalidParameterValue", f"Value ({value}) for parameter instanceInitiatedShutdownBehavior is invalid."
        )


@answers("ec2", "ModifyInstanceMetadataOptions")
def modify_instance_metadata_options(call: Call) -> dict[str, Any]:
    """What is not given stays. (moto sets it to its default.)"""
    instance, params = _instance(call), call.params
    check_metadata(params)
    refuse_dry_run(params)
    options = instance.metadata_options
    for key, name in (
        ("HttpTokens", "http_tokens"),
        ("HttpPutResponseHopLimit", "http_put_response_hop_limit"),
        ("HttpEndpoint", "http_endpoint"),
        ("HttpProtocolIpv6", "http_protocol_ipv6"),
        ("InstanceMetadataTags", "instance_metadata_tags"),
    ):
        if params.get(key) is not None:
            setattr(options, name, int(params[key]) if key == "HttpPutResponseHopLimit" else params[key])
    return {"InstanceId": instance.id, "InstanceMetadataOptions": metadata_options(instance)}


@answers("ec2", "MonitorInstances", "UnmonitorInstances")
def monitor_instances(call: Call) -> dict[str, Any]:
    wanted = "enabled" if call.operation == "MonitorInstances" else "disabled"
    instances = instances_named(call.cloud, call.region, call.params.get("InstanceIds") or ())
    refuse_dry_run(call.params)
    for instance in instances:
        instance.monitoring_state = wanted
    return {"InstanceMonitorings": [{"InstanceId": one.id, "Monitoring": {"State": wanted}} for one in instances]}
