"""What the local cloud keeps of Elastic File System, and how it finds and shows it.

Operations are in `file_systems` and `mount_targets`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from localcloud.api.ec2.filters import tag_list
from localcloud.api.paging import page
from localcloud.core.cloud import Call, Cloud, arn
from localcloud.core.errors import AwsError
from localcloud.core.settings import ACCOUNT
from localcloud.core.views import MountTargetView
from localcloud.core.words import aws_error

PAGE = 100
Item = TypeVar("Item")
_EMPTY = 6144
"""Bytes that a file system without a file is said to hold."""


@dataclass
class FileSystem:
    id: str
    region: str
    token: str
    created: float
    throughput: str = "bursting"
    throughput_changed: float | None = None
    """When its mode was changed last; None: never since its creation."""
    encrypted: bool = False
    state: str = "creating"
    """creating, available, deleting"""
    tags: dict[str, str] = field(default_factory=dict)
    policy: str | None = None

    @property
    def arn(self) -> str:
        return arn("elasticfilesystem", self.region, f"file-system/{self.id}")

    @property
    def kms_key(self) -> str:
        """AWS's own key for EFS, which is one in each region."""
        return arn("kms", self.region, f"key/{uuid.uuid5(uuid.NAMESPACE_URL, f'{self.region}/efs')}")


@dataclass
class MountTarget(MountTargetView):
    zone_id: str = ""
    interface_id: str = ""


@dataclass
class Region:
    file_systems: dict[str, FileSystem] = field(default_factory=dict)
    mount_targets: dict[str, MountTarget] = field(default_factory=dict)

    def targets_of(self, file_system_id: str) -> list[MountTarget]:
        return [target for target in self.mount_targets.values() if target.file_system_id == file_system_id]


def regions_of(cloud: Cloud) -> dict[str, Region]:
    """Return the records of the regions that have been used, by name."""
    regions: dict[str, Region] = cloud.records("efs", dict)
    return regions


def region_of(call: Call) -> Region:
    return regions_of(call.cloud).setdefault(call.region, Region())


def all_file_systems(cloud: Cloud) -> Iterator[tuple[FileSystem, list[MountTarget]]]:
    for region in regions_of(cloud).values():
        for file_system in region.file_systems.values():
            yield file_system, region.targets_of(file_system.id)


# Finding


def bare_id(text: str) -> str:
    """Return the id from an id or an ARN."""
    return text.rpartition("/")[2]


def find_file_system(call: Call, text: str) -> FileSystem:
    match = region_of(call).file_systems.get(bare_id(text))
    if match is None:
        raise aws_error("efs:*", "FileSystemNotFound", id=bare_id(text))
    return match


def find_available(call: Call, text: str) -> FileSystem:
    """Return a file system that can be changed."""
    result = find_file_system(call, text)
    if result.state != "available":
        raise aws_error("efs:*", "IncorrectFileSystemLifeCycleState", id=result.id, state=result.state)
    return result


def find_mount_target(call: Call, text: str) -> MountTarget:
    match = region_of(call).mount_targets.get(text)
    if match is None:
        raise aws_error("efs:*", "MountTargetNotFound", id=text)
    return match


def bad_request(message: str) -> AwsError:
    return AwsError("BadRequest", message, 400)


class AlreadyExists(AwsError):
    """Made before with the same token. What was made is named by a member of the error, as boto3 users expect it."""

    def __init__(self, code: str, message: str, **named: str) -> None:
        super().__init__(code, message, 409)
        self.__dict__.update(named)


def show_page(call: Call, key: str, items: Sequence[Item], show: Callable[[Item], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the page of a list that a call names."""
    marker, size = call.params.get("Marker"), int(call.params.get("MaxItems") or PAGE)
    shown, following = page(items, marker, min(size, PAGE), bad_request("The marker is not valid."))
    return without_none({"Marker": marker, key: [show(item) for item in shown], "NextMarker": following})


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


# Showing


def show_file_system(file_system: FileSystem, mount_targets: int) -> dict[str, Any]:
    return without_none(
        {
            "OwnerId": ACCOUNT,
            "CreationToken": file_system.token,
            "FileSystemId": file_system.id,
            "FileSystemArn": file_system.arn,
            "CreationTime": datetime.fromtimestamp(file_system.created, UTC),
            "LifeCycleState": file_system.state,
            "Name": file_system.tags.get("Name"),
            "NumberOfMountTargets": mount_targets,
            "SizeInBytes": {"Value": _EMPTY, "ValueInIA": 0, "ValueInStandard": _EMPTY, "ValueInArchive": 0},
            "PerformanceMode": "generalPurpose",
            "Encrypted": file_system.encrypted,
            "KmsKeyId": file_system.kms_key if file_system.encrypted else None,
            "ThroughputMode": file_system.throughput,
            "Tags": tag_list(file_system.tags),
            "FileSystemProtection": {"ReplicationOverwriteProtection": "ENABLED"},
        }
    )


def show_mount_target(target: MountTarget) -> dict[str, Any]:
    return {
        "OwnerId": ACCOUNT,
        "MountTargetId": target.id,
        "FileSystemId": target.file_system_id,
        "SubnetId": target.subnet_id,
        "LifeCycleState": target.state,
        "IpAddress": target.ip,
        "NetworkInterfaceId": target.interface_id,
        "AvailabilityZoneId": target.zone_id,
        "AvailabilityZoneName": target.zone,
        "VpcId": target.vpc_id,
    }
