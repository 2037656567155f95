"""File systems: what is asked for is there after a while, and what is wrong is refused in AWS's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localcloud.api import efs
from localcloud.api.auth import service_caller
from localcloud.clock import ManualClock
from localcloud.cloud import Cloud
from localcloud.errors import AwsError
from localcloud.latency import Latency

REGION = "us-east-1"
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def latency() -> Latency:
    return Latency("test", {"file_system_available": 5, "file_system_deleted": 7})


@pytest.fixture
def ask(cloud: Cloud) -> Ask:
    def ask(operation: str, region: str = REGION, **params: Any) -> dict[str, Any]:
        return cloud.ask("efs", operation, region, params, service_caller("test"))

    return ask


@pytest.fixture
def fs(ask: Ask, clock: ManualClock) -> str:
    """The id of a file system that is available."""
    made = ask("CreateFileSystem", CreationToken="one", Tags=[{"Key": "Name", "Value": "first"}])
    clock.advance(5)
    return str(made["FileSystemId"])


def state(ask: Ask, file_system: str) -> str:
    return str(ask("DescribeFileSystems", FileSystemId=file_system)["FileSystems"][0]["LifeCycleState"])


def test_a_file_system_is_created_and_deleted_in_its_time(ask: Ask, clock: ManualClock, cloud: Cloud) -> None:
    made = ask("CreateFileSystem", CreationToken="one", Tags=[{"Key": "Name", "Value": "first"}])
    file_system = made["FileSystemId"]
    assert (made["LifeCycleState"], made["Name"], made["NumberOfMountTargets"]) == ("creating", "first", 0)
    clock.advance(4)
    assert state(ask, file_system) == "creating"
    clock.advance(1)
    assert state(ask, file_system) == "available"
    assert efs.file_systems(cloud) == [
        {"id": file_system, "name": "first", "region": REGION, "state": "available", "mount_targets": []}
    ]
    ask("DeleteFileSystem", FileSystemId=file_system)
    assert state(ask, made["FileSystemArn"]) == "deleting"
    clock.advance(7)
    assert not efs.file_system_exists(cloud, file_system)
    with pytest.raises(AwsError, match="FileSystemNotFound: File system 'fs-[0-9a-f]{17}' does not exist."):
        state(ask, file_system)


def test_the_same_token_again_names_the_file_system_that_is_there(ask: Ask, fs: str) -> None:
    with pytest.raises(AwsError, match="FileSystemAlreadyExists") as caught:
        ask("CreateFileSystem", CreationToken="one")
    assert caught.value.FileSystemId == fs  # type: ignore[attr-defined]
    assert caught.value.status == 409


def test_a_region_knows_nothing_of_another(ask: Ask, fs: str) -> None:
    assert ask("DescribeFileSystems", region="eu-west-1")["FileSystems"] == []
    assert ask("CreateFileSystem", region="eu-west-1", CreationToken="one")["FileSystemId"] != fs


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"PerformanceMode": "fast"}, "BadRequest: .*PerformanceMode"),
    ({"ThroughputMode": "fast"}, "BadRequest: .*ThroughputMode"),
    ({"ThroughputMode": "provisioned"}, "BadRequest: .*is required"),
    ({"ProvisionedThroughputInMibps": 5.0}, "BadRequest: .*provisioned only"),
    ({"ThroughputMode": "provisioned", "ProvisionedThroughputInMibps": 0.5}, "BadRequest: .*1.0 or more"),
    ({"ThroughputMode": "elastic", "PerformanceMode": "maxIO"}, "BadRequest: .*Max I/O"),
    ({"AvailabilityZoneName": "us-east-1a", "PerformanceMode": "maxIO"}, "BadRequest: .*One Zone"),
    ({"AvailabilityZoneName": "us-east-1z"}, "UnsupportedAvailabilityZone"),
    ({"KmsKeyId": "alias/mine"}, "BadRequest: .*Encrypted"),
    ({"Tags": [{"Key": "aws:x", "Value": ""}]}, "BadRequest: .*reserved"),
    ({"Tags": [{"Key": "a", "Value": ""}] * 2}, "BadRequest: .*twice"),
    ({"Tags": [{"Key": str(n), "Value": ""} for n in range(51)]}, "BadRequest: .*at most 50"),
]


@pytest.mark.parametrize(("params", "error"), REFUSED)
def test_what_does_not_go_together_is_refused(ask: Ask, params: dict[str, Any], error: str) -> None:
    with pytest.raises(AwsError, match=error):
        ask("CreateFileSystem", CreationToken="one", **params)
    assert ask("DescribeFileSystems")["FileSystems"] == []


SHOWN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"ThroughputMode": "bursting", "PerformanceMode": "generalPurpose", "Encrypted": False}),
    ({"ThroughputMode": "elastic"}, {"ThroughputMode": "elastic"}),
    (
        {"ThroughputMode": "provisioned", "ProvisionedThroughputInMibps": 5.0},
        {"ThroughputMode": "provisioned", "ProvisionedThroughputInMibps": 5.0},
    ),
    (
        {"AvailabilityZoneName": "us-east-1a"},
        {"AvailabilityZoneName": "us-east-1a", "AvailabilityZoneId": "use1-az6"},
    ),
    (
        {"Encrypted": True, "KmsKeyId": "12345678-1234-1234-1234-123456789012"},
        {"KmsKeyId": "arn:aws:kms:us-east-1:123456789012:key/12345678-1234-1234-1234-123456789012"},
    ),
]


@pytest.mark.parametrize(("params", "shown"), SHOWN)
def test_what_was_asked_for_is_shown(ask: Ask, params: dict[str, Any], shown: dict[str, Any]) -> None:
    made = ask("CreateFileSystem", CreationToken="one", **params)
    assert {key: made[key] for key in shown} == shown
    assert ask("DescribeFileSystems", CreationToken="one")["FileSystems"] == [made]


def test_pages_hold_what_was_asked_for_and_lead_on(ask: Ask) -> None:
    for token in ("a", "b", "c"):
        ask("CreateFileSystem", CreationToken=token)
    seen, marker = [], None
    while True:
        page = ask("DescribeFileSystems", MaxItems=2, **({"Marker": marker} if marker else {}))
        seen.append([one["CreationToken"] for one in page["FileSystems"]])
        if (marker := page.get("NextMarker")) is None:
            break
    assert seen == [["a", "b"], ["c"]]
    with pytest.raises(AwsError, match="BadRequest"):
        ask("DescribeFileSystems", Marker="bogus")


def test_provisioned_throughput_is_kept_for_a_day(ask: Ask, fs: str, clock: ManualClock) -> None:
    ask("UpdateFileSystem", FileSystemId=fs, ThroughputMode="provisioned", ProvisionedThroughputInMibps=10.0)
    for change in ({"ThroughputMode": "elastic"}, {"ProvisionedThroughputInMibps": 5.0}):
        with pytest.raises(AwsError, match="TooManyRequests"):
            ask("UpdateFileSystem", FileSystemId=fs, **change)
    clock.advance(86400)
    assert ask("UpdateFileSystem", FileSystemId=fs, ProvisionedThroughputInMibps=5.0)["ThroughputMode"] == "provisioned"
    updated = ask("UpdateFileSystem", FileSystemId=fs, ThroughputMode="elastic")
    assert updated["ThroughputMode"] == "elastic" and "ProvisionedThroughputInMibps" not in updated


def test_what_is_not_available_cannot_be_changed(ask: Ask) -> None:
    made = ask("CreateFileSystem", CreationToken="one")
    with pytest.raises(AwsError, match="IncorrectFileSystemLifeCycleState") as caught:
        ask("UpdateFileSystem", FileSystemId=made["FileSystemId"], ThroughputMode="elastic")
    assert caught.value.status == 409


def test_both_generations_of_tags_show_the_same(ask: Ask, fs: str, cloud: Cloud) -> None:
    ask("TagResource", ResourceId=fs, Tags=[{"Key": "new", "Value": "1"}])
    ask("CreateTags", FileSystemId=fs, Tags=[{"Key": "old", "Value": "2"}])
    everything = [{"Key": "Name", "Value": "first"}, {"Key": "new", "Value": "1"}, {"Key": "old", "Value": "2"}]
    assert ask("ListTagsForResource", ResourceId=fs)["Tags"] == everything
    assert ask("DescribeTags", FileSystemId=fs)["Tags"] == everything
    ask("DeleteTags", FileSystemId=fs, TagKeys=["new", "never there"])
    ask(
        "UntagResource", ResourceId=f"arn:aws:elasticfilesystem:{REGION}:123456789012:file-system/{fs}", TagKeys=["old"]
    )
    assert ask("DescribeFileSystems")["FileSystems"][0]["Tags"] == everything[:1]
    assert efs.tags_of(cloud, f"arn:aws:elasticfilesystem:{REGION}:123456789012:file-system/{fs}") == {"Name": "first"}


POLICY = (
    '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, '
    '"Action": "elasticfilesystem:ClientMount", "Resource": "*"}]}'
)


def test_a_policy_is_kept_until_it_is_deleted(ask: Ask, fs: str, cloud: Cloud) -> None:
    arn = ask("DescribeFileSystems")["FileSystems"][0]["FileSystemArn"]
    with pytest.raises(AwsError, match="PolicyNotFound"):
        ask("DescribeFileSystemPolicy", FileSystemId=fs)
    ask("PutFileSystemPolicy", FileSystemId=fs, Policy=POLICY)
    assert ask("DescribeFileSystemPolicy", FileSystemId=fs) == {"FileSystemId": fs, "Policy": POLICY}
    assert efs.file_system_policy(cloud, arn) == POLICY
    ask("DeleteFileSystemPolicy", FileSystemId=fs)
    assert efs.file_system_policy(cloud, arn) is None


@pytest.mark.parametrize(
    "policy", ["{", "{}", POLICY.replace("Principal", "principal"), POLICY.replace('"*"}', '"x"}')]
)
def test_a_policy_that_cannot_be_read_is_refused(ask: Ask, fs: str, policy: str) -> None:
    with pytest.raises(AwsError, match="InvalidPolicyException"):
        ask("PutFileSystemPolicy", FileSystemId=fs, Policy=policy)


def test_lifecycle_and_backup(ask: Ask, fs: str) -> None:
    policies = [{"TransitionToIA": "AFTER_30_DAYS"}, {"TransitionToPrimaryStorageClass": "AFTER_1_ACCESS"}]
    assert (
        ask("PutLifecycleConfiguration", FileSystemId=fs, LifecyclePolicies=policies)["LifecyclePolicies"] == policies
    )
    assert ask("DescribeLifecycleConfiguration", FileSystemId=fs)["LifecyclePolicies"] == policies
    with pytest.raises(AwsError, match="BadRequest"):
        ask("PutLifecycleConfiguration", FileSystemId=fs, LifecyclePolicies=[policies[0] | policies[1]])
    with pytest.raises(AwsError, match="PolicyNotFound"):
        ask("DescribeBackupPolicy", FileSystemId=fs)
    ask("PutBackupPolicy", FileSystemId=fs, BackupPolicy={"Status": "ENABLED"})
    assert ask("DescribeBackupPolicy", FileSystemId=fs)["BackupPolicy"]["Status"] == "ENABLED"


def test_access_points_live_with_their_file_system(ask: Ask, fs: str, clock: ManualClock) -> None:
    wanted = {"ClientToken": "p", "FileSystemId": fs, "PosixUser": {"Uid": 1000, "Gid": 1000}}
    point = ask("CreateAccessPoint", **wanted, Tags=[{"Key": "Name", "Value": "home"}])
    assert (point["RootDirectory"], point["LifeCycleState"], point["Name"]) == ({"Path": "/"}, "creating", "home")
    clock.advance(0)
    assert ask("DescribeAccessPoints", FileSystemId=fs)["AccessPoints"] == [point | {"LifeCycleState": "available"}]
    with pytest.raises(AwsError, match="AccessPointAlreadyExists") as caught:
        ask("CreateAccessPoint", **wanted)
    assert caught.value.AccessPointId == point["AccessPointId"]  # type: ignore[attr-defined]
    ask("TagResource", ResourceId=point["AccessPointArn"], Tags=[{"Key": "a", "Value": "b"}])
    assert len(ask("ListTagsForResource", ResourceId=point["AccessPointId"])["Tags"]) == 2
    ask("DeleteFileSystem", FileSystemId=fs)
    clock.advance(7)
    with pytest.raises(AwsError, match="AccessPointNotFound"):
        ask("DeleteAccessPoint", AccessPointId=point["AccessPointId"])
