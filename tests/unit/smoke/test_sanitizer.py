"""What a record has of a call: states, codes, types and times, and nothing that says whose account it was."""

from __future__ import annotations

import json
from typing import Any

import botocore.session
import pytest

from tests.smoke.recording import words_of
from tests.smoke.sanitizer import Sanitizer, class_of

OURS = "smoke-1126-net"
VPC, OTHER = "vpc-0123456789abcdef0", "vpc-0fedcba9876543210"
MODELS: dict[str, Any] = {}


def model(service: str) -> Any:
    if service not in MODELS:
        MODELS[service] = botocore.session.get_session().get_service_model(service)
    return MODELS[service]


def sanitized(service: str, operation: str, request: Any, answer: Any, ids: Any = ()) -> tuple[Any, Any, Sanitizer]:
    shapes = model(service).operation_model(operation)
    sanitizer = Sanitizer(["smoke-1126"], ids, lambda: words_of(service, model(service)))
    return sanitizer.request(request, shapes.input_shape), sanitizer.answer(answer, shapes.output_shape), sanitizer


def vpc(vpc_id: str, cluster: str) -> dict[str, Any]:
    tags = [{"Key": "deeplearning:cluster", "Value": cluster}, {"Key": "owner", "Value": "carol"}]
    return {"VpcId": vpc_id, "State": "available", "CidrBlock": "10.7.0.0/16", "OwnerId": "210987654321", "Tags": tags}


def test_resources_of_others_are_dropped_and_ours_keep_states_alone() -> None:
    vpcs = [vpc(OTHER, "bluebird"), vpc(VPC, OURS), {"VpcId": OTHER, "State": "available"}]
    _, answer, sanitizer = sanitized("ec2", "DescribeVpcs", {}, {"Vpcs": vpcs})
    pair = {"Key": "<text>", "Value": "<text>"}
    expected = {"VpcId": "<id vpc>", "State": "available", "CidrBlock": "<cidr>", "OwnerId": "<account>"}
    assert answer["Vpcs"] == [{**expected, "Tags": [pair, pair]}, "<2 more>"]
    assert sanitizer.ids == {VPC}


def test_what_names_a_resource_of_ours_is_ours() -> None:
    target = {"FileSystemId": "fs-0123456789abcdef0", "LifeCycleState": "creating", "OwnerId": "210987654321"}
    whose: tuple[tuple[Any, Any], ...] = (
        (["fs-0123456789abcdef0"], {**target, "FileSystemId": "<id fs>", "OwnerId": "<account>"}),
        ([], "<1 more>"),
    )
    for ids, expected in whose:
        _, answer, _ = sanitized("efs", "DescribeMountTargets", {}, {"MountTargets": [target]}, ids)
        assert answer["MountTargets"] == [expected]


def test_a_request_keeps_types_and_times_and_a_map_loses_its_keys() -> None:
    data = {
        "InstanceType": "t3.medium",
        "ImageId": "ami-0123456789abcdef0",
        "KeyName": "carols-key",
        "UserData": "c2g=",
    }
    request, _, _ = sanitized(
        "ec2", "CreateLaunchTemplate", {"LaunchTemplateName": OURS, "LaunchTemplateData": data}, {}
    )
    assert request["LaunchTemplateData"] == {
        "InstanceType": "t3.medium",
        "ImageId": "<id ami>",
        "KeyName": "<text>",
        "UserData": "<text>",
    }
    configuration = {"Classification": "carol", "Properties": {"carols.secret": "hunter2"}}
    request, _, _ = sanitized("emr", "RunJobFlow", {"Name": OURS, "Configurations": [configuration]}, {})
    assert request["Configurations"] == [{"Classification": "<text>", "Properties": {"<map>": ["<text>"]}}]


def test_a_kept_member_loses_what_looks_like_no_word_of_aws() -> None:
    states = ["a" * 65, "AKIA\n", f"{OURS}-gone", "available"]
    images = [{"State": state, "Tags": [{"Key": "deeplearning:cluster", "Value": OURS}]} for state in states]
    _, answer, _ = sanitized("ec2", "DescribeVpcs", {}, {"Vpcs": images})
    assert [each["State"] for each in answer["Vpcs"]] == ["<text>", "<text>", "<text>", "available"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("The vpc ID 'vpc-0fedcba9876543210' does not exist", "The vpc ID <id vpc> does not exist"),
        ("User: arn:aws:iam::210987654321:user/carol is not authorized", "User: <arn> is not authorized"),
        ("bluebird already exists in 10.7.0.0/16", "<text> already exists in <cidr>"),
        ("The role with name carol cannot be found.", "The role with name <text> cannot be found."),
        ("Access denied by policy", "Access denied by policy"),
    ],
)
def test_a_message_keeps_words_of_the_documentation_that_the_request_has_not(message: str, expected: str) -> None:
    _, _, sanitizer = sanitized("ec2", "DescribeVpcs", {"VpcIds": ["x"]}, {})
    assert sanitizer.message(message) == expected


def test_a_word_of_the_documentation_is_hidden_if_the_request_says_it() -> None:
    _, _, sanitizer = sanitized("ec2", "DescribeVpcs", {"VpcIds": ["my-template"]}, {})
    assert sanitizer.message("The template does not exist") == "The <text> does not exist"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("210987654321", "<account>"),
        ("12", "<number>"),
        ("203.0.113.7", "<address>"),
        ("203.0.113.7/32", "<cidr>"),
        ("arn:aws:s3:::bluebird", "<arn>"),
        ("i-0123456789abcdef0", "<id i>"),
        ("carol-0123456789abcdef0", "<text>"),
        ("j-ABCDEFGHIJKLM", "<id j>"),
        ("fs-1.efs.us-east-1.amazonaws.com", "<host>"),
        ("https://bluebird.example/x", "<url>"),
        ("hunter2", "<text>"),
    ],
)
def test_a_string_becomes_its_class(text: str, expected: str) -> None:
    assert class_of(text) == expected


def test_numbers_as_large_as_an_account_and_bodies_are_hidden() -> None:
    body = {"Body": b"hunter2", "ContentLength": 210987654321}
    _, answer, _ = sanitized("s3", "GetObject", {"Bucket": OURS, "Key": "x"}, body)
    assert answer == {"Body": "<blob>", "ContentLength": "<number>"}
    assert "hunter2" not in json.dumps(answer)
