# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The IAM policies of a cluster's members.

A location is a bucket or a bucket/prefix, without a slash at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..contract.names import CLUSTER_TAG, EMR_LOGS, EMR_NODE, EMR_SERVICE, MASTER, RANK_TAG, RUN_TAG, Names

RESULTS = "results"
"""The prefix of the cluster's own bucket that its members may be allowed to write."""
WRITE = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
"""What members may do with objects in the locations that they may write."""

Statement = dict[str, Any]
Condition = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class MemberAccess:
    """What the policies of a cluster's members depend on."""

    cluster: str
    region: str
    account: str
    bucket: str
    read: Sequence[str] = ()
    write: Sequence[str] = ()
    kms_keys: Sequence[str] = ()
    """The ARNs of the keys that encrypt these locations."""
    logs: str = ""
    """Where EMR's machines store EMR's logs. Empty: their prefix of the cluster's own bucket."""
    emr_subnets: Sequence[str] = ()
    """The user's own subnets that EMR launches machines in. Those of the cluster have its tag."""
    emr_security_groups: Sequence[str] = ()
    """The user's own security groups of EMR's machines. Those of the cluster have its tag."""
    partition: str = "aws"
    idle_end: bool = False
    """Whether the master postpones the scheduled end of the machines while they work."""
    workers_associate: bool = False
    """Whether workers associate the address of a new master, which gets none at its launch."""

    @property
    def data_bucket(self) -> str:
        return Names(self.cluster, self.account, self.region).data_bucket


def policy_for(role: str, access: MemberAccess) -> dict[str, Any]:
    if role == EMR_SERVICE:
        statements = service_statements(access)
    elif role == EMR_NODE:
        logs = access.logs or f"{access.bucket}/{EMR_LOGS}"
        statements = [*bucket_statements(access, [logs]), *emr_node_statements(access)]
    else:
        statements = [*bucket_statements(access), lifecycle_statement(role, access)]
        if role == MASTER:
            statements += master_statements(access)
        elif access.workers_associate:
            find_calls = ["autoscaling:DescribeAutoScalingGroups", "ec2:DescribeAddresses", "ec2:DescribeInstances"]
            statements += [_statement("FindTheMaster", find_calls, ["*"]), address_statement(access)]
    return {"Version": "2012-10-17", "Statement": statements}


def outside(prefix: str, bucket: str, data_bucket: str, locations: Iterable[str]) -> list[str]:
    """Return the locations where members must not write: all in the bucket of data sets, which other clusters read, and
    those in the cluster's own that are not below `prefix`. It holds the reports of other members, and the
    bundles that nodes run as root."""
    own = f"{bucket}/{prefix}"
    return [
        location
        for location in locations
        if location.split("/")[0] in (bucket, data_bucket) and location != own and not location.startswith(f"{own}/")
    ]


def bucket_statements(access: MemberAccess, logs: Sequence[str] = ()) -> list[Statement]:
    """Return the statements for the cluster's own bucket, for that of data sets, and for the further locations. `logs`
    are only written.

    Names of buckets can be predicted, so one that another account has taken is neither read nor written. The last
    statement denies all other writing, regardless of other policies of the role: a report is trusted because only its
    own member can write to its location.
    """
    bucket, s3 = access.bucket, f"arn:{access.partition}:s3:::"
    own = (bucket, access.data_bucket)
    # The ids of the role and of the instance, which are different for each member.
    own_report = f"{s3}{bucket}/members/${{aws:userid}}/report.json"
    forbidden = outside(RESULTS, bucket, access.data_bucket, access.write)
    writable = [location for location in access.write if location not in forbidden]
    readable = list(dict.fromkeys([*access.read, *writable]))
    objects = [f"{s3}{location}/*" for location in writable]
    forbidden_logs = outside(EMR_LOGS, bucket, access.data_bucket, logs)
    log_objects = [f"{s3}{location}/*" for location in logs if location not in forbidden_logs]
    of_account = {"StringEquals": {"aws:ResourceAccount": access.account}}
    statements = [
        _statement("ReadTheBuckets", ["s3:GetObject"], [f"{s3}{name}/*" for name in own], of_account),
        _statement("ListTheBuckets", ["s3:ListBucket"], [f"{s3}{name}" for name in own], of_account),
        _statement("ReportItself", ["s3:PutObject"], [own_report], of_account),
    ]
    if readable:
        further = [f"{s3}{location}/*" for location in readable]
        statements.append(_statement("ReadFurtherData", ["s3:GetObject"], further))
    statements += _list_statements(s3, readable)
    if writable:
        statements.append(_statement("WriteFurtherData", WRITE, objects))
    if access.kms_keys:
        # S3 asks for a new key of data for each object that it stores.
        use = ["kms:Decrypt", *(["kms:GenerateDataKey"] if writable else [])]
        through_s3 = {"StringEquals": {"kms:ViaService": f"s3.{access.region}.amazonaws.com"}}
        statements.append(_statement("UseKeysOfFurtherData", use, list(access.kms_keys), through_s3))
    if log_objects:
        statements.append(_statement("StoreLogs", ["s3:PutObject"], log_objects, of_account))
    denied: Statement = {"Sid": "WriteNothingElse", "Effect": "Deny", "Action": WRITE}
    return [*statements, {**denied, "NotResource": [own_report, *objects, *log_objects]}]


