"""What a call needs to be allowed, and whether its caller may: IAM, applied to the records of the account.

localcloud.iam decides. This module tells it the caller, the policies in effect and the records of the account.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from moto.s3.models import FakeDeleteMarker

from localcloud import iam
from localcloud.api.account import Account
from localcloud.api.efs import file_systems as efs
from localcloud.api.facts import bucket_named, bucket_owner
from localcloud.api.iam.history import boundary_in_effect, policies_in_effect, trust_policy
from localcloud.api.services import BY_NAME
from localcloud.core.caller import Caller
from localcloud.core.cloud import Call
from localcloud.core.settings import ACCOUNT, TRANSIT_NETWORK
from localcloud.core.words import aws_error
from localcloud.iam.authorize import TRUST_ACTIONS
from localcloud.iam.patterns import Value
from localcloud.iam.policy import Kind

_TRANSIT = ipaddress.ip_network(TRANSIT_NETWORK)


@dataclass(frozen=True)
class Needs:
    """All that must be allowed for a call."""

    action: str
    """the operation's own, such as ec2:DescribeInstances; empty if it needs no permission"""
    resource: str
    each: tuple[iam.Need, ...] = ()
    known: bool = True
    """whether the table has the operation"""

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {"action": need.action, "resource": need.resource} | ({"reason": need.reason} if need.reason else {})
            for need in self.each
        ]


def required(call: Call) -> Needs:
    try:
        each = iam.required(call.service, call.operation, call.params, Account(call.cloud), call.region)
    except iam.UnknownOperation:
        return Needs(f"{call.service}:{call.operation}", "*", known=False)
    each += [*_list_bucket_if_object_missing(call), *_end_of_new_cluster(call)]
    if not each:
        return Needs("", "")
    # What comes with a reason is not the operation's own.
    own = next((need for need in each if not need.reason), each[0])
    return Needs(own.action, own.resource, tuple(each))


def enforce(call: Call, needs: Needs, source: str) -> None:
    """Raises the refusal, as AWS words it. AWS's own services may do everything, except in a role that does not trust
    them."""
    if call.caller.kind == "service":
        needs = Needs(needs.action, needs.resource, tuple(need for need in needs.each if need.action in TRUST_ACTIONS))
    if not needs.known:
        raise iam.unknown(BY_NAME[call.service].refusal, call.service, call.operation)
    _check_bucket_owner(call)
    if not needs.each:
        return
    boundary = boundary_in_effect(call.cloud, call.caller)
    refused = iam.authorize(
        [_identity_policy(name, document) for name, document in policies_in_effect(call.cloud, call.caller)],
        needs.each,
        principal(call, source),
        resource_policies=dict(_resource_policies(call, needs.each)),
        boundaries=None if boundary is None else _boundaries(*boundary),
    )
    if refused:
        raise iam.denied(BY_NAME[call.service].refusal, refused[0], call.caller.arn)


def _check_bucket_owner(call: Call) -> None:
    """Refuse a call that expects another owner of its bucket, or of the bucket that it copies from.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucket-owner-condition.html
    """
    if call.service != "s3":
        return
    source = str(call.params.get("CopySource", "")).lstrip("/").partition("/")[0]
    for bucket, key in (
        (call.params.get("Bucket"), "ExpectedBucketOwner"),
        (source, "ExpectedSourceBucketOwner"),
    ):
        expected = call.params.get(key)
        if expected and bucket_owner(call.cloud, str(bucket)) not in (expected, None):
            raise aws_error("s3:*", "AccessDenied")


# What the table cannot know -------------------------------------------------------------------------------------------

_READS_OBJECT = {"GetObject", "HeadObject", "GetObjectAttributes", "GetObjectTagging", "GetObjectAcl"}


def _list_bucket_if_object_missing(call: Call) -> list[iam.Need]:
    """S3 reports that an object does not exist only to callers that may list the bucket.

    https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html
    """
    if call.service != "s3" or call.operation not in _READS_OBJECT:
        return []
    bucket = bucket_named(str(call.params.get("Bucket")))
    if bucket is None or not isinstance(bucket.keys.get(str(call.params.get("Key"))), FakeDeleteMarker | None):
        return []
    owner = bucket_owner(call.cloud, bucket.name) or ACCOUNT
    context: dict[str, Value] = {"aws:RequestedRegion": call.region, "aws:ResourceAccount": owner}
    return [iam.Need("s3:ListBucket", f"arn:aws:s3:::{bucket.name}", context, "the object does not exist")]


