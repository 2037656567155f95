"""S3, whose actions are older than its calls, so that names differ (ListObjectsV2 is s3:ListBucket). The rows follow
the table on AWS's page that maps calls to actions. What S3 checks only for some parameters (an ACL, tags, a version)
is a rule with `when`.

s3:ResourceTag of buckets is missing, as buckets have it only after a call that is not emulated; objects have
s3:ExistingObjectTag/….
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, unquote

from ..patterns import Value
from ..rules import Call, Need, Rule, Service


def arn(call: Call, kind: str, name: str) -> str:
    if name.startswith("arn:"):
        return name
    path = name if kind == "bucket" else f"{call.value('Bucket') or '*'}/{name}"
    return call.arn("s3", path, account="", region="")


def object_tags(call: Call) -> Mapping[str, str]:
    """Tags of a new object are one URL-encoded string."""
    return dict(parse_qsl(call.value("Tagging"), keep_blank_values=True))


s3 = Service("s3", "s3", arn, ("s3:ExistingObjectTag/",))

_PUT = (
    "s3:x-amz-acl=ACL s3:x-amz-server-side-encryption=ServerSideEncryption s3:x-amz-storage-class=StorageClass "
    "s3:x-amz-server-side-encryption-aws-kms-key-id=SSEKMSKeyId"
)


def bucket(action: str, *, keys: str = "", when: str = "") -> Rule:
    return s3.on("bucket=Bucket", action=action, keys=keys, when=when)


def s3_object(action: str, *, keys: str = "", when: str = "") -> Rule:
    return s3.on("object=Key", action=action, keys=keys, when=when)


def versioned(action: str, version_action: str) -> Rule:
    """Need another action if the request names a version of the object."""

    def needs(call: Call) -> Iterator[Need]:
        name = version_action if call.values("VersionId") else action
        yield from s3_object(name, keys="s3:VersionId=VersionId")(call)

    return needs


def tags_object(call: Call) -> Iterator[Need]:
    for need in s3_object("PutObjectTagging", when="Tagging")(call):
        tags = object_tags(call)
        extra: dict[str, Value] = {f"s3:RequestObjectTag/{key}": value for key, value in tags.items()}
        yield Need(
            need.action, need.resource, {**need.context, **extra, "s3:RequestObjectTagKeys": list(tags)}, need.reason
        )


def reads_source(call: Call) -> Iterator[Need]:
    """Need to read the source of a copy. CopySource is "bucket/key?versionId=…", or boto3's structure of the same."""
    source: Any = call.params.get("CopySource") or {}
    if isinstance(source, str):
        path, _, version = unquote(source).removeprefix("/").partition("?versionId=")
    else:
        path, version = f"{source.get('Bucket', '*')}/{source.get('Key', '*')}", source.get("VersionId") or ""
    target = path if path.startswith("arn:") else arn(call, "bucket", path)
    yield Need(
        "s3:GetObjectVersion" if version else "s3:GetObject", target, s3.describe(call, target), "the source is read"
    )


def deletes_each(call: Call) -> Iterator[Need]:
    for item in (call.params.get("Delete") or {}).get("Objects") or [{"Key": "*"}]:
        target = arn(call, "object", item["Key"])
        action = "s3:DeleteObjectVersion" if item.get("VersionId") else "s3:DeleteObject"
        yield Need(action, target, s3.describe(call, target))


_LISTING = "s3:prefix=Prefix s3:delimiter=Delimiter s3:max-keys=MaxKeys"
_PUT_OBJECT = (
    s3_object("PutObject", keys=_PUT),
    s3_object(
        "PutObjectAcl", when="ACL|GrantRead|GrantFullControl|GrantReadACP|GrantWriteACP", keys="s3:x-amz-acl=ACL"
    ),
    tags_object,
    s3_object("PutObjectRetention", when="ObjectLockMode"),
    s3_object("PutObjectLegalHold", when="ObjectLockLegalHoldStatus"),
)
_BYPASS = s3_object("BypassGovernanceRetention", when="BypassGovernanceRetention")


def _in_own_account(needs: Rule) -> Rule:
    """Check the rule in the caller's account: a new bucket is its own, even if another account has one of that name."""
    return lambda call: (
        replace(need, context={**need.context, "aws:ResourceAccount": call.world.account}) for need in needs(call)
    )


