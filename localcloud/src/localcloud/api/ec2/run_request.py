"""The request of RunInstances: validated, with AWS's errors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from moto.core.utils import get_service_model

from localcloud.api.ec2.errors import conflicting, invalid, missing
from localcloud.api.ec2.images import Image, image_for_launch
from localcloud.api.ec2.instance import Launch
from localcloud.api.ec2.instance_types import types, zones_with
from localcloud.api.ec2.launch_data import merged, version_of
from localcloud.api.ec2.moto_records import backend_of, zones_of
from localcloud.api.ec2.placement import group_for_launch
from localcloud.api.ec2.profiles import profile_for_launch
from localcloud.api.ec2.run_network import interfaces_for_launch
from localcloud.core.cloud import Call, Cloud
from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error

_TAGGED = ("instance", "volume", "network-interface", "spot-instances-request", "elastic-gpu")


def validated(call: Call) -> Launch:
    """Return the validated request of RunInstances, template included, or raise AWS's error. It changes nothing."""
    cloud, region, params = call.cloud, call.region, call.params
    template = params.get("LaunchTemplate")
    request = dict(params)
    tags_of_template: dict[str, str] = {}
    if template:
        version = version_of(region, template)
        request = merged(params, version.data)
        tags_of_template = {
            "aws:ec2launchtemplate:id": version.template.id,
            "aws:ec2launchtemplate:version": str(version.number),
        }
    image = _image(cloud, request)
    kind = _type(request, image)
    _check_enumerations(request, get_service_model("ec2").operation_model("RunInstances").input_shape)
    placement = request.get("Placement") or {}
    group = group_for_launch(cloud, region, placement)
    strategies = types()[kind]["PlacementGroupInfo"]["SupportedStrategies"]
    if group and group.strategy not in strategies:
        raise conflicting(
            f"{group.strategy.capitalize()} placement groups are not supported by the '{kind}' instance type. "
            "Specify a supported instance type or change the placement group strategy, and try again."
        )
    _refuse_reservations(request)
    interfaces = interfaces_for_launch(region, request, kind)
    _check_zone(region, kind, interfaces[0].subnet.availability_zone, placement)
    tags = _tags(request, of_service=call.caller.kind == "service")
    if tags_of_template:
        tags["instance"] = {**tags.get("instance", {}), **tags_of_template}
    market = request.get("InstanceMarketOptions") or {}
    return Launch(
        region=region,
        image=image,
        type=kind,
        interfaces=interfaces,
        volumes=_volumes(request, image),
        tags=tags,
        key_name=_key_name(region, request),
        user_data=check_user_data(request.get("UserData")),
        profile=profile_for_launch(cloud, request.get("IamInstanceProfile")),
        placement_group=group,
        tenancy=str(placement.get("Tenancy") or "default"),
        metadata=_metadata(request, image),
        shutdown_behavior=str(request.get("InstanceInitiatedShutdownBehavior") or "stop"),
        disable_api_termination=bool(request.get("DisableApiTermination")),
        disable_api_stop=bool(request.get("DisableApiStop")),
        ebs_optimized=bool(request.get("EbsOptimized")),
        monitoring=bool((request.get("Monitoring") or {}).get("Enabled")),
        spot=market.get("MarketType") == "spot",
        client_token=str(request.get("ClientToken") or ""),
    )


def _image(cloud: Cloud, request: Mapping[str, Any]) -> Image:
    image_id = str(request.get("ImageId") or "")
    if not image_id:
        raise missing("ImageId")
    return image_for_launch(cloud, image_id)


