# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The IAM policies of a cluster's members.

A location is a bucket or a bucket/prefix, without a slash at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import (
    CLUSTER_TAG,
    MASTER,
    RANK_TAG,
    Names,
)

RESULTS = "results"
"""The prefix of the cluster's own bucket that its members may be allowed to write."""
_WRITE = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]

Statement = dict[str, Any]


@dataclass(frozen=True)
class MemberAccess:
    """What the policies of a cluster's members depend on."""

    cluster: str
    region: str
    account: str
    bucket: str
    read: Sequence[str] = ()
    write: Sequence[str] = ()
    partition: str = "aws"
    workers_associate: bool = False
    """Whether workers associate the address of a new master, which gets none at its launch."""

    @property
    def data_bucket(self) -> str:
        return Names(self.cluster, self.account, self.region).data_bucket


def policy_for(role: str, access: MemberAccess) -> dict[str, Any]:
    statements = [*bucket_statements(access), lifecycle_statement(role, access)]
    if role == MASTER:
        statements += master_statements(access)
    elif access.workers_associate:
        find_calls = ["autoscaling:DescribeAutoScalingGroups", "ec2:DescribeAddresses", "ec2:DescribeInstances"]
        statements += [_statement("FindTheMaster", find_calls, ["*"]), address_statement(access)]
    return {"Version": "2012-10-17", "Statement": statements}


def outside_results(bucket: str, data_bucket: str, locations: Iterable[str]) -> list[str]:
    """Return the locations where members must not write: all in the bucket of data sets, which other clusters read, and
    most in the cluster's own, which holds the reports of other members, and wheels that nodes install as root."""
    results = f"{bucket}/{RESULTS}"
    return [
        location
        for location in locations
        if location.split("/")[0] in (bucket, data_bucket)
        and location != results
        and not location.startswith(f"{results}/")
    ]


def bucket_statements(access: MemberAccess) -> list[Statement]:
    """Return the statements for the cluster's own bucket, for that of data sets, and for the further locations.

    Names of buckets can be predicted, so one that another account has taken is neither read nor written. The last
    statement denies all other writing, regardless of other policies of the role: a report is trusted because only its
    own member can write to its location.
    """
    bucket, s3 = access.bucket, f"arn:{access.partition}:s3:::"
    own = (bucket, access.data_bucket)
    # The ids of the role and of the instance, which are different for each member.
    own_report = f"{s3}{bucket}/members/${{aws:userid}}/report.json"
    forbidden = outside_results(bucket, access.data_bucket, access.write)
    writable = [location for location in access.write if location not in forbidden]
    readable = list(dict.fromkeys([*access.read, *writable]))
    objects = [f"{s3}{location}/*" for location in writable]
    of_account = {"Condition": {"StringEquals": {"aws:ResourceAccount": access.account}}}
    statements = [
        _statement("ReadTheBuckets", ["s3:GetObject"], [f"{s3}{name}/*" for name in own]) | of_account,
        _statement("ListTheBuckets", ["s3:ListBucket"], [f"{s3}{name}" for name in own]) | of_account,
        _statement("ReportItself", ["s3:PutObject"], [own_report]) | of_account,
    ]
    if readable:
        further = [f"{s3}{location}/*" for location in readable]
        statements.append(_statement("ReadFurtherData", ["s3:GetObject"], further))
    statements += _list_statements(s3, readable)
    if writable:
        statements.append(_statement("WriteFurtherData", _WRITE, objects))
    denied: Statement = {"Sid": "WriteNothingElse", "Effect": "Deny", "Action": _WRITE}
    return [*statements, {**denied, "NotResource": [own_report, *objects]}]


def _list_statements(s3: str, locations: Iterable[str]) -> list[Statement]:
    """Return one statement for each bucket: the prefixes of one must not open another. A prefix ends with a slash, as
    S3 compares text: `imagenet` would list `imagenet-secret/` too."""
    prefixes: dict[str, list[str]] = {}
    for location in locations:
        bucket, _slash, prefix = location.partition("/")
        prefixes.setdefault(bucket, []).append(prefix)
    statements = []
    for number, (bucket, of_bucket) in enumerate(prefixes.items(), 1):
        statement = _statement(f"ListFurtherBucket{number}", ["s3:ListBucket"], [f"{s3}{bucket}"])
        if all(of_bucket):
            statement["Condition"] = {"StringLike": {"s3:prefix": [f"{prefix}/*" for prefix in of_bucket]}}
        statements.append(statement)
    return statements


def lifecycle_statement(role: str, access: MemberAccess) -> Statement:
    """Return the statement for a machine's answers to the launch lifecycle hook of its own group. IAM cannot limit them
    to the machine itself."""
    actions = ["autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"]
    return _statement("AnswerTheLaunchHook", actions, [_group(Names(access.cluster).groups[role], access)])


def master_statements(access: MemberAccess) -> list[Statement]:
    """Return the statements for listing members, assigning ranks, taking the cluster's address, and protecting the
    nodes of a run from scale-in. IAM cannot limit the listing to resources."""
    list_calls = ["autoscaling:DescribeAutoScalingGroups", "ec2:DescribeInstances"]
    conditions = {
        **_of_cluster(access),
        "ForAllValues:StringEquals": {"aws:TagKeys": [RANK_TAG]},
        # ForAllValues is true without any tag key as well.
        "Null": {"aws:TagKeys": "false"},
    }
    return [
        {"Sid": "ListMembers", "Effect": "Allow", "Action": list_calls, "Resource": "*"},
        {
            "Sid": "AssignRanks",
            "Effect": "Allow",
            "Action": "ec2:CreateTags",
            "Resource": f"{_ec2(access)}:instance/*",
            "Condition": conditions,
        },
        address_statement(access),
        _statement(
            "ProtectNodesOfRuns",
            ["autoscaling:SetInstanceProtection"],
            [_group(Names(access.cluster).workers_group, access)],
        ),
    ]


def address_statement(access: MemberAccess) -> Statement:
    """Return the statement for associating the cluster's address with an interface of the cluster."""
    # AWS checks the interface, and the instance only if the call names it.
    resources = [f"{_ec2(access)}:elastic-ip/*", f"{_ec2(access)}:network-interface/*"]
    return _statement("TakeTheAddress", ["ec2:AssociateAddress"], resources) | {"Condition": _of_cluster(access)}


def _ec2(access: MemberAccess) -> str:
    return f"arn:{access.partition}:ec2:{access.region}:{access.account}"


def _of_cluster(access: MemberAccess) -> dict[str, Any]:
    return {"StringEquals": {f"ec2:ResourceTag/{CLUSTER_TAG}": access.cluster}}


def _group(name: str, access: MemberAccess) -> str:
    groups = f"arn:{access.partition}:autoscaling:{access.region}:{access.account}:autoScalingGroup:*"
    return f"{groups}:autoScalingGroupName/{name}"


def _statement(sid: str, actions: list[str], resources: list[str]) -> Statement:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}
