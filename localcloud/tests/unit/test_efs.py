"""File systems: what is asked for is there after a while, and what is wrong is refused in AWS's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localcloud.api.efs import file_systems as efs
from localcloud.core.caller import Caller
from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError
from localcloud.core.latency import Latency
from localcloud.testing.clock import ManualClock

REGION = "us-east-1"
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def latency() -> Latency:
    return Latency("test", {"file_system_available": 5, "file_system_updated": 10, "file_system_deleted": 7})


@pytest.fixture
def ask(cloud: Cloud) -> Ask:
    def ask(operation: str, region: str = REGION, **params: Any) -> dict[str, Any]:
        return cloud.ask("efs", operation, region, params, Caller.service("test"))

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
    assert efs.file_systems(cloud) == []
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
    ({"ThroughputMode": "provisioned"}, "BadRequest: .*ThroughputMode provisioned"),
    ({"ProvisionedThroughputInMibps": 5.0}, "BadRequest: .*ProvisionedThroughputInMibps 5.0"),
    ({"AvailabilityZoneName": "us-east-1a"}, "BadRequest: .*AvailabilityZoneName us-east-1a"),
    ({"KmsKeyId": "alias/mine"}, "BadRequest: .*KmsKeyId"),
    ({"PerformanceMode": "maxIO"}, "BadRequest: .*PerformanceMode maxIO"),
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
    ({"Encrypted": True}, {"Encrypted": True, "PerformanceMode": "generalPurpose"}),
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
        seen.append([system["CreationToken"] for system in page["FileSystems"]])
        if (marker := page.get("NextMarker")) is None:
            break
    assert seen == [["a", "b"], ["c"]]
    with pytest.raises(AwsError, match="BadRequest"):
        ask("DescribeFileSystems", Marker="bogus")


def test_a_file_system_is_updated_for_a_while_and_takes_no_other_change(ask: Ask, fs: str, clock: ManualClock) -> None:
    assert ask("UpdateFileSystem", FileSystemId=fs, ThroughputMode="elastic")["LifeCycleState"] == "updating"
    for operation, params in (
        ("UpdateFileSystem", {"ThroughputMode": "bursting"}),
        ("PutFileSystemPolicy", {"Policy": POLICY}),
    ):
        with pytest.raises(AwsError, match="IncorrectFileSystemLifeCycleState: .*'updating'"):
            ask(operation, FileSystemId=fs, **params)
    clock.advance(10)
    assert ask("DescribeFileSystems", FileSystemId=fs)["FileSystems"][0]["LifeCycleState"] == "available"
    ask("UpdateFileSystem", FileSystemId=fs, ThroughputMode="elastic")
    ask("DeleteFileSystem", FileSystemId=fs)
    clock.advance(10)
    assert ask("DescribeFileSystems")["FileSystems"] == []


def test_the_throughput_mode_can_be_changed_again_after_a_day(ask: Ask, fs: str, clock: ManualClock) -> None:
    ask("UpdateFileSystem", FileSystemId=fs, ThroughputMode="elastic")
    clock.advance(23 * 3600)
    with pytest.raises(AwsError, match="TooManyRequests: .*in the last 24 hours") as caught:
        ask("UpdateFileSystem", FileSystemId=fs, ThroughputMode="bursting")
    assert caught.value.status == 429
    clock.advance(3600)
    assert ask("UpdateFileSystem", FileSystemId=fs, ThroughputMode="bursting")["ThroughputMode"] == "bursting"


def test_what_is_not_available_cannot_be_changed(ask: Ask) -> None:
    made = ask("CreateFileSystem", CreationToken="one")
    with pytest.raises(AwsError, match="IncorrectFileSystemLifeCycleState") as caught:
        ask("UpdateFileSystem", FileSystemId=made["FileSystemId"], ThroughputMode="elastic")
    assert caught.value.status == 409


def test_tags_are_added(ask: Ask, fs: str, cloud: Cloud) -> None:
    arn = f"arn:aws:elasticfilesystem:{REGION}:123456789012:file-system/{fs}"
    ask("TagResource", ResourceId=fs, Tags=[{"Key": "new", "Value": "1"}])
    ask("TagResource", ResourceId=arn, Tags=[{"Key": "Name", "Value": "second"}])
    tags = [{"Key": "Name", "Value": "second"}, {"Key": "new", "Value": "1"}]
    assert ask("DescribeFileSystems")["FileSystems"][0]["Tags"] == tags
    assert efs.tags_of(cloud, arn) == {"Name": "second", "new": "1"}


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
