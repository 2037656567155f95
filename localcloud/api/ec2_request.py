"""What a call of RunInstances asks for, checked in AWS's own words."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from localcloud.api.ec2_instance import Launch
from localcloud.api.ec2_interfaces import interfaces_for_launch, subnet_into_interface
from localcloud.api.ec2_placement import group_for_launch
from localcloud.api.ec2_profiles import profile_for_launch
from localcloud.api.ec2_records import backend_of, zones_of
from localcloud.api.ec2_template import merged, version_of
from localcloud.api.ec2_types import types, zones_with
from localcloud.api.images import ROOT_DEVICE, ROOT_SIZE, Image, image_for_launch
from localcloud.api.ssm import image_by_parameter
from localcloud.cloud import Cloud
from localcloud.errors import AwsError

_TAGGED = ("instance", "volume", "network-interface", "spot-instances-request", "elastic-gpu")


def checked(cloud: Cloud, region: str, params: Mapping[str, Any], from_service: bool = False) -> Launch:
    """What a call of RunInstances asks for, template included, or AWS's refusal. Nothing is changed by it."""
    template = params.get("LaunchTemplate")
    asked = dict(params)
    tags_of_template: dict[str, str] = {}
    if template:
        version = version_of(region, template)
        asked = merged(params, version.data)
        tags_of_template = {
            "aws:ec2launchtemplate:id": version.template.id,
            "aws:ec2launchtemplate:version": str(version.number),
        }
    if from_service and asked.get("SubnetId") and asked.get("NetworkInterfaces"):
        asked = subnet_into_interface(asked)
    image = _image(cloud, asked)
    kind = _type(asked, image)
    placement = asked.get("Placement") or {}
    group = group_for_launch(cloud, region, placement)
    strategies = types()[kind]["PlacementGroupInfo"]["SupportedStrategies"]
    if group and group.strategy not in strategies:
        raise AwsError(
            "InvalidParameterCombination",
            f"{group.strategy.capitalize()} placement groups are not supported by the '{kind}' instance type. "
            "Specify a supported instance type or change the placement group strategy, and try again.",
        )
    interfaces = interfaces_for_launch(region, asked, kind)
    _check_zone(region, kind, interfaces[0].subnet.availability_zone, placement)
    tags = _tags(asked)
    if tags_of_template:
        tags["instance"] = {**tags.get("instance", {}), **tags_of_template}
    market = asked.get("InstanceMarketOptions") or {}
    return Launch(
        region=region,
        image=image,
        type=kind,
        interfaces=interfaces,
        volumes=_volumes(asked, image),
        tags=tags,
        key_name=_key_name(region, asked),
        user_data=check_user_data(asked.get("UserData")),
        profile=profile_for_launch(cloud, asked.get("IamInstanceProfile")),
        placement_group=group,
        partition=int(placement["PartitionNumber"]) if placement.get("PartitionNumber") else None,
        tenancy=str(placement.get("Tenancy") or "default"),
        metadata=_metadata(asked),
        shutdown_behavior=_shutdown_behavior(asked),
        disable_api_termination=bool(asked.get("DisableApiTermination")),
        disable_api_stop=bool(asked.get("DisableApiStop")),
        ebs_optimized=bool(asked.get("EbsOptimized")),
        monitoring=bool((asked.get("Monitoring") or {}).get("Enabled")),
        spot=market.get("MarketType") == "spot",
        client_token=str(asked.get("ClientToken") or ""),
    )


def _image(cloud: Cloud, asked: Mapping[str, Any]) -> Image:
    image_id = str(asked.get("ImageId") or "")
    if not image_id:
        raise AwsError("MissingParameter", "The request must contain the parameter ImageId")
    if image_id.startswith("resolve:ssm:"):
        name = image_id.removeprefix("resolve:ssm:")
        found = image_by_parameter(cloud, name)
        if found is None:
            raise AwsError("InvalidParameterValue", f"Parameter {name} does not name an image that is known.")
        image_id = found
    return image_for_launch(cloud, image_id)


def _type(asked: Mapping[str, Any], image: Image) -> str:
    kind = str(asked.get("InstanceType") or "m1.small")
    if kind not in types():
        raise AwsError("InvalidParameterValue", f"Invalid value '{kind}' for InstanceType.")
    architectures = types()[kind]["ProcessorInfo"]["SupportedArchitectures"]
    if "x86_64" not in architectures:
        raise AwsError(
            "InvalidParameterValue",
            f"The architecture '{','.join(architectures)}' of the specified instance type does not match the "
            "architecture "
            ""
            "'x86_64' of the specified AMI. Specify an instance type and an AMI that have matching "
            "architectures, and try "
            "again. You can use 'describe-instance-types' or 'describe-images' to discover the architecture of the "
            "instance type or AMI.",
        )
    return kind


def _check_zone(region: str, kind: str, zone: str, placement: Mapping[str, Any]) -> None:
    asked = placement.get("AvailabilityZone")
    if asked and asked != zone:
        raise AwsError(
            "InvalidParameterValue",
            f"The specified subnet is in {zone}, and the specified availability zone is {asked}.",
        )
    zones = [candidate.name for candidate in zones_of(region)]
    offering = zones_with(kind, region, zones)
    if zone not in offering:
        raise AwsError(
            "Unsupported",
            f"Your requested instance type ({kind}) is not supported in your requested Availability Zone "
            f"({zone}). Please "
            "retry your request by not specifying an Availability Zone or choosing "
            f"{', '.join(offering) or 'another region'}.",
        )


