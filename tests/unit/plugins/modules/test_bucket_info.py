"""The module bucket_info: whether a bucket exists and is the account's, and its policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.conftest import Account
from tests.unit.modules import run_module

Run = Callable[..., dict[str, Any]]
ACCOUNT = "123456789012"


@pytest.fixture
def run(aws: Account, capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda check=False, **options: run_module(capsys, "bucket_info", check, **options)


def test_by_default_it_is_the_bucket_of_the_accounts_data_sets(run: Run) -> None:
    answer = run()
    assert not answer["changed"] and answer["exists"] is False and answer["policy"] == {}
    assert (answer["name"], answer["account"]) == (f"{ACCOUNT}-us-east-1-deeplearning-data", ACCOUNT)
    assert answer["partition"] == "aws"


def test_the_partition_is_the_regions(run: Run) -> None:
    answer = run(region="cn-north-1", account=ACCOUNT, name="")
    assert answer["partition"] == "aws-cn" and answer["name"] == f"{ACCOUNT}-cn-north-1-deeplearning-data"


def test_a_bucket_of_the_account_with_its_policy(aws: Account, run: Run) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="mine")
    assert (run(name="mine")["exists"], run(name="mine")["policy"]) == (True, {})
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteBucket", "Resource": "arn:aws:s3:::mine"}
        ],
    }
    s3.put_bucket_policy(Bucket="mine", Policy=json.dumps(policy))
    for check in (False, True):
        answer = run(check, name="mine", account=ACCOUNT)
        assert answer["exists"] and answer["policy"] == policy and not answer["changed"]


def test_a_bucket_of_another_account_is_refused(aws: Account, run: Run) -> None:
    aws.client("s3").create_bucket(Bucket="mine")
    refused = run(name="mine", account="210987654321")
    assert refused["failed"] and refused["msg"].startswith("The bucket mine belongs to another account, or")
    assert refused["msg"].endswith("name another bucket or cluster, or ask for this permission.")


@pytest.mark.parametrize(
    ("action", "code", "words"),
    [
        ("s3:HeadBucket", "AccessDenied", "The bucket mine belongs to another account"),
        ("s3:GetBucketPolicy", "AccessDenied", "AWS does not allow s3:GetBucketPolicy"),
        ("s3:HeadBucket", "NotImplemented", "s3:ListBucket failed: Not Implemented (501)."),
    ],
)
def test_other_refusals_are_passed_on(aws: Account, run: Run, action: str, code: str, words: str) -> None:
    aws.client("s3").create_bucket(Bucket="mine")
    status = 403 if code == "AccessDenied" else 501
    aws.cloud.faults.add("error", {"action": action}, {"code": code, "message": "No.", "status": status})
    refused = run(name="mine", account=ACCOUNT)
    assert refused["failed"] and words in refused["msg"]
