"""Elastic File System: file systems, and what other parts of the local cloud ask about them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Any

from localcloud.api import efs_extras, efs_targets
from localcloud.api.efs_extras import read_tags
from localcloud.api.efs_records import (
    AccessPoint,
    AlreadyExists,
    FileSystem,
    all_file_systems,
    bad_request,
    find_available,
    find_file_system,
    new_id,
    page,
    records_of,
    region_of,
    show_file_system,
    without_none,
)
from localcloud.api.efs_targets import zone_ids
from localcloud.api.registry import Call, Result, answers
from localcloud.cloud import Cloud, arn
from localcloud.errors import AwsError
from localcloud.views import MountTargetView

__all__ = [
    "efs_extras",
    "efs_targets",
    "file_system_exists",
    "file_system_policy",
    "file_systems",
    "mount_target_views",
    "tags_of",
]

DAY = 86400
_KEY_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|mrk-[0-9a-f]{32}")


# For other parts


def mount_target_views(cloud: Cloud) -> list[MountTargetView]:
    """Every mount target, whatever its state."""
    return [
        MountTargetView(
            id=target.id,
            file_system_id=target.file_system_id,
            region=target.region,
            vpc_id=target.vpc_id,
            subnet_id=target.subnet_id,
            zone=target.zone,
            ip=target.ip,
            security_groups=target.security_groups,
            state=target.state,
        )
        for region in records_of(cloud).regions.values()
        for target in region.mount_targets.values()
    ]


def file_systems(cloud: Cloud) -> list[dict[str, Any]]:
    """For the status: id, name, region, state, and the mount targets with id, zone, ip and state."""
    return [
        {
            "id": file_system.id,
            "name": file_system.tags.get("Name", ""),
            "region": file_system.region,
            "state": file_system.state,
            "mount_targets": [{"id": t.id, "zone": t.zone, "ip": t.ip, "state": t.state} for t in targets],
        }
        for file_system, targets in all_file_systems(cloud)
    ]


def file_system_exists(cloud: Cloud, file_system_id: str) -> bool:
    return any(file_system_id in region.file_systems for region in records_of(cloud).regions.values())


def file_system_policy(cloud: Cloud, file_system_arn: str) -> str | None:
    """The JSON of the policy that a file system bears, if there is one."""
    found = (one.policy for one, _ in all_file_systems(cloud) if one.arn == file_system_arn)
    return next(found, None)


def tags_of(cloud: Cloud, resource_arn: str) -> Mapping[str, str]:
    """The tags of a file system or an access point; none if there is no such thing."""
    for region in records_of(cloud).regions.values():
        resources: list[FileSystem | AccessPoint] = [*region.file_systems.values(), *region.access_points.values()]
        for resource in resources:
            if resource.arn == resource_arn:
                return resource.tags
    return {}


# Operations


@answers("efs", "CreateFileSystem")
def create_file_system(call: Call) -> Result:
    params = call.params
    region = region_of(call)
    token = str(params["CreationToken"])
    for old in region.file_systems.values():
        if old.token == token:
            message = f"File system '{old.id}' already exists with creation token '{token}'"
            raise AlreadyExists("FileSystemAlreadyExists", message, FileSystemId=old.id)
    zone = params.get("AvailabilityZoneName")
    file_system = FileSystem(
        id=new_id("fs"),
        region=call.region,
        number=records_of(call.cloud).next_number(),
        token=token,
        created=call.cloud.clock.time(),
        encrypted=bool(params.get("Encrypted")),
        kms_key=_kms_key(call),
        zone=zone,
        zone_id=_zone_id(call, zone) if zone else None,
        tags=read_tags(params.get("Tags") or []),
        **_performance(params),
    )
    if params.get("Backup", zone is not None):
        file_system.backup = "ENABLED"
    region.file_systems[file_system.id] = file_system
    call.cloud.clock.later(call.cloud.latency.of("file_system_available"), lambda: _become_available(file_system))
    return show_file_system(file_system, 0)


def _become_available(file_system: FileSystem) -> None:
    if file_system.state == "creating":
        file_system.state = "available"


def _performance(params: Mapping[str, Any]) -> dict[str, Any]:
    """The modes asked for, which must go together."""
    performance = params.get("PerformanceMode", "generalPurpose")
    throughput = params.get("ThroughputMode", "bursting")
    provisioned = params.get("ProvisionedThroughputInMibps")
    if performance not in ("generalPurpose", "maxIO"):
        raise bad_request(f"Invalid value '{performance}' for PerformanceMode: give generalPurpose or maxIO.")
    if performance == "maxIO" and throughput == "elastic":
        raise bad_request("Elastic throughput is not supported for file systems using the Max I/O performance mode.")
    if performance == "maxIO" and params.get("AvailabilityZoneName"):
        raise bad_request("One Zone file systems do not support the Max I/O performance mode.")
    _check_throughput(throughput, provisioned)
    return {"performance": performance, "throughput": throughput, "provisioned": provisioned}


def _check_throughput(mode: str, provisioned: float | None) -> None:
    if mode not in ("bursting", "provisioned", "elastic"):
        raise bad_request(f"Invalid value '{mode}' for ThroughputMode: give bursting, provisioned or elastic.")
    if mode == "provisioned" and provisioned is None:
        raise bad_request("ProvisionedThroughputInMibps is required with the throughput mode provisioned.")
    if mode != "provisioned" and provisioned is not None:
        raise bad_request("ProvisionedThroughputInMibps can be given with the throughput mode provisioned only.")
    if provisioned is not None and provisioned < 1:
        raise bad_request("ProvisionedThroughputInMibps must be 1.0 or more.")


def _kms_key(call: Call) -> str | None:
    """The ARN of the key: the one given in any of its forms, or AWS's own for EFS."""
    given = call.params.get("KmsKeyId")
    if not call.params.get("Encrypted"):
        if given:
            raise bad_request("KmsKeyId can be given for an encrypted file system only: set Encrypted to true.")
        return None
    if given and str(given).startswith("arn:"):
        return str(given)
    if given and _KEY_ID.fullmatch(str(given)):
        return arn("kms", call.region, f"key/{given}")
    # The same alias is always the same key.
    name = str(given or "alias/aws/elasticfilesystem")
    return arn("kms", call.region, f"key/{uuid.uuid5(uuid.NAMESPACE_URL, f'{call.region}/{name}')}")


