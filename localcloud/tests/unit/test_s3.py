"""Buckets are born as AWS bears them, and a policy that cannot be read is not taken."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from localcloud.api import s3
from localcloud.core.caller import Caller
from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError

Ask = Callable[..., dict[str, Any]]
assert s3


@pytest.fixture
def ask(cloud: Cloud) -> Ask:
    def ask(operation: str, **params: Any) -> dict[str, Any]:
        return cloud.ask("s3", operation, "us-east-1", params, Caller.service("test"))

    return ask


def policy(effect: str = "Allow", principal: Any = "*", **more: Any) -> str:
    statement = {
        "Effect": effect,
        "Principal": principal,
        "Action": "s3:*",
        "Resource": "arn:aws:s3:::bucket-1/*",
        **more,
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def test_a_new_bucket_is_encrypted_and_closed(ask: Ask) -> None:
    ask("CreateBucket", Bucket="bucket-1")
    rule = ask("GetBucketEncryption", Bucket="bucket-1")["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert set(ask("GetPublicAccessBlock", Bucket="bucket-1")["PublicAccessBlockConfiguration"].values()) == {True}
    controls = ask("GetBucketOwnershipControls", Bucket="bucket-1")["OwnershipControls"]
    assert controls["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]


def test_the_owner_of_a_bucket_pays(ask: Ask) -> None:
    ask("CreateBucket", Bucket="bucket-1")
    assert ask("GetBucketRequestPayment", Bucket="bucket-1") == {"Payer": "BucketOwner"}
    with pytest.raises(AwsError, match="NoSuchBucket"):
        ask("GetBucketRequestPayment", Bucket="bucket-2")


def test_creating_it_again_leaves_it_as_it_is(ask: Ask) -> None:
    ask("CreateBucket", Bucket="bucket-1")
    ask("DeletePublicAccessBlock", Bucket="bucket-1")
    ask("CreateBucket", Bucket="bucket-1")
    with pytest.raises(AwsError, match="NoSuchPublicAccessBlockConfiguration"):
        ask("GetPublicAccessBlock", Bucket="bucket-1")


@pytest.mark.parametrize("name", ["Bucket", "a", "a_b", "a..b", "-ab", "192.168.0.1", "x" * 64])
def test_a_name_that_no_bucket_can_have(ask: Ask, name: str) -> None:
    with pytest.raises(AwsError, match="InvalidBucketName"):
        ask("CreateBucket", Bucket=name)


def test_policies_are_read_before_they_are_taken(ask: Ask) -> None:
    ask("CreateBucket", Bucket="bucket-1")
    for document, error in (
        ("{", "MalformedPolicy"),
        (policy(principal={"AWS": "arn:aws:iam::123456789012:role/none"}), "MalformedPolicy: Invalid principal"),
        (policy(), "AccessDenied: .*BlockPublicPolicy"),
        (policy(principal={"AWS": "*"}), "AccessDenied: .*BlockPublicPolicy"),
    ):
        with pytest.raises(AwsError, match=error):
            ask("PutBucketPolicy", Bucket="bucket-1", Policy=document)
    ask("DeletePublicAccessBlock", Bucket="bucket-1")
    ask("PutBucketPolicy", Bucket="bucket-1", Policy=policy())


def test_conditions_of_a_policy_are_not_for_moto_to_judge(ask: Ask) -> None:
    ask("CreateBucket", Bucket="bucket-1")
    only_encrypted = {"Bool": {"aws:SecureTransport": "false"}}
    ask("PutBucketPolicy", Bucket="bucket-1", Policy=policy("Deny", Condition=only_encrypted))
    ask("PutObject", Bucket="bucket-1", Key="k", Body=b"x")
    assert ask("HeadObject", Bucket="bucket-1", Key="k")["ContentLength"] == 1