def _key_name(region: str, asked: Mapping[str, Any]) -> str | None:
    name = asked.get("KeyName")
    if name and name not in backend_of(region).key_pairs:
        raise AwsError("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")
    return str(name) if name else None


def check_user_data(given: Any) -> str | None:
    """User data as it comes over the wire: in base64, at most 16 KB of it."""
    if not given:
        return None
    text = given.decode() if isinstance(given, bytes) else str(given)
    try:
        size = len(base64.b64decode(text, validate=False))
    except (binascii.Error, ValueError) as error:
        raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from error
    if size > 16384:
        raise AwsError("InvalidParameterValue", "User data is limited to 16384 bytes")
    return text


def _shutdown_behavior(asked: Mapping[str, Any]) -> str:
    behavior = str(asked.get("InstanceInitiatedShutdownBehavior") or "stop")
    if behavior not in ("stop", "terminate"):
        raise AwsError(
            "InvalidParameterValue", f"Value ({behavior}) for parameter instanceInitiatedShutdownBehavior is invalid."
        )
    return behavior


def _metadata(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    options: Mapping[str, Any] = asked.get("MetadataOptions") or {}
    check_metadata(options)
    return {key: value for key, value in options.items() if value is not None}


def check_metadata(options: Mapping[str, Any]) -> None:
    allowed = {
        "HttpTokens": ("optional", "required"),
        "HttpEndpoint": ("enabled", "disabled"),
        "InstanceMetadataTags": ("enabled", "disabled"),
        "HttpProtocolIpv6": ("enabled", "disabled"),
    }
    for key, values in allowed.items():
        if options.get(key) is not None and options[key] not in values:
            raise AwsError("InvalidParameterValue", f"Value ({options[key]}) for parameter {key} is invalid.")
    hops = options.get("HttpPutResponseHopLimit")
    if hops is not None and not 1 <= int(hops) <= 64:
        raise AwsError(
            "InvalidParameterValue", f"Value ({hops}) for parameter HttpPutResponseHopLimit is invalid. Give 1 to 64."
        )


def _tags(asked: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    tags: dict[str, dict[str, str]] = {}
    for specification in asked.get("TagSpecifications") or ():
        kind = str(specification.get("ResourceType"))
        if kind not in _TAGGED:
            raise AwsError(
                "InvalidParameterValue", f"'{kind}' is not a valid taggable resource type for this operation."
            )
        of_kind = tags.setdefault(kind, {})
        for tag in specification.get("Tags") or ():
            key = str(tag.get("Key") or "")
            if key.startswith("aws:") and not key.startswith("aws:autoscaling:"):
                raise AwsError(
                    "InvalidParameterValue", f"Tag keys starting with 'aws:' are reserved for internal use: {key}"
                )
            of_kind[key] = str(tag.get("Value") or "")
    for of_kind in tags.values():
        if len(of_kind) > 50:
            raise AwsError("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
    return tags


def _volumes(asked: Mapping[str, Any], image: Image) -> tuple[Mapping[str, Any], ...]:
    """The devices of a launch, the image's root among them."""
    root: dict[str, Any] = {"VolumeSize": ROOT_SIZE, "VolumeType": "gp3", "SnapshotId": image.snapshot_id}
    devices: dict[str, Mapping[str, Any]] = {ROOT_DEVICE: {"DeviceName": ROOT_DEVICE, "Ebs": root}}
    for mapping in asked.get("BlockDeviceMappings") or ():
        name = str(mapping.get("DeviceName") or "")
        if mapping.get("NoDevice") is not None or not mapping.get("Ebs"):
            # An ephemeral device, or one of the image that is not wanted: neither is a volume.
            continue
        ebs = {key: value for key, value in mapping["Ebs"].items() if value is not None}
        _check_volume(name, ebs)
        before = devices.get(name, {}).get("Ebs") or {}
        devices[name] = {"DeviceName": name, "Ebs": {**before, **ebs}}
        if not devices[name]["Ebs"].get("VolumeSize"):
            raise AwsError("MissingParameter", "The request must contain the parameter size or snapshotId")
    return tuple(devices.values())


def _check_volume(name: str, ebs: Mapping[str, Any]) -> None:
    kind = ebs.get("VolumeType", "gp3")
    if kind not in ("standard", "gp2", "gp3", "io1", "io2", "st1", "sc1"):
        raise AwsError("InvalidParameterValue", f"Value ({kind}) for parameter volumeType is invalid.")
    if name == ROOT_DEVICE and int(ebs.get("VolumeSize") or ROOT_SIZE) < ROOT_SIZE:
        raise AwsError(
            "InvalidBlockDeviceMapping",
            f"Volume of size {ebs['VolumeSize']}GB is smaller than snapshot, expect size >= {ROOT_SIZE}GB",
        )
    if kind in ("io1", "io2") and not ebs.get("Iops"):
        raise AwsError("MissingParameter", f"The parameter iops must be specified for {kind} volumes.")
    if ebs.get("KmsKeyId") and not ebs.get("Encrypted"):
        raise AwsError(
            "InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set."
        )