def _list_statements(s3: str, locations: Iterable[str]) -> list[Statement]:
    """Return one statement for each bucket: the prefixes of one must not open another. A prefix ends with a slash, as
    S3 compares text: `imagenet` would list `imagenet-secret/` too."""
    prefixes: dict[str, list[str]] = {}
    for location in locations:
        bucket, _slash, prefix = location.partition("/")
        prefixes.setdefault(bucket, []).append(prefix)
    statements = []
    for number, (bucket, of_bucket) in enumerate(prefixes.items(), 1):
        below = {"StringLike": {"s3:prefix": [f"{prefix}/*" for prefix in of_bucket]}} if all(of_bucket) else None
        statements.append(_statement(f"ListFurtherBucket{number}", ["s3:ListBucket"], [f"{s3}{bucket}"], below))
    return statements


def lifecycle_statement(role: str, access: MemberAccess) -> Statement:
    """Return the statement for a machine's answers to the launch lifecycle hook of its own group. IAM cannot limit them
    to the machine itself."""
    actions = ["autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"]
    return _statement("AnswerTheLaunchHook", actions, [_group(Names(access.cluster).groups[role], access)])


def master_statements(access: MemberAccess) -> list[Statement]:
    """Return the statements for listing members, assigning ranks, and taking the cluster's address. IAM cannot limit
    the listing to resources."""
    list_calls = [
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeScheduledActions",
        "ec2:DescribeInstances",
    ]
    return [
        _statement("ListMembers", list_calls, ["*"]),
        tag_statement("AssignRanksAndMarkUse", [RANK_TAG, RUN_TAG], access),
        address_statement(access),
        *([end_statement(access)] if access.idle_end else []),
    ]


def end_statement(access: MemberAccess) -> Statement:
    """Return the statement for scheduling the end of the cluster's groups. A call that leaves out a size is denied.

    There is no key for the desired capacity, which cannot exceed MaxSize.
    """
    condition = {"NumericEquals": {"autoscaling:MinSize": "0", "autoscaling:MaxSize": "0"}, **_tagged(access)}
    groups = [_group(name, access) for name in Names(access.cluster).groups.values()]
    return _statement("ScheduleTheEnd", ["autoscaling:PutScheduledUpdateGroupAction"], groups, condition)


def address_statement(access: MemberAccess) -> Statement:
    """Return the statement for associating the cluster's address with an interface of the cluster."""
    # AWS checks the interface, and the instance only if the call names it.
    resources = [f"{_ec2(access)}:elastic-ip/*", f"{_ec2(access)}:network-interface/*"]
    return _statement("TakeTheAddress", ["ec2:AssociateAddress"], resources, _of_cluster(access))


def tag_statement(sid: str, tags: list[str], access: MemberAccess) -> Statement:
    condition = {
        **_of_cluster(access),
        "ForAllValues:StringEquals": {"aws:TagKeys": tags},
        # ForAllValues is true without any tag key as well.
        "Null": {"aws:TagKeys": "false"},
    }
    return _statement(sid, ["ec2:CreateTags"], [f"{_ec2(access)}:instance/*"], condition)


def emr_node_statements(access: MemberAccess) -> list[Statement]:
    """Return the statements for all machines of EMR, which have one role: listing members, assigning ranks, keeping the
    cluster while runs are active, and fetching EMR's own software."""
    actions = [
        "elasticmapreduce:DescribeCluster",
        "elasticmapreduce:GetAutoTerminationPolicy",
        "elasticmapreduce:ListInstances",
        "elasticmapreduce:PutAutoTerminationPolicy",
        "elasticmapreduce:RemoveAutoTerminationPolicy",
    ]
    clusters = f"arn:{access.partition}:elasticmapreduce:{access.region}:{access.account}:cluster/*"
    software = [f"{access.region}.elasticmapreduce", f"repo.{access.region}.emr.amazonaws.com"]
    return [
        _statement("ListMembers", ["ec2:DescribeInstances"], ["*"]),
        tag_statement("AssignRanks", [RANK_TAG], access),
        _statement("SeeAndKeepTheCluster", actions, [clusters], _tagged(access)),
        _statement("FetchEmrItself", ["s3:GetObject"], [f"arn:{access.partition}:s3:::{name}/*" for name in software]),
    ]