def _zone_id(call: Call, zone: str) -> str:
    found = zone_ids(call).get(zone)
    if found is None:
        raise AwsError("UnsupportedAvailabilityZone", f"One Zone file systems are not supported in '{zone}'.", 400)
    return found


@answers("efs", "UpdateFileSystem")
def update_file_system(call: Call) -> Result:
    file_system = find_available(call, call.params["FileSystemId"])
    mode = call.params.get("ThroughputMode", file_system.throughput)
    given = call.params.get("ProvisionedThroughputInMibps")
    amount = given if given is not None or mode != "provisioned" else file_system.provisioned
    _check_throughput(mode, amount)
    if mode == "elastic" and file_system.performance == "maxIO":
        raise bad_request("Elastic throughput is not supported for file systems using the Max I/O performance mode.")
    _change_throughput(file_system, mode, amount, call.cloud.clock.time())
    return show_file_system(file_system, len(region_of(call).targets_of(file_system.id)))


def _change_throughput(file_system: FileSystem, mode: str, amount: float | None, now: float) -> None:
    """Provisioned throughput, once taken or raised, is kept for a day.

    https://docs.aws.amazon.com/efs/latest/ug/managing-throughput.html
    """
    before = file_system.provisioned or 0.0
    leaving = file_system.throughput == "provisioned" and mode != "provisioned"
    lowering = mode == "provisioned" and (amount or 0.0) < before
    if (leaving or lowering) and now < file_system.throughput_held_until:
        raise AwsError(
            "TooManyRequests",
            "Provisioned throughput can be decreased, or the throughput mode changed, "
            "24 hours after it was set or increased.",
            429,
        )
    if mode == "provisioned" and (amount or 0.0) > before:
        file_system.throughput_held_until = now + DAY
    file_system.throughput = mode
    file_system.provisioned = amount if mode == "provisioned" else None


@answers("efs", "DescribeFileSystems")
def describe_file_systems(call: Call) -> Result:
    params = call.params
    region = region_of(call)
    if params.get("FileSystemId") and params.get("CreationToken"):
        raise bad_request("Give FileSystemId or CreationToken, not both.")
    found = list(region.file_systems.values())
    if params.get("FileSystemId"):
        found = [find_file_system(call, params["FileSystemId"])]
    elif params.get("CreationToken"):
        found = [one for one in found if one.token == params["CreationToken"]]
    shown, following = page(found, params.get("MaxItems"), params.get("Marker"))
    return without_none(
        {
            "Marker": params.get("Marker"),
            "FileSystems": [show_file_system(one, len(region.targets_of(one.id))) for one in shown],
            "NextMarker": following,
        }
    )


@answers("efs", "DeleteFileSystem")
def delete_file_system(call: Call) -> Result:
    file_system = find_file_system(call, call.params["FileSystemId"])
    region = region_of(call)
    if region.targets_of(file_system.id):
        raise AwsError(
            "FileSystemInUse",
            f"The file system '{file_system.id}' cannot be deleted because it has mount targets. "
            "You must delete the mount targets, and then try again.",
            409,
        )
    if file_system.state != "deleting":
        file_system.state = "deleting"

        def vanish() -> None:
            del region.file_systems[file_system.id]
            for point in [one for one in region.access_points.values() if one.file_system_id == file_system.id]:
                del region.access_points[point.id]

        call.cloud.clock.later(call.cloud.latency.of("file_system_deleted"), vanish)
    return None


@answers("efs", "UpdateFileSystemProtection")
def update_file_system_protection(call: Call) -> Result:
    file_system = find_available(call, call.params["FileSystemId"])
    wanted = call.params.get("ReplicationOverwriteProtection", file_system.overwrite_protection)
    if wanted not in ("ENABLED", "DISABLED"):
        raise bad_request("ReplicationOverwriteProtection can be set to ENABLED or DISABLED.")
    file_system.overwrite_protection = wanted
    return {"ReplicationOverwriteProtection": wanted}