def _end_of_new_cluster(call: Call) -> Iterator[iam.Need]:
    """Need a permission for the auto-termination policy of a new cluster, under the fault `emr-end-checked`: AWS does
    not document whether RunJobFlow needs it. The reference has no condition keys of the request for the action."""
    if call.operation == "RunJobFlow" and call.params.get("AutoTerminationPolicy"):
        for _fault in call.cloud.faults.of_kind("emr-end-checked"):
            resource = f"arn:aws:elasticmapreduce:{call.region}:{ACCOUNT}:cluster/*"
            context: dict[str, Value] = {"aws:RequestedRegion": call.region, "aws:ResourceAccount": ACCOUNT}
            yield iam.Need("elasticmapreduce:PutAutoTerminationPolicy", resource, context, "the cluster gets an end")


# Who calls ------------------------------------------------------------------------------------------------------------


def principal(call: Call, source: str) -> Caller:
    """Return the caller with the condition keys of the connection."""
    if call.caller.kind == "service":
        return call.caller
    return replace(call.caller, connection=_connection(call, source))


def _connection(call: Call, source: str) -> dict[str, str]:
    now = datetime.fromtimestamp(call.cloud.clock.time(), UTC)
    keys = {
        "aws:CurrentTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "aws:EpochTime": str(int(now.timestamp())),
        # Every call here is plain HTTP, in place of one that would be HTTPS on AWS.
        "aws:SecureTransport": "true",
        "aws:ViaAWSService": "false",
    }
    # As in AWS, what comes through an endpoint in a VPC has no public source.
    if source and ipaddress.ip_address(source) not in _TRANSIT:
        keys["aws:SourceIp"] = source
    return keys


# Policies, read once --------------------------------------------------------------------------------------------------

_read: dict[tuple[int, str], tuple[object, iam.Policy]] = {}
"""by a document's identity, which is that of its text (see iam_history), and its name; the document is held with it, so
that no other can take its place in memory"""


def _identity_policy(name: str, document: Mapping[str, Any]) -> iam.Policy:
    key = (id(document), name)
    match = _read.get(key)
    if match is None:
        if len(_read) >= 4096:
            _read.clear()
        match = _read[key] = (document, _parsed(name, document, "identity"))
    return match[1]


def _boundaries(name: str, document: Mapping[str, Any]) -> list[iam.Policy]:
    """Return the policies of a boundary. One without statements allows nothing."""
    return [_identity_policy(name, document)] if document["Statement"] else []


@functools.lru_cache(maxsize=1024)
def _policy_on_resource(name: str, document: str, kind: Kind) -> iam.Policy:
    return _parsed(name, document, kind)


def _parsed(name: str, document: str | Mapping[str, Any], kind: Kind) -> iam.Policy:
    """Parse a policy. One that is malformed denies everything, as it might have denied any action."""
    try:
        return iam.parse_policy(document, kind=kind, name=name)
    except iam.MalformedPolicy:
        statement = {"Sid": "unreadable", "Effect": "Deny", "Action": "*"}
        statement |= {} if kind == "trust" else {"Resource": "*"}
        statement |= {} if kind == "identity" else {"Principal": "*"}
        return iam.parse_policy({"Version": "2012-10-17", "Statement": [statement]}, kind=kind, name=name)


def _resource_policies(call: Call, needs: Iterable[iam.Need]) -> Iterable[tuple[str, iam.Policy]]:
    """Return the policies of the buckets, file systems and roles of a call, by ARN."""
    for need in needs:
        about = iam.policy_arn(need)
        service = about.split(":", 3)[2] if about.startswith("arn:") else ""
        kind: Kind = "resource"
        document: str | None = None
        if service == "s3":
            bucket = bucket_named(about.rpartition(":")[2])
            document = bucket.policy.decode() if bucket and bucket.policy else None
        elif service == "elasticfilesystem":
            document = efs.file_system_policy(call.cloud, about)
        elif service == "iam" and need.action in TRUST_ACTIONS:
            document, kind = trust_policy(call.cloud, about), "trust"
        if document:
            yield about, _policy_on_resource(about.rpartition(":")[2], document, kind)
