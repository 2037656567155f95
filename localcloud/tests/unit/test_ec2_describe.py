"""What is shown of instances, and how it can be asked for."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from localcloud.api.ec2.filters import matcher
from localcloud.api.ec2.lifecycle import machine_exited
from localcloud.core.cloud import Cloud
from localcloud.testing.clock import ManualClock
from localcloud_kits.ec2_kit import REGION, Ec2, Recorder


@pytest.mark.parametrize(
    ("patterns", "text", "expected"),
    [
        (["a"], "a", True),
        (["a"], "b", False),
        (["b", "a"], "a", True),
        (["a*"], "abc", True),
        (["*b?"], "abc", True),
        (["a?"], "a", False),
        (["a.c"], "abc", False),
        (["[a]*"], "abc", False),
        ([], "a", False),
        (["a*"], "a\nb", True),
    ],
)
def test_patterns(patterns: list[str], text: str, expected: bool) -> None:
    assert matcher(patterns)(text) is expected


def test_new_disks_are_encrypted_by_default_under_a_fault(ec2: Ec2, cloud: Cloud) -> None:
    usual = ec2("GetEbsEncryptionByDefault"), ec2("GetEbsDefaultKmsKeyId")
    fault = cloud.faults.add("ebs-key", {}, "arn:aws:kms:us-east-1:123456789012:key/1")
    assert ec2("GetEbsEncryptionByDefault")["EbsEncryptionByDefault"] is True
    assert ec2("GetEbsDefaultKmsKeyId")["KmsKeyId"] == fault.value
    cloud.faults.remove(fault)
    assert (ec2("GetEbsEncryptionByDefault"), ec2("GetEbsDefaultKmsKeyId")) == usual
    assert usual[0]["EbsEncryptionByDefault"] is False and usual[1]["KmsKeyId"] == "alias/aws/ebs"


def name(value: str) -> list[dict[str, Any]]:
    return [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": value}, {"Key": value, "Value": ""}]}]


FILTERS: list[tuple[dict[str, list[str]], set[str]]] = [
    ({"tag:Name": ["one"]}, {"one"}),
    ({"tag:Name": ["o*", "two"]}, {"one", "two"}),
    ({"tag-key": ["two"]}, {"two"}),
    ({"tag-value": ["one"]}, {"one"}),
    ({"instance-state-name": ["running"]}, {"one"}),
    ({"instance-state-name": ["running"], "tag:Name": ["two"]}, set()),
    ({"instance-type": ["t3.small"]}, {"two"}),
    ({"private-ip-address": ["10.0.0.4"]}, {"one"}),
    ({"availability-zone": [f"{REGION}b"]}, {"two"}),
    ({"ip-address": ["198.51.100.*"]}, {"one"}),
    ({"instance.group-name": ["default"]}, {"one", "two"}),
    ({"private-dns-name": ["ip-10-0-0-4.ec2.internal"]}, {"one"}),
    ({"key-name": ["missing"]}, set()),
    ({"tenancy": ["default"]}, {"one", "two"}),
]
"""Filters of DescribeInstances, and the names of the instances that they match"""


def test_filters(ec2: Ec2) -> None:
    vpc, subnet = ec2.subnet()
    _, other = ec2.subnet("10.0.1.0/24", f"{REGION}b", vpc)
    public = [{"DeviceIndex": 0, "SubnetId": subnet, "AssociatePublicIpAddress": True}]
    ec2.running(NetworkInterfaces=public, TagSpecifications=name("one"))
    ec2.run(SubnetId=other, InstanceType="t3.small", TagSpecifications=name("two"))

    def matches(filters: dict[str, list[str]]) -> set[str]:
        asked = [{"Name": key, "Values": values} for key, values in filters.items()]
        reservations = ec2("DescribeInstances", Filters=asked)["Reservations"]
        instances = [instance for reservation in reservations for instance in reservation["Instances"]]
        return {tag["Value"] for instance in instances for tag in instance["Tags"] if tag["Key"] == "Name"}

    for more in ({}, {"vpc-id": [vpc]}, {"subnet-id": [subnet, other]}):
        assert [(filters, matches(filters | more)) for filters, _ in FILTERS] == FILTERS


def test_an_unknown_filter_is_refused(ec2: Ec2) -> None:
    with ec2.refused("InvalidParameterValue", "'colour'"):
        ec2("DescribeInstances", Filters=[{"Name": "colour", "Values": ["red"]}])


def test_pages(ec2: Ec2) -> None:
    made = [ec2.run(boots_nothing=True, MaxCount=7)["Instances"] for _ in range(2)]
    ids = [instance["InstanceId"] for instances in made for instance in instances]
    seen, token = [], None
    while True:
        params: dict[str, Any] = {"MaxResults": 5} | ({"NextToken": token} if token else {})
        answer = ec2("DescribeInstances", **params)
        seen.append(
            [instance["InstanceId"] for reservation in answer["Reservations"] for instance in reservation["Instances"]]
        )
        token = answer.get("NextToken")
        if token is None:
            break
    assert [len(part) for part in seen] == [5, 5, 4]
    assert sum(seen, []) == ids
    for size in (4, 1001):
        with ec2.refused("InvalidParameterValue", str(size)):
            ec2("DescribeInstances", MaxResults=size)
    with ec2.refused("InvalidParameterCombination"):
        ec2("DescribeInstances", MaxResults=5, InstanceIds=ids[:1])
    with ec2.refused("InvalidParameterValue", "token"):
        ec2("DescribeInstances", NextToken="no")


@pytest.mark.parametrize(
    ("ids", "code", "words"),
    [
        (["i-0123456789abcdef0"], "InvalidInstanceID.NotFound", "The instance ID 'i-0123456789abcdef0' does not exist"),
        (["i-0", "i-1"], "InvalidInstanceID.NotFound", "The instance IDs 'i-0, i-1' do not exist"),
        (["web-1"], "InvalidInstanceID.Malformed", "web-1"),
    ],
)
def test_ids_that_are_none(ec2: Ec2, ids: list[str], code: str, words: str) -> None:
    with ec2.refused(code, words):
        ec2("DescribeInstances", InstanceIds=ids)


def test_status(ec2: Ec2, cloud: Cloud) -> None:
    running = ec2.running()["InstanceId"]
    pending = ec2.run()["Instances"][0]["InstanceId"]

    def status(**params: Any) -> dict[str, tuple[str, str]]:
        matches = ec2("DescribeInstanceStatus", **params)["InstanceStatuses"]
        return {
            match["InstanceId"]: (match["InstanceStatus"]["Status"], match["SystemStatus"]["Status"])
            for match in matches
        }

    assert status() == {running: ("ok", "ok")}
    assert status(IncludeAllInstances=True)[pending] == ("initializing", "initializing")
    fault = cloud.faults.add("frozen", {"instance": running})
    assert status() == {running: ("impaired", "ok")}
    cloud.faults.remove(fault)
    ec2("StopInstances", InstanceIds=[running])
    assert status(InstanceIds=[running]) == {}
    assert status(InstanceIds=[running], IncludeAllInstances=True)[running] == ("not-applicable", "not-applicable")


def test_console(ec2: Ec2, machines: Recorder, cloud: Cloud, clock: ManualClock) -> None:
    key = ec2.running()["InstanceId"]
    assert "Output" not in ec2("GetConsoleOutput", InstanceId=key)
    machines.written = "x" * 70000 + "ready\n"
    output = ec2("GetConsoleOutput", InstanceId=key, Latest=True)
    text = base64.b64decode(output["Output"]).decode()
    assert len(text) == 65536 and text.endswith("ready\n")
    assert output["Timestamp"]
    # Nothing is posted while it runs.
    assert "Output" not in ec2("GetConsoleOutput", InstanceId=key)
    ec2("StopInstances", InstanceIds=[key])
    machine_exited(cloud, key, "stopped")
    clock.advance(15)
    assert "Output" in ec2("GetConsoleOutput", InstanceId=key)


def test_tags(ec2: Ec2) -> None:
    key = ec2.running()["InstanceId"]
    ec2("CreateTags", Resources=[key], Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    ec2("DeleteTags", Resources=[key], Tags=[{"Key": "a", "Value": "other"}, {"Key": "b"}])
    assert ec2.tags_of(key) == {"a": "1"}
    matches = ec2("DescribeTags", Filters=[{"Name": "resource-type", "Values": ["instance"]}])["Tags"]
    assert matches == [{"Key": "a", "ResourceId": key, "ResourceType": "instance", "Value": "1"}]
    with ec2.refused("InvalidParameterValue", "aws:"):
        ec2("CreateTags", Resources=[key], Tags=[{"Key": "aws:x", "Value": "1"}])
    with ec2.refused("InvalidParameterValue", "256 characters"):
        ec2("CreateTags", Resources=[key], Tags=[{"Key": "a", "Value": "v" * 257}])
    ec2("CreateTags", Resources=[key], Tags=[{"Key": "a", "Value": "v" * 256}])
    assert ec2.tags_of(key) == {"a": "v" * 256}
    with ec2.refused("TagLimitExceeded"):
        ec2("CreateTags", Resources=[key], Tags=[{"Key": str(number), "Value": ""} for number in range(50)])
    with ec2.refused("InvalidID"):
        ec2("CreateTags", Resources=["thing-1"], Tags=[{"Key": "a", "Value": ""}])
    for resource, code in (
        ("i-0123456789abcdef0", "InvalidInstanceID.NotFound"),
        ("vol-0123456789abcdef0", "InvalidVolume.NotFound"),
        ("nat-0123456789abcdef0", "NatGatewayNotFound"),
    ):
        with ec2.refused(code):
            ec2("CreateTags", Resources=[resource], Tags=[{"Key": "a", "Value": ""}])
