"""The search for a cluster in the other regions of an account: what it finds, and that it ends in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import UNREACHABLE, Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import CLUSTER_TAG
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources import region_scan
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.region_scan import (
    ClusterInRegion,
    ParallelCalls,
    RegionScan,
    scan_regions,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import Resource

from tests.unit.conftest import Account

HOME = "us-east-1"


def test_a_cluster_without_machines_is_seen_in_every_region(aws: Account) -> None:
    tags = [{"Key": CLUSTER_TAG, "Value": "red"}]
    specification = [{"ResourceType": "vpc", "Tags": tags}]
    aws.client("ec2", "eu-west-1").create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=specification)
    aws.client("ec2", HOME).create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=specification)
    aws.client("efs", "eu-west-2").create_file_system(CreationToken="red", Tags=tags)
    place = {"LocationConstraint": "eu-west-3"}
    aws.client("s3", "eu-west-3").create_bucket(
        Bucket="red-123456789012-eu-west-3", CreateBucketConfiguration=place
    )
    aws.client("ec2", "eu-north-1").create_vpc(
        CidrBlock="10.0.0.0/16",
        TagSpecifications=[{"ResourceType": "vpc", "Tags": [{"Key": CLUSTER_TAG, "Value": "blue"}]}],
    )
    everything = scan_regions(Aws(HOME), "red", keep=False, seconds=60)
    assert everything.clusters == [
        ClusterInRegion("eu-west-1", ["1 VPC"]),
        ClusterInRegion("eu-west-2", ["1 file system"]),
        ClusterInRegion("eu-west-3", ["1 bucket"]),
    ]
    assert HOME not in everything.searched and "eu-north-1" in everything.searched
    assert everything.unsearched_line() == ""
    # A file system that destroy keeps is no sign of a cluster.
    without = scan_regions(Aws(HOME), "red", keep=True, seconds=60)
    assert [cluster.region for cluster in without.clusters] == ["eu-west-1", "eu-west-3"]


@pytest.fixture
def answers(aws: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """One region refuses access, one cannot be reached, and one does not answer until this is set."""
    late = threading.Event()

    def answer(aws: Aws, cluster: str, keep: bool) -> list[Resource]:
        if aws.region == "eu-west-1":
            raise AwsError("No.", "UnauthorizedOperation")
        if aws.region == "eu-west-2":
            raise AwsError("AWS cannot be reached.", UNREACHABLE)
        if aws.region == "eu-west-3":
            late.wait()
        return [Resource("vpc", "vpc-1")] if aws.region == "eu-north-1" else []

    regions = [HOME, "eu-west-1", "eu-west-2", "eu-west-3", "eu-north-1"]
    monkeypatch.setattr(region_scan, "_enabled_regions", lambda _aws: regions)
    monkeypatch.setattr(region_scan, "own_buckets", lambda _aws: [])
    monkeypatch.setattr(region_scan, "_resources_in", answer)
    yield late
    late.set()


def test_regions_without_an_answer_are_in_one_line(answers: threading.Event) -> None:
    started = time.monotonic()
    scan = scan_regions(Aws(HOME), "red", keep=True, seconds=3)
    assert time.monotonic() - started < 100 * 3
    assert scan.clusters == [ClusterInRegion("eu-north-1", ["1 VPC"])]
    assert scan.unsearched_line() == (
        "Not searched: eu-west-1 (access refused); eu-west-2, eu-west-3 (no answer within 3 seconds)."
    )


def test_lists_that_do_not_come_are_not_waited_for(answers: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_scan, "LIST_SECONDS", 0.2)
    monkeypatch.setattr(region_scan, "_enabled_regions", lambda _aws: answers.wait())
    monkeypatch.setattr(region_scan, "own_buckets", lambda _aws: answers.wait())
    scan = scan_regions(Aws(HOME), "red", keep=True, seconds=3)
    assert [cluster.region for cluster in scan.clusters] == ["eu-north-1"]
    assert scan.unsearched_line().startswith(
        "All known regions were tried, as the account's cannot be listed: AWS does not answer. Not searched: eu-west-1 "
    )
    # Other partitions need other credentials.
    assert not [region for region in scan.searched if region.startswith(("cn-", "us-gov-"))]


def test_calls_are_made_in_parallel_and_abandoned_at_the_end() -> None:
    both = threading.Barrier(2, timeout=30)
    never = threading.Event()
    calls = {"a": both.wait, "b": both.wait, "c": lambda: int(never.wait())}
    answers = ParallelCalls(calls).answers(time.monotonic() + 2)
    assert sorted(answers.results) == ["a", "b"] and answers.errors == {}
    never.set()


def test_a_complete_scan_has_no_line() -> None:
    assert RegionScan(searched=["eu-west-1"]).unsearched_line() == ""
