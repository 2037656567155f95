"""Elastic File System: file systems, and what other parts of the local cloud ask about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from localcloud.api.ec2 import late_tags
from localcloud.api.ec2.moto_records import new_id
from localcloud.api.efs.records import (
    AlreadyExists,
    FileSystem,
    all_file_systems,
    bad_request,
    find_available,
    find_file_system,
    region_of,
    regions_of,
    show_file_system,
    show_page,
)
from localcloud.api.iam.documents import check_document
from localcloud.core.cloud import Call, Cloud, Result, answers
from localcloud.core.views import MountTargetView
from localcloud.core.words import aws_error

MAX_TAGS = 50
SECONDS_BETWEEN_MODES = 24 * 3600
"""Between two changes of a file system's throughput mode."""

# For other parts


def mount_target_views(cloud: Cloud) -> list[MountTargetView]:
    """Return every mount target as it is now, whatever its state."""
    return [replace(target) for region in regions_of(cloud).values() for target in region.mount_targets.values()]


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


def file_system_policy(cloud: Cloud, file_system_arn: str) -> str | None:
    """Return the JSON of a file system's policy, or None."""
    matches = (system.policy for system, _ in all_file_systems(cloud) if system.arn == file_system_arn)
    return next(matches, None)


def tags_of(cloud: Cloud, resource_arn: str) -> Mapping[str, str]:
    """Return the tags of a file system that count for policies; empty if it does not exist."""
    match = next((system for system, _ in all_file_systems(cloud) if system.arn == resource_arn), None)
    return {} if match is None or late_tags.is_late(cloud, match.id, match.created) else match.tags


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
    _check_settings(params)
    file_system = FileSystem(
        id=new_id("fs"),
        region=call.region,
        token=token,
        created=call.cloud.clock.time(),
        encrypted=bool(params.get("Encrypted")),
        throughput=params.get("ThroughputMode", "bursting"),
        tags=read_tags(params.get("Tags") or []),
    )
    region.file_systems[file_system.id] = file_system
    call.cloud.clock.later(call.cloud.latency.of("file_system_available"), lambda: _become_available(file_system))
    return show_file_system(file_system, 0)


def _become_available(file_system: FileSystem) -> None:
    if file_system.state in ("creating", "updating"):
        file_system.state = "available"


def _check_settings(params: Mapping[str, Any]) -> None:
    for key, supported in (
        ("AvailabilityZoneName", ()),
        ("KmsKeyId", ()),
        ("PerformanceMode", ("generalPurpose",)),
        ("ProvisionedThroughputInMibps", ()),
        ("ThroughputMode", ("bursting", "elastic")),
    ):
        if params.get(key) and params[key] not in supported:
            raise bad_request(f"The local cloud has no file systems with {key} {params[key]}.")


@answers("efs", "UpdateFileSystem")
def update_file_system(call: Call) -> Result:
    file_system = find_available(call, call.params["FileSystemId"])
    _check_settings(call.params)
    _change_throughput(call, file_system)
    file_system.state = "updating"
    call.cloud.clock.later(call.cloud.latency.of("file_system_updated"), lambda: _become_available(file_system))
    return show_file_system(file_system, len(region_of(call).targets_of(file_system.id)))


def _change_throughput(call: Call, file_system: FileSystem) -> None:
    mode = call.params.get("ThroughputMode", file_system.throughput)
    if mode == file_system.throughput:
        return
    now, changed = call.cloud.clock.time(), file_system.throughput_changed
    if changed is not None and now - changed < SECONDS_BETWEEN_MODES:
        raise aws_error("efs:UpdateFileSystem", "TooManyRequests", id=file_system.id)
    file_system.throughput, file_system.throughput_changed = mode, now


@answers("efs", "DescribeFileSystems")
def describe_file_systems(call: Call) -> Result:
    params = call.params
    region = region_of(call)
    if params.get("FileSystemId") and params.get("CreationToken"):
        raise bad_request("Give FileSystemId or CreationToken, not both.")
    matches = list(region.file_systems.values())
    if params.get("FileSystemId"):
        matches = [find_file_system(call, params["FileSystemId"])]
    elif params.get("CreationToken"):
        matches = [match for match in matches if match.token == params["CreationToken"]]
    return show_page(
        call, "FileSystems", matches, lambda system: show_file_system(system, len(region.targets_of(system.id)))
    )


@answers("efs", "DeleteFileSystem")
def delete_file_system(call: Call) -> Result:
    file_system = find_file_system(call, call.params["FileSystemId"])
    region = region_of(call)
    if region.targets_of(file_system.id):
        raise aws_error("efs:DeleteFileSystem", "FileSystemInUse", id=file_system.id)
    if file_system.state != "deleting":
        file_system.state = "deleting"

        def vanish() -> None:
            del region.file_systems[file_system.id]

        call.cloud.clock.later(call.cloud.latency.of("file_system_deleted"), vanish)
    return None


# Tags and policies


def read_tags(values: Iterable[Mapping[str, str]], old: Mapping[str, str] | None = None) -> dict[str, str]:
    """Merge the tags of the request into the existing ones."""
    new: dict[str, str] = {}
    for tag in values:
        key, value = tag["Key"], tag.get("Value", "")
        if key in new:
            raise bad_request(f"The tag key '{key}' is given twice.")
        if key.lower().startswith("aws:"):
            raise bad_request("Tag keys that start with 'aws:' are reserved for system use.")
        if not 1 <= len(key) <= 128 or len(value) > 256:
            raise bad_request("A tag key has 1 to 128 characters, a tag value at most 256.")
        new[key] = value
    tags = {**(old or {}), **new}
    if len(tags) > MAX_TAGS:
        raise bad_request(f"A resource can have at most {MAX_TAGS} tags.")
    return tags


@answers("efs", "TagResource")
def tag_resource(call: Call) -> Result:
    tags = find_file_system(call, call.params["ResourceId"]).tags
    tags.update(read_tags(call.params["Tags"], tags))
    return None


@answers("efs", "PutFileSystemPolicy")
def put_file_system_policy(call: Call) -> Result:
    file_system = find_available(call, call.params["FileSystemId"])
    text = call.params["Policy"]
    check_document(text, "resource", "InvalidPolicyException")
    file_system.policy = text
    return {"FileSystemId": file_system.id, "Policy": text}


@answers("efs", "DescribeFileSystemPolicy")
def describe_file_system_policy(call: Call) -> Result:
    file_system = find_file_system(call, call.params["FileSystemId"])
    if file_system.policy is None:
        raise aws_error("efs:DescribeFileSystemPolicy", "PolicyNotFound", id=file_system.id)
    return {"FileSystemId": file_system.id, "Policy": file_system.policy}


@answers("efs", "DeleteFileSystemPolicy")
def delete_file_system_policy(call: Call) -> Result:
    find_available(call, call.params["FileSystemId"]).policy = None
    return None