def _refuse_reservations(request: Mapping[str, Any]) -> None:
    """The local cloud has no capacity reservations, so a launch cannot name one."""
    target = (request.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    named = target.get("CapacityReservationId") or target.get("CapacityReservationResourceGroupArn")
    if named:
        message = f"The Capacity Reservation ID '{named}' does not exist"
        raise AwsError("InvalidCapacityReservationId.NotFound", message)


def _type(request: Mapping[str, Any], image: Image) -> str:
    kind = str(request.get("InstanceType") or "m1.small")
    if kind not in types():
        raise invalid(f"Invalid value '{kind}' for InstanceType.")
    architectures = types()[kind]["ProcessorInfo"]["SupportedArchitectures"]
    if "x86_64" not in architectures:
        raise invalid(
            f"The architecture '{','.join(architectures)}' of the specified instance type does not match the "
            "architecture 'x86_64' of the specified AMI. Specify an instance type and an AMI that have matching "
            "architectures, and try again. You can use 'describe-instance-types' or 'describe-images' to discover the "
            "architecture of the instance type or AMI."
        )
    return kind


def _check_zone(region: str, kind: str, zone: str, placement: Mapping[str, Any]) -> None:
    requested = placement.get("AvailabilityZone")
    if requested and requested != zone:
        raise invalid(f"The specified subnet is in {zone}, and the specified availability zone is {requested}.")
    zones = [candidate.name for candidate in zones_of(region)]
    offering = zones_with(kind, region, zones)
    if zone not in offering:
        raise aws_error("ec2:RunInstances", "Unsupported", type=kind, zone=zone, others=", ".join(offering))


def _key_name(region: str, request: Mapping[str, Any]) -> str | None:
    name = request.get("KeyName")
    if name and name not in backend_of(region).key_pairs:
        raise aws_error("ec2:RunInstances", "InvalidKeyPair.NotFound", name=name)
    return str(name) if name else None


def check_user_data(user_data: Any) -> str | None:
    """Return user data in base64, as it comes over the wire. Raise AwsError if it is more than 16 KiB."""
    if not user_data:
        return None
    text = user_data.decode() if isinstance(user_data, bytes) else str(user_data)
    try:
        size = len(base64.b64decode(text, validate=False))
    except (binascii.Error, ValueError) as error:
        raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from error
    if size > 16384:
        raise invalid("User data is limited to 16384 bytes")
    return text


def _check_enumerations(value: Any, shape: Any, name: str = "") -> None:
    """Refuse values that EC2's model does not list."""
    if value in (None, ""):
        return
    if shape.type_name == "structure":
        for key in value.keys() & shape.members.keys():
            _check_enumerations(value[key], shape.members[key], key)
    elif shape.type_name == "list":
        for item in value:
            _check_enumerations(item, shape.member, name)
    elif getattr(shape, "enum", None) and value not in shape.enum:
        raise invalid(f"Value ({value}) for parameter {name[0].lower()}{name[1:]} is invalid.")


def _metadata(request: Mapping[str, Any], image: Image) -> Mapping[str, Any]:
    """Return the metadata options of a launch; the image has the defaults of missing ones."""
    options: Mapping[str, Any] = request.get("MetadataOptions") or {}
    hops = options.get("HttpPutResponseHopLimit")
    if hops is not None and not 1 <= int(hops) <= 64:
        raise invalid(f"Value ({hops}) for parameter HttpPutResponseHopLimit is invalid. Give 1 to 64.")
    of_image = {"HttpTokens": "required", "HttpPutResponseHopLimit": 2} if image.imds_support == "v2.0" else {}
    return of_image | {key: value for key, value in options.items() if value is not None}


def _tags(request: Mapping[str, Any], of_service: bool) -> dict[str, dict[str, str]]:
    tags: dict[str, dict[str, str]] = {}
    for specification in request.get("TagSpecifications") or ():
        kind = str(specification.get("ResourceType"))
        if kind not in _TAGGED:
            raise invalid(f"'{kind}' is not a valid taggable resource type for this operation.")
        of_kind = tags.setdefault(kind, {})
        for tag in specification.get("Tags") or ():
            key = str(tag.get("Key") or "")
            if key.startswith("aws:") and not of_service:
                raise invalid(f"Tag keys starting with 'aws:' are reserved for internal use: {key}")
            of_kind[key] = str(tag.get("Value") or "")
    for of_kind in tags.values():
        if len(of_kind) > 50:
            raise AwsError("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
    return tags


def _volumes(request: Mapping[str, Any], image: Image) -> tuple[Mapping[str, Any], ...]:
    """Return the devices of a launch, including the image's root."""
    root: dict[str, Any] = {"VolumeSize": image.root_gib, "VolumeType": "gp3", "SnapshotId": image.snapshot_id}
    devices: dict[str, Mapping[str, Any]] = {image.root_device: {"DeviceName": image.root_device, "Ebs": root}}
    for mapping in request.get("BlockDeviceMappings") or ():
        name = str(mapping.get("DeviceName") or "")
        if mapping.get("NoDevice") is not None or not mapping.get("Ebs"):
            # An ephemeral device, or one of the image that is not wanted: neither is a volume.
            continue
        ebs = {key: value for key, value in mapping["Ebs"].items() if value is not None}
        _check_volume(ebs, image if name == image.root_device else None)
        before = devices.get(name, {}).get("Ebs") or {}
        devices[name] = {"DeviceName": name, "Ebs": {**before, **ebs}}
        if not devices[name]["Ebs"].get("VolumeSize"):
            raise AwsError("MissingParameter", "The request must contain the parameter size or snapshotId")
    return tuple(devices.values())


def _check_volume(ebs: Mapping[str, Any], root_of: Image | None) -> None:
    kind = ebs.get("VolumeType", "gp3")
    if root_of and int(ebs.get("VolumeSize") or root_of.root_gib) < root_of.root_gib:
        raise AwsError(
            "InvalidBlockDeviceMapping",
            f"Volume of size {ebs['VolumeSize']}GB is smaller than snapshot '{root_of.snapshot_id}', expect size >= "
            f"{root_of.root_gib}GB",
        )
    if kind in ("io1", "io2") and not ebs.get("Iops"):
        raise AwsError("MissingParameter", f"The parameter iops must be specified for {kind} volumes.")
    if ebs.get("KmsKeyId") and not ebs.get("Encrypted"):
        raise AwsError(
            "InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set."
        )
