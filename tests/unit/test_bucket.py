"""The module bucket against the local cloud's S3: what it makes, repairs and leaves alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils._bucket import ASPECTS
from botocore.exceptions import ClientError

from localcloud.api.world import bucket_named

sys.path.insert(0, str(Path(__file__).parent))
from modules import run_module  # noqa: E402

Run = Callable[..., dict[str, Any]]
ACCOUNT = "123456789012"
NAME = f"c-{ACCOUNT}-us-east-1"
TAGS = {"deeplearning:cluster": "c"}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda **given: run_module(capsys, "bucket", **{"name": NAME, "account": ACCOUNT, "tags": TAGS} | given)


@pytest.fixture
def s3(aws: Any) -> Any:
    return aws.client("s3")


def writes(aws: Any) -> list[str]:
    return [record["operation"] for record in aws.cloud.calls.since() if record["writes"]]


def check_it(s3: Any, name: str = NAME) -> None:
    (rule,) = s3.get_bucket_encryption(Bucket=name)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    blocked = s3.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]
    assert len(blocked) == 4 and all(blocked.values())
    (rule,) = s3.get_bucket_ownership_controls(Bucket=name)["OwnershipControls"]["Rules"]
    assert rule["ObjectOwnership"] == "BucketOwnerEnforced"
    statement = json.loads(s3.get_bucket_policy(Bucket=name)["Policy"])["Statement"][-1]
    assert (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", "s3:*")
    assert statement["Resource"] == [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"]
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_check_do_and_again(aws: Any, run: Run, s3: Any) -> None:
    planned = run(check=True)
    assert planned["changed"] and not writes(aws)
    assert planned["diff"]["before"] == {} and planned["diff"]["after"]["tags"] == TAGS

    made = run()
    assert made["changed"]
    check_it(s3)
    assert s3.get_bucket_tagging(Bucket=NAME)["TagSet"] == [{"Key": "deeplearning:cluster", "Value": "c"}]

    for check in (False, True):
        before = writes(aws)
        again = run(check=check)
        assert not again["changed"] and again["diff"]["before"] == again["diff"]["after"]
        assert writes(aws) == before


def test_in_another_region(run: Run, aws: Any) -> None:
    region, name = "ap-southeast-2", "c-123456789012-ap-southeast-2"
    assert run(name=name, region=region)["changed"] and not run(name=name, region=region)["changed"]
    assert aws.client("s3").get_bucket_location(Bucket=name)["LocationConstraint"] == region


def test_what_somebody_has_changed_is_put_right_and_their_tags_stay(run: Run, s3: Any) -> None:
    run()
    s3.delete_public_access_block(Bucket=NAME)
    s3.put_bucket_ownership_controls(Bucket=NAME, OwnershipControls={"Rules": [{"ObjectOwnership": "ObjectWriter"}]})
    encryption = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}]}
    s3.put_bucket_encryption(Bucket=NAME, ServerSideEncryptionConfiguration=encryption)
    s3.put_bucket_tagging(Bucket=NAME, Tagging={"TagSet": [{"Key": "theirs", "Value": "1"}]})

    assert run(check=True)["changed"] and run()["changed"]
    check_it(s3)
    assert {tag["Key"] for tag in s3.get_bucket_tagging(Bucket=NAME)["TagSet"]} == {"theirs", *TAGS}
    assert not run()["changed"]


def test_a_name_that_somebody_else_has_is_refused_in_a_sentence(aws: Any, run: Run) -> None:
    error = {"code": "403", "message": "Forbidden", "status": 403}
    aws.cloud.faults.add("error", {"action": "s3:HeadBucket"}, value=error)
    refused = run()
    assert refused["failed"] and "is somebody else's" in refused["msg"] and not writes(aws)


def test_a_bucket_of_another_account_that_lets_us_in_is_refused_and_left_alone(aws: Any, run: Run, s3: Any) -> None:
    s3.create_bucket(Bucket=NAME)
    bucket_named(NAME).account_id = "210987654321"
    before = writes(aws)
    refused = run()
    assert refused["failed"] and f"The bucket {NAME} is somebody else's" in refused["msg"]
    assert writes(aws) == before


def test_each_call_but_the_creating_one_names_the_owner(aws: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    call = Aws.call

    def noted(self: Aws, service: str, operation: str, **params: Any) -> Any:
        asked.append((operation, params.get("ExpectedBucketOwner", "")))
        return call(self, service, operation, **params)

    monkeypatch.setattr(Aws, "call", noted)
    assert run()["changed"]
    assert {operation for operation, owner in asked if owner != ACCOUNT} == {"create_bucket"}


def test_further_statements_of_its_policy_stay(run: Run, s3: Any) -> None:
    run()
    ours = json.loads(s3.get_bucket_policy(Bucket=NAME)["Policy"])["Statement"]
    theirs = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObjectAcl", "Resource": f"arn:aws:s3:::{NAME}/*"}
    for statements in ([theirs], theirs, [{**ours[0], "Resource": f"arn:aws:s3:::{NAME}/x"}, theirs]):
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        s3.put_bucket_policy(Bucket=NAME, Policy=policy)
        assert run(check=True)["changed"] and run()["changed"]
        assert json.loads(s3.get_bucket_policy(Bucket=NAME)["Policy"])["Statement"] == [theirs, *ours]
        assert not run()["changed"]


def test_each_aspect_is_called_as_s3_calls_it(s3: Any) -> None:
    """S3 says what it misses in these words."""
    s3.create_bucket(Bucket=NAME)
    unset = {}
    for aspect in ASPECTS:
        getattr(s3, f"delete_{aspect.operation}")(Bucket=NAME)
        try:
            getattr(s3, f"get_{aspect.operation}")(Bucket=NAME)
        except ClientError as error:
            unset[aspect.name] = error.response["Error"]["Code"]
    assert unset.items() <= {aspect.name: aspect.unset for aspect in ASPECTS}.items()
