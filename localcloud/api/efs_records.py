"""What the local cloud keeps of Elastic File System, and how it finds and shows it.

Operations are in efs.py (file systems), efs_targets.py (mount targets) and efs_extras.py (tags, policies, access
points).
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from localcloud.api.registry import Call
from localcloud.cloud import Cloud, arn
from localcloud.errors import AwsError
from localcloud.settings import ACCOUNT

PAGE = 100
_EMPTY = 6144
"""Bytes that a file system without a file is said to hold."""


@dataclass
class FileSystem:
    id: str
    region: str
    number: int
    token: str
    created: float
    performance: str = "generalPurpose"
    throughput: str = "bursting"
    provisioned: float | None = None
    encrypted: bool = False
    kms_key: str | None = None
    zone: str | None = None
    """of a file system in one zone only"""
    zone_id: str | None = None
    state: str = "creating"
    """creating, available, deleting"""
    tags: dict[str, str] = field(default_factory=dict)
    policy: str | None = None
    lifecycle: list[Mapping[str, str]] = field(default_factory=list)
    backup: str | None = None
    overwrite_protection: str = "ENABLED"
    throughput_held_until: float = 0.0
    """until then provisioned throughput can be neither lowered nor left"""

    @property
    def arn(self) -> str:
        return arn("elasticfilesystem", self.region, f"file-system/{self.id}")


@dataclass
class MountTarget:
    id: str
    file_system_id: str
    region: str
    number: int
    vpc_id: str
    subnet_id: str
    zone: str
    zone_id: str
    ip: str
    interface_id: str
    security_groups: tuple[str, ...]
    state: str = "creating"
    """creating, available, deleting"""


@dataclass
class AccessPoint:
    id: str
    file_system_id: str
    region: str
    number: int
    token: str
    posix_user: Mapping[str, Any] | None
    root: Mapping[str, Any]
    tags: dict[str, str]
    state: str = "creating"

    @property
    def arn(self) -> str:
        return arn("elasticfilesystem", self.region, f"access-point/{self.id}")


@dataclass
class Region:
    file_systems: dict[str, FileSystem] = field(default_factory=dict)
    mount_targets: dict[str, MountTarget] = field(default_factory=dict)
    access_points: dict[str, AccessPoint] = field(default_factory=dict)

    def targets_of(self, file_system_id: str) -> list[MountTarget]:
        return [target for target in self.mount_targets.values() if target.file_system_id == file_system_id]


class Records:
    def __init__(self) -> None:
        self.regions: dict[str, Region] = {}
        self._numbers = itertools.count(1)

    def region(self, name: str) -> Region:
        return self.regions.setdefault(name, Region())

    def next_number(self) -> int:
        return next(self._numbers)


def records_of(cloud: Cloud) -> Records:
    records: Records = cloud.records("efs", Records)
    return records


def region_of(call: Call) -> Region:
    return records_of(call.cloud).region(call.region)


def all_file_systems(cloud: Cloud) -> Iterator[tuple[FileSystem, list[MountTarget]]]:
    for region in records_of(cloud).regions.values():
        for file_system in region.file_systems.values():
            yield file_system, region.targets_of(file_system.id)


def new_id(prefix: str) -> str:
    return f"{prefix}-0{secrets.token_hex(8)}"


# Finding


def bare_id(given: str) -> str:
    """The id alone, where an ARN may have been given."""
    return given.rpartition("/")[2]


def find_file_system(call: Call, given: str) -> FileSystem:
    found = region_of(call).file_systems.get(bare_id(given))
    if found is None:
        raise AwsError("FileSystemNotFound", f"File system '{bare_id(given)}' does not exist.", 404)
    return found


def find_available(call: Call, given: str) -> FileSystem:
    """A file system that can be changed."""
    found = find_file_system(call, given)
    if found.state != "available":
        raise AwsError(
            "IncorrectFileSystemLifeCycleState",
            f"File system '{found.id}' is in the life cycle state '{found.state}'; it must be 'available'.",
            409,
        )
    return found


def find_mount_target(call: Call, given: str) -> MountTarget:
    found = region_of(call).mount_targets.get(given)
    if found is None:
        raise AwsError("MountTargetNotFound", f"Mount target '{given}' does not exist.", 404)
    return found


def find_access_point(call: Call, given: str) -> AccessPoint:
    found = region_of(call).access_points.get(bare_id(given))
    if found is None:
        raise AwsError("AccessPointNotFound", f"Access point '{bare_id(given)}' does not exist.", 404)
    return found


def bad_request(message: str) -> AwsError:
    return AwsError("BadRequest", message, 400)


class AlreadyExists(AwsError):
    """Made before with the same token. What was made is named by a member of the error, as boto3 users expect it."""

    def __init__(self, code: str, message: str, **named: str) -> None:
        super().__init__(code, message, 409)
        self.__dict__.update(named)


# Pages


class Numbered(Protocol):
    @property
    def number(self) -> int: ...


Item = TypeVar("Item", bound=Numbered)


def page(items: Iterable[Item], limit: int | None, marker: str | None) -> tuple[list[Item], str | None]:
    """The items after the marker, as many as were asked for, and the marker for the rest; oldest first."""
    if marker and not marker.isdigit():
        raise bad_request("The marker is not one that an earlier answer gave.")
    size = PAGE if limit is None else int(limit)
    if size < 1:
        raise bad_request("Ask for 1 item or more.")
    rest = [item for item in sorted(items, key=lambda item: item.number) if item.number > int(marker or 0)]
    shown = rest[: min(size, PAGE)]
    return shown, str(shown[-1].number) if len(shown) < len(rest) else None


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


# Showing


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


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
            "PerformanceMode": file_system.performance,
            "Encrypted": file_system.encrypted,
            "KmsKeyId": file_system.kms_key,
            "ThroughputMode": file_system.throughput,
            "ProvisionedThroughputInMibps": file_system.provisioned,
            "AvailabilityZoneName": file_system.zone,
            "AvailabilityZoneId": file_system.zone_id,
            "Tags": tag_list(file_system.tags),
            "FileSystemProtection": {"ReplicationOverwriteProtection": file_system.overwrite_protection},
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


def show_access_point(point: AccessPoint) -> dict[str, Any]:
    return without_none(
        {
            "ClientToken": point.token,
            "Name": point.tags.get("Name"),
            "Tags": tag_list(point.tags),
            "AccessPointId": point.id,
            "AccessPointArn": point.arn,
            "FileSystemId": point.file_system_id,
            "PosixUser": point.posix_user,
            "RootDirectory": point.root,
            "OwnerId": ACCOUNT,
            "LifeCycleState": point.state,
        }
    )
