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


def versioned(action: str, version_action: str) -> Rule:
    """Need another action if the request names a version of the object."""

    def needs(call: Call) -> Iterator[Need]:
        name = version_action if call.values("VersionId") else action
        yield from s3.on(f"{name} object=Key s3:VersionId=VersionId")(call)

    return needs


def tags_object(call: Call) -> Iterator[Need]:
    for need in s3.on("PutObjectTagging object=Key", when="Tagging")(call):
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


def creates_bucket(call: Call) -> Iterator[Need]:
    """A new bucket is checked in the caller's account: it is its own, even if another account has one of that name."""
    for action, when in (
        ("CreateBucket s3:locationconstraint=CreateBucketConfiguration.LocationConstraint s3:x-amz-acl=ACL", ""),
        ("PutBucketAcl", "ACL|GrantRead|GrantWrite|GrantFullControl|GrantReadACP|GrantWriteACP"),
        ("PutBucketOwnershipControls", "ObjectOwnership"),
        ("PutBucketObjectLockConfiguration", "ObjectLockEnabledForBucket"),
        ("PutBucketVersioning", "ObjectLockEnabledForBucket"),
        ("TagResource", "CreateBucketConfiguration.Tags.Key"),
    ):
        reason = "the bucket is tagged" if action == "TagResource" else ""
        for need in s3.on(f"{action} bucket=Bucket", when=when, reason=reason)(call):
            yield replace(need, context={**need.context, "aws:ResourceAccount": call.world.account})


ROWS = s3.rows(
    creates_bucket=creates_bucket,
    tags_object=tags_object,
    reads_source=reads_source,
    deletes_each=deletes_each,
    gets_object=versioned("GetObject", "GetObjectVersion"),
    deletes_object=versioned("DeleteObject", "DeleteObjectVersion"),
)
