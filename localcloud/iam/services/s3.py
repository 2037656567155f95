"""S3: its actions are older than its calls, so the names differ (ListObjectsV2 is s3:ListBucket); the table of AWS's
page that maps calls to actions was read for every row. What S3 checks only for some parameters (an ACL, tags, a
version) is a rule with `given`.

s3:ResourceTag of buckets is not among the keys (it needs a switch on the bucket that nothing here uses); objects give
s3:ExistingObjectTag/….
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from ..patterns import Value
from ..rules import Call, Need, Rule, Service, passed, rule

PAGE = "https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazons3.html"
OPERATIONS_PAGE = "https://docs.aws.amazon.com/AmazonS3/latest/userguide/using-with-s3-policy-actions.html"
COPY_PAGE = "https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html"
DELETE_PAGE = "https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html"


def arn(call: Call, kind: str, name: str) -> str:
    if name.startswith("arn:"):
        return name
    path = name if kind == "bucket" else f"{call.value('Bucket') or '*'}/{name}"
    return call.arn("s3", path, account="", region="")


def object_tags(call: Call) -> Mapping[str, str]:
    """Tags of a new object are one URL-encoded string."""
    return dict(parse_qsl(call.value("Tagging"), keep_blank_values=True))


s3 = Service("s3", "s3", PAGE, arn, ("s3:ExistingObjectTag/",))

_PUT = (
    "s3:x-amz-acl=ACL s3:x-amz-server-side-encryption=ServerSideEncryption s3:x-amz-storage-class=StorageClass "
    "s3:x-amz-server-side-encryption-aws-kms-key-id=SSEKMSKeyId"
)


def bucket(action: str, *, keys: str = "", given: str = "") -> Rule:
    return s3.on("bucket=Bucket", action=action, keys=keys, given=given)


def thing(action: str, *, keys: str = "", given: str = "") -> Rule:
    """On the object."""
    return s3.on("object=Key", action=action, keys=keys, given=given)


def versioned(action: str, version_action: str) -> Rule:
    """The other name if the request names a version of the object."""

    def needs(call: Call) -> Iterator[Need]:
        asked = version_action if call.values("VersionId") else action
        yield from thing(asked, keys="s3:VersionId=VersionId").needs(call)

    return Rule(needs, PAGE)


@rule(PAGE)
def tags_object(call: Call) -> Iterator[Need]:
    for need in thing("PutObjectTagging", given="Tagging").needs(call):
        asked = object_tags(call)
        extra: dict[str, Value] = {f"s3:RequestObjectTag/{key}": value for key, value in asked.items()}
        yield Need(
            need.action, need.resource, {**need.context, **extra, "s3:RequestObjectTagKeys": list(asked)}, need.reason
        )


@rule(COPY_PAGE)
def reads_source(call: Call) -> Iterator[Need]:
    """CopySource is "bucket/key?versionId=…", or boto3's structure of the same."""
    source: Any = call.params.get("CopySource") or {}
    if isinstance(source, str):
        path, _, version = unquote(source).removeprefix("/").partition("?versionId=")
    else:
        path, version = f"{source.get('Bucket', '*')}/{source.get('Key', '*')}", source.get("VersionId") or ""
    target = path if path.startswith("arn:") else arn(call, "bucket", path)
    yield Need(
        "s3:GetObjectVersion" if version else "s3:GetObject", target, s3.describe(call, target), "the source is read"
    )


@rule(DELETE_PAGE)
def deletes_each(call: Call) -> Iterator[Need]:
    for one in (call.params.get("Delete") or {}).get("Objects") or [{"Key": "*"}]:
        target = arn(call, "object", one["Key"])
        action = "s3:DeleteObjectVersion" if one.get("VersionId") else "s3:DeleteObject"
        yield Need(action, target, s3.describe(call, target))


_LISTING = "s3:prefix=Prefix s3:delimiter=Delimiter s3:max-keys=MaxKeys"
_PUT_OBJECT = (
    thing("PutObject", keys=_PUT),
    thing("PutObjectAcl", given="ACL|GrantRead|GrantFullControl|GrantReadACP|GrantWriteACP", keys="s3:x-amz-acl=ACL"),
    tags_object,
    thing("PutObjectRetention", given="ObjectLockMode"),
    thing("PutObjectLegalHold", given="ObjectLockLegalHoldStatus"),
)
_BYPASS = thing("BypassGovernanceRetention", given="BypassGovernanceRetention")