# fmt: off
ROWS = s3.rows({
    # Buckets
    "ListBuckets": s3.on("*", action="ListAllMyBuckets"),
    "CreateBucket": tuple(map(_in_own_account, (
        bucket("CreateBucket",
               keys="s3:locationconstraint=CreateBucketConfiguration.LocationConstraint s3:x-amz-acl=ACL"),
        bucket("PutBucketAcl", when="ACL|GrantRead|GrantWrite|GrantFullControl|GrantReadACP|GrantWriteACP"),
        bucket("PutBucketOwnershipControls", when="ObjectOwnership"),
        bucket("PutBucketObjectLockConfiguration", when="ObjectLockEnabledForBucket"),
        bucket("PutBucketVersioning", when="ObjectLockEnabledForBucket"),
        s3.on("bucket=Bucket", action="TagResource", when="CreateBucketConfiguration.Tags.Key",
              reason="the bucket is tagged")))),
    "DeleteBucket": bucket("DeleteBucket"),
    "HeadBucket": bucket("ListBucket"),
    "ListObjects": bucket("ListBucket", keys=_LISTING),
    "ListObjectsV2": bucket("ListBucket", keys=_LISTING),
    "ListObjectVersions": bucket("ListBucketVersions", keys=_LISTING),
    "ListMultipartUploads": bucket("ListBucketMultipartUploads"),
    "GetBucketLocation": bucket("GetBucketLocation"),
    "GetBucketVersioning": bucket("GetBucketVersioning"),
    "PutBucketVersioning": bucket("PutBucketVersioning"),
    "GetBucketEncryption": bucket("GetEncryptionConfiguration"),
    "PutBucketEncryption": bucket("PutEncryptionConfiguration"),
    "DeleteBucketEncryption": bucket("PutEncryptionConfiguration"),
    "GetPublicAccessBlock": bucket("GetBucketPublicAccessBlock"),
    "PutPublicAccessBlock": bucket("PutBucketPublicAccessBlock"),
    "DeletePublicAccessBlock": bucket("PutBucketPublicAccessBlock"),
    "GetBucketOwnershipControls": bucket("GetBucketOwnershipControls"),
    "PutBucketOwnershipControls": bucket("PutBucketOwnershipControls"),
    "DeleteBucketOwnershipControls": bucket("PutBucketOwnershipControls"),
    "GetBucketTagging": bucket("GetBucketTagging"),
    "PutBucketTagging": bucket("PutBucketTagging"),
    "DeleteBucketTagging": bucket("PutBucketTagging"),
    "GetBucketPolicy": bucket("GetBucketPolicy"),
    "PutBucketPolicy": bucket("PutBucketPolicy"),
    "DeleteBucketPolicy": bucket("DeleteBucketPolicy"),
    "GetBucketAcl": bucket("GetBucketAcl"),
    "PutBucketAcl": bucket("PutBucketAcl", keys="s3:x-amz-acl=ACL"),
    "GetBucketLogging": bucket("GetBucketLogging"),
    "GetBucketRequestPayment": bucket("GetBucketRequestPayment"),
    "PutBucketRequestPayment": bucket("PutBucketRequestPayment"),
    "GetBucketAccelerateConfiguration": bucket("GetAccelerateConfiguration"),
    "PutBucketAccelerateConfiguration": bucket("PutAccelerateConfiguration"),
    "GetObjectLockConfiguration": bucket("GetBucketObjectLockConfiguration"),
    "PutObjectLockConfiguration": bucket("PutBucketObjectLockConfiguration"),
    "PutBucketInventoryConfiguration": bucket("PutInventoryConfiguration"),
    "DeleteBucketInventoryConfiguration": bucket("PutInventoryConfiguration"),
    "ListBucketInventoryConfigurations": bucket("GetInventoryConfiguration"),

    # Objects
    "GetObject": versioned("GetObject", "GetObjectVersion"),
    "HeadObject": versioned("GetObject", "GetObjectVersion"),
    "GetObjectAttributes": (
        versioned("GetObject", "GetObjectVersion"), versioned("GetObjectAttributes", "GetObjectVersionAttributes")),
    "PutObjectAcl": versioned("PutObjectAcl", "PutObjectVersionAcl"),
    "GetObjectTagging": versioned("GetObjectTagging", "GetObjectVersionTagging"),
    "PutObjectTagging": versioned("PutObjectTagging", "PutObjectVersionTagging"),
    "PutObject": _PUT_OBJECT,
    "CopyObject": (reads_source, *_PUT_OBJECT),
    "DeleteObject": (versioned("DeleteObject", "DeleteObjectVersion"), _BYPASS),
    "DeleteObjects": deletes_each,

    # Uploads in parts
    "CreateMultipartUpload": _PUT_OBJECT,
    "UploadPart": s3_object("PutObject"),
    "UploadPartCopy": (reads_source, s3_object("PutObject")),
    "CompleteMultipartUpload": s3_object("PutObject"),
    "AbortMultipartUpload": s3_object("AbortMultipartUpload"),
    "ListParts": s3_object("ListMultipartUploadParts"),
})
# fmt: on