def service_statements(access: MemberAccess) -> list[Statement]:
    """Return the statements for EMR itself, which launches machines and opens their security groups in our name. What
    it makes has the cluster's tags.

    EC2 does not ask the operator what EMR launches: without these limits any operator could have EMR start machines in
    the network of another cluster."""
    ec2 = _ec2(access)
    of_cluster, for_cluster = _tagged(access), {"StringEquals": {f"aws:RequestTag/{CLUSTER_TAG}": access.cluster}}
    launch = ["ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:CreateLaunchTemplateVersion", "ec2:RunInstances"]
    see = [
        "ec2:DescribeAccountAttributes",
        "ec2:DescribeCapacityReservations",
        "ec2:DescribeDhcpOptions",
        "ec2:DescribeImages",
        "ec2:DescribeInstances",
        "ec2:DescribeInstanceStatus",
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeKeyPairs",
        "ec2:DescribeLaunchTemplates",
        "ec2:DescribeNetworkAcls",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribePlacementGroups",
        "ec2:DescribeRouteTables",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets",
        "ec2:DescribeVolumes",
        "ec2:DescribeVolumeStatus",
        "ec2:DescribeVpcAttribute",
        "ec2:DescribeVpcEndpoints",
        "ec2:DescribeVpcs",
    ]
    change = [
        "ec2:AuthorizeSecurityGroupEgress",
        "ec2:AuthorizeSecurityGroupIngress",
        "ec2:CreateLaunchTemplateVersion",
        "ec2:DeleteLaunchTemplate",
        "ec2:DeleteNetworkInterface",
        "ec2:ModifyInstanceAttribute",
        "ec2:RevokeSecurityGroupEgress",
        "ec2:RevokeSecurityGroupIngress",
        "ec2:TerminateInstances",
    ]
    own = [f"{ec2}:{kind}/*" for kind in ("instance", "volume", "network-interface", "launch-template")]
    used = [f"{ec2}:{kind}/*" for kind in ("launch-template", "capacity-reservation")]
    any_of = [f"{ec2}:key-pair/*", f"{ec2}:fleet/*", f"arn:{access.partition}:ec2:{access.region}::image/*"]
    # A new interface's ARN ends with a plain `*`. One that exists may be another server's.
    any_of.append(f"{ec2}:network-interface/${{*}}")
    unless_of_others = {"StringEqualsIfExists": of_cluster["StringEquals"]}
    places = [f"{ec2}:subnet/*", f"{ec2}:security-group/*"]
    # Subnets and groups of the user's own do not have the tag.
    users_places = [f"{ec2}:subnet/{subnet}" for subnet in access.emr_subnets]
    users_places += [f"{ec2}:security-group/{group}" for group in access.emr_security_groups]
    place = [*launch, "ec2:CreateNetworkInterface"]
    create = [action.partition(":")[2] for action in place if action != "ec2:CreateLaunchTemplateVersion"]
    creating = {"StringEquals": {**for_cluster["StringEquals"], "ec2:CreateAction": create}}
    as_own = {**of_cluster, "StringEqualsIfExists": for_cluster["StringEquals"]}
    to_machines = {"StringLike": {"iam:PassedToService": "ec2.amazonaws.com*"}}
    node_role = Names(access.cluster, access.account, access.region).identity(EMR_NODE)
    role = f"arn:{access.partition}:iam::{access.account}:role/{node_role}"
    return [
        _statement("See", see, ["*"]),
        _statement("MakeWhatBearsTheTag", place, own, for_cluster),
        _statement("UseWhatBearsTheTag", launch, used, of_cluster),
        _statement("LaunchIn", place, places, of_cluster),
        *([_statement("LaunchInTheUsersOwn", place, users_places)] if users_places else []),
        _statement("LaunchWith", launch, any_of, unless_of_others),
        _statement("ChangeAndDeleteWhatBearsTheTag", change, [f"{ec2}:*"], of_cluster),
        _statement("TagItInTheSameCall", ["ec2:CreateTags"], own, creating),
        _statement("ChangeTagsOfWhatBearsTheTag", ["ec2:CreateTags", "ec2:DeleteTags"], own, as_own),
        _statement("GiveNodesTheirRole", ["iam:PassRole"], [role], to_machines),
    ]


def _ec2(access: MemberAccess) -> str:
    return f"arn:{access.partition}:ec2:{access.region}:{access.account}"


def _of_cluster(access: MemberAccess) -> Condition:
    return {"StringEquals": {f"ec2:ResourceTag/{CLUSTER_TAG}": access.cluster}}


def _group(name: str, access: MemberAccess) -> str:
    groups = f"arn:{access.partition}:autoscaling:{access.region}:{access.account}:autoScalingGroup:*"
    return f"{groups}:autoScalingGroupName/{name}"


def _tagged(access: MemberAccess) -> Condition:
    return {"StringEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": access.cluster}}


def _statement(sid: str, actions: list[str], resources: list[str], condition: Condition | None = None) -> Statement:
    statement = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}
    return {**statement, "Condition": condition} if condition else statement