# fmt: off
ROWS = s3.rows({
    # Buckets
    "ListBuckets": s3.on("*", action="ListAllMyBuckets"),
    "CreateBucket": (
        bucket("CreateBucket",
               keys="s3:locationconstraint=CreateBucketConfiguration.LocationConstraint s3:x-amz-acl=ACL"),
        bucket("PutBucketAcl", given="ACL|GrantRead|GrantWrite|GrantFullControl|GrantReadACP|GrantWriteACP"),
        bucket("PutBucketOwnershipControls", given="ObjectOwnership"),
        bucket("PutBucketObjectLockConfiguration", given="ObjectLockEnabledForBucket"),
        bucket("PutBucketVersioning", given="ObjectLockEnabledForBucket"),
        # From knowledge: the mapping that was read does not have it.
        s3.on("bucket=Bucket", action="TagResource", given="CreateBucketConfiguration.Tags.Key", consulted=False)),
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
    "GetBucketLifecycle": bucket("GetLifecycleConfiguration"),
    "GetBucketLifecycleConfiguration": bucket("GetLifecycleConfiguration"),
    "PutBucketLifecycle": bucket("PutLifecycleConfiguration"),
    "PutBucketLifecycleConfiguration": bucket("PutLifecycleConfiguration"),
    "DeleteBucketLifecycle": bucket("PutLifecycleConfiguration"),
    "GetBucketOwnershipControls": bucket("GetBucketOwnershipControls"),
    "PutBucketOwnershipControls": bucket("PutBucketOwnershipControls"),
    "DeleteBucketOwnershipControls": bucket("PutBucketOwnershipControls"),
    "GetBucketTagging": bucket("GetBucketTagging"),
    "PutBucketTagging": bucket("PutBucketTagging"),
    "DeleteBucketTagging": bucket("PutBucketTagging"),
    "GetBucketPolicy": bucket("GetBucketPolicy"),
    "GetBucketPolicyStatus": bucket("GetBucketPolicyStatus"),
    "PutBucketPolicy": bucket("PutBucketPolicy"),
    "DeleteBucketPolicy": bucket("DeleteBucketPolicy"),
    "GetBucketAcl": bucket("GetBucketAcl"),
    "PutBucketAcl": bucket("PutBucketAcl", keys="s3:x-amz-acl=ACL"),
    "GetBucketCors": bucket("GetBucketCORS"),
    "PutBucketCors": bucket("PutBucketCORS"),
    "DeleteBucketCors": bucket("PutBucketCORS"),
    "GetBucketLogging": bucket("GetBucketLogging"),
    "PutBucketLogging": bucket("PutBucketLogging"),
    "GetBucketNotification": bucket("GetBucketNotification"),
    "GetBucketNotificationConfiguration": bucket("GetBucketNotification"),
    "PutBucketNotificationConfiguration": bucket("PutBucketNotification"),
    "GetBucketReplication": bucket("GetReplicationConfiguration"),
    "PutBucketReplication": (
        bucket("PutReplicationConfiguration"), passed("ReplicationConfiguration.Role", "s3.amazonaws.com")),
    "DeleteBucketReplication": bucket("PutReplicationConfiguration"),
    "GetBucketRequestPayment": bucket("GetBucketRequestPayment"),
    "PutBucketRequestPayment": bucket("PutBucketRequestPayment"),
    "GetBucketAccelerateConfiguration": bucket("GetAccelerateConfiguration"),
    "PutBucketAccelerateConfiguration": bucket("PutAccelerateConfiguration"),
    "GetBucketWebsite": bucket("GetBucketWebsite"),
    "PutBucketWebsite": bucket("PutBucketWebsite"),
    "DeleteBucketWebsite": bucket("DeleteBucketWebsite"),
    "GetObjectLockConfiguration": bucket("GetBucketObjectLockConfiguration"),
    "PutObjectLockConfiguration": bucket("PutBucketObjectLockConfiguration"),
    "GetBucketInventoryConfiguration": bucket("GetInventoryConfiguration"),
    "PutBucketInventoryConfiguration": bucket("PutInventoryConfiguration"),
    "DeleteBucketInventoryConfiguration": bucket("PutInventoryConfiguration"),
    "ListBucketInventoryConfigurations": bucket("GetInventoryConfiguration"),
    "GetBucketMetricsConfiguration": bucket("GetMetricsConfiguration"),
    "PutBucketMetricsConfiguration": bucket("PutMetricsConfiguration"),
    "DeleteBucketMetricsConfiguration": bucket("PutMetricsConfiguration"),
    "ListBucketMetricsConfigurations": bucket("GetMetricsConfiguration"),

    # Objects
    "GetObject": versioned("GetObject", "GetObjectVersion"),
    "HeadObject": versioned("GetObject", "GetObjectVersion"),
    "GetObjectAttributes": versioned("GetObject", "GetObjectVersion"),
    "SelectObjectContent": thing("GetObject"),
    "GetObjectAcl": versioned("GetObjectAcl", "GetObjectVersionAcl"),
    "PutObjectAcl": versioned("PutObjectAcl", "PutObjectVersionAcl"),
    "GetObjectTagging": versioned("GetObjectTagging", "GetObjectVersionTagging"),
    "PutObjectTagging": versioned("PutObjectTagging", "PutObjectVersionTagging"),
    "DeleteObjectTagging": versioned("DeleteObjectTagging", "DeleteObjectVersionTagging"),
    "GetObjectRetention": thing("GetObjectRetention"),
    "PutObjectRetention": (thing("PutObjectRetention"), _BYPASS),
    "GetObjectLegalHold": thing("GetObjectLegalHold"),
    "PutObjectLegalHold": thing("PutObjectLegalHold"),
    "RestoreObject": thing("RestoreObject"),
    "PutObject": _PUT_OBJECT,
    "CopyObject": (reads_source, *_PUT_OBJECT),
    "DeleteObject": (versioned("DeleteObject", "DeleteObjectVersion"), _BYPASS),
    "DeleteObjects": deletes_each,

    # Uploads in parts
    "CreateMultipartUpload": _PUT_OBJECT,
    "UploadPart": thing("PutObject"),
    "UploadPartCopy": (reads_source, thing("PutObject")),
    "CompleteMultipartUpload": thing("PutObject"),
    "AbortMultipartUpload": thing("AbortMultipartUpload"),
    "ListParts": thing("ListMultipartUploadParts"),
})
# fmt: on
