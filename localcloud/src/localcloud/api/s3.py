"""Simple Storage Service: the defaults of a new bucket, and the validation of policies, which moto lacks.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/creating-buckets-s3.html
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket

from localcloud.api import s3_storage  # noqa: F401 - keeps large objects on disk
from localcloud.api.facts import bucket_owner
from localcloud.api.iam.documents import check_document, is_public
from localcloud.core.cloud import Call, Result, answers
from localcloud.core.errors import AwsError
from localcloud.core.settings import ACCOUNT
from localcloud.core.words import aws_error

_NAME = re.compile(r"(?!xn--)[a-z0-9](?:[a-z0-9-]|\.(?!\.)){1,61}[a-z0-9]")
_TAKEN = (
    "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please "
    "select a different name and try again."
)
_ALL_BLOCKED = dict.fromkeys(
    ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"),
    True,
)


def _no_opinion(*_: Any) -> Any:
    return PermissionResult.NEUTRAL


# localcloud.iam evaluates permissions before moto is called. moto ignores the conditions of a bucket's policy: one that
# denies requests without TLS would deny them all.
FakeBucket.get_permission = _no_opinion  # type: ignore[method-assign,assignment]


@answers("s3", "CreateBucket")
def create_bucket(call: Call) -> Result:
    name = call.params["Bucket"]
    if not _NAME.fullmatch(name) or _is_address(name):
        raise aws_error("s3:CreateBucket", "InvalidBucketName")
    owner = bucket_owner(call.cloud, name)
    if owner not in (ACCOUNT, None):
        raise aws_error("s3:CreateBucket", "BucketAlreadyExists")
    answer = call.moto()
    if owner is None:
        _set_defaults(call, name)
    return answer


def _is_address(name: str) -> bool:
    try:
        ipaddress.IPv4Address(name)
    except ValueError:
        return False
    return True


def _set_defaults(call: Call, name: str) -> None:
    """Since 2023 a new bucket is encrypted, blocks public access and has no access control lists."""
    encryption = {
        "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": False}]
    }
    ownership = {"Rules": [{"ObjectOwnership": call.params.get("ObjectOwnership", "BucketOwnerEnforced")}]}
    for operation, member, value in (
        ("PutBucketEncryption", "ServerSideEncryptionConfiguration", encryption),
        ("PutPublicAccessBlock", "PublicAccessBlockConfiguration", _ALL_BLOCKED),
        ("PutBucketOwnershipControls", "OwnershipControls", ownership),
    ):
        call.cloud.moto("s3", operation, call.region, {"Bucket": name, member: value})


@answers("s3", "ListBuckets")
def list_buckets(call: Call) -> Result:
    answer = call.moto()
    own = [bucket for bucket in answer["Buckets"] if bucket_owner(call.cloud, bucket["Name"]) == ACCOUNT]
    return answer | {"Buckets": own}


@answers("s3", "GetBucketRequestPayment")
def get_bucket_request_payment(call: Call) -> Result:
    """moto lists the bucket, and so refuses one that does not exist."""
    call.moto()
    return {"Payer": "BucketOwner"}


@answers("s3", "PutBucketPolicy")
def put_bucket_policy(call: Call) -> Result:
    document = call.params["Policy"]
    text = document.decode() if isinstance(document, bytes) else str(document)
    check_document(text, "resource", "MalformedPolicy")
    if is_public(text) and _blocks_public_policies(call):
        raise AwsError(
            "AccessDenied",
            f"User: {call.caller.arn} is not authorized to perform: s3:PutBucketPolicy on resource: "
            f'"arn:aws:s3:::{call.params["Bucket"]}" because public policies are prevented by the BlockPublicPolicy '
            "setting in S3 Block Public Access.",
            403,
        )
    return call.moto(**{**call.params, "Policy": text})


def _blocks_public_policies(call: Call) -> bool:
    try:
        answer = call.cloud.moto("s3", "GetPublicAccessBlock", call.region, {"Bucket": call.params["Bucket"]})
    except AwsError as error:
        if error.code == "NoSuchPublicAccessBlockConfiguration":
            return False
        raise
    return bool(answer["PublicAccessBlockConfiguration"]["BlockPublicPolicy"])
