"""Write docs/iam/members-boundary.json, the permissions boundary of all members of an account's clusters.

.venv/bin/python tools/members_boundary.py

With options it prints a boundary that also allows an account's own buckets, keys, subnets and security groups, and
does not write the file:

.venv/bin/python tools/members_boundary.py --read datasets/imagenet --write results > boundary.json

The boundary is made of the members' policies. What these allow within a cluster may be wider in it: it separates
clusters from each other and from the rest of the account, and has to fit into one managed policy.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import (  # noqa: E402
    CLUSTER_TAG,
    EMR_NODE,
    EMR_SERVICE,
    MASTER,
    WORKER,
    Names,
)
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.member_policy import (  # noqa: E402
    RESULTS,
    WRITE,
    MemberAccess,
    policy_for,
)

DOCUMENT = ROOT / "docs/iam/members-boundary.json"
CLUSTER, REGION, ACCOUNT = "<cluster>", "<region>", "<account>"
"""Placeholders, as in the other policies of docs/iam. The first two become policy variables."""
CLUSTER_VARIABLE = f"${{aws:PrincipalTag/{CLUSTER_TAG}}}"
REGION_VARIABLE = "${aws:RequestedRegion}"
MOST_CHARACTERS = 6144
"""of a managed policy in AWS, without white space"""

OF_CLUSTER = {"StringEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": CLUSTER}}
IN_CREATING_CALL = {
    "StringEquals": {f"aws:RequestTag/{CLUSTER_TAG}": CLUSTER},
    "Null": {"ec2:CreateAction": "false"},
}
NOT_TO_OTHERS = {"StringEqualsIfExists": {f"aws:RequestTag/{CLUSTER_TAG}": CLUSTER}}
S3_READS = frozenset({"s3:GetObject", "s3:ListBucket"})

Statement = dict[str, Any]
Condition = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Additions:
    """What an account's clusters use in addition to their own resources."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    kms_keys: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Allowed:
    sid: str
    actions: frozenset[str]
    resources: frozenset[str]
    condition: Condition


def boundary(additions: Additions | None = None) -> dict[str, Any]:
    """Return the boundary, with a placeholder for the account."""
    allowed: list[Allowed] = []
    for statement in member_statements(additions or Additions()):
        # A boundary denies whatever it does not allow.
        if statement["Effect"] == "Allow":
            allowed = with_entry(allowed, relaxed(statement))
    statements = [only_roles_of_the_cluster(), *(_as_statement(entry) for entry in allowed)]
    return {"Version": "2012-10-17", "Statement": [with_variables(statement) for statement in statements]}


def member_statements(additions: Additions) -> list[Statement]:
    """Return the statements of all roles, with all that the settings of a cluster can add."""
    access = MemberAccess(
        cluster=CLUSTER,
        region=REGION,
        account=ACCOUNT,
        bucket=Names(CLUSTER, ACCOUNT, REGION).bucket,
        read=additions.read,
        write=additions.write,
        kms_keys=additions.kms_keys,
        emr_subnets=additions.subnets,
        emr_security_groups=additions.security_groups,
        idle_end=True,
        workers_associate=True,
    )
    statements: list[Statement] = []
    for role in (MASTER, WORKER, EMR_NODE, EMR_SERVICE):
        statements += policy_for(role, access)["Statement"]
    # cluster_s3_write may name this prefix of the cluster's own bucket. Its objects are read like all others there.
    results = f"arn:aws:s3:::{access.bucket}/{RESULTS}/*"
    statements.append({"Sid": "WriteResults", "Effect": "Allow", "Action": WRITE, "Resource": [results]})
    return statements


def only_roles_of_the_cluster() -> Statement:
    """Return the statement that ties the tag to the name of the role, and both to the region of the call.

    The tag alone does not identify a cluster: a person who assumes a role can give the session other tags, if the
    role's trust policy allows sts:TagSession. The name of an assumed role cannot be changed.

    iam:PassRole is not a call of its own, and AWS does not document which region its check has. It has no effect
    without another call, which this statement denies.
    """
    names = Names(CLUSTER, ACCOUNT, REGION)
    roles = [f"arn:aws:iam::{ACCOUNT}:role/{names.identity(role)}" for role in (EMR_SERVICE, MASTER, EMR_NODE, WORKER)]
    return {
        "Sid": "OnlyRolesOfTheCluster",
        "Effect": "Deny",
        "NotAction": "iam:PassRole",
        "Resource": "*",
        "Condition": {"StringNotEquals": {"aws:PrincipalArn": roles}},
    }


# Make the statements of members wider, within the cluster


def relaxed(statement: Statement) -> Allowed:
    """Return a statement without limits that do not separate clusters."""
    sid = statement["Sid"]
    resources = frozenset(statement["Resource"])
    condition = relaxed_condition(statement.get("Condition", {}))
    if all("autoScalingGroupName/" in resource for resource in resources):
        # The groups' names identify the cluster. Sizes are limited by the role's own policy.
        sid, condition = "UseTheGroups", {}
    if contains(condition, OF_CLUSTER):
        # The tag identifies the cluster, on resources of all kinds.
        sid = "TagWhatBearsTheTag" if contains(condition, NOT_TO_OTHERS) else "UseWhatBearsTheTag"
        resources = frozenset({"*"})
    if condition == IN_CREATING_CALL:
        resources = frozenset({f"arn:aws:ec2:{REGION}:{ACCOUNT}:*"})
    if resources == {"*"} and not condition:
        sid = "See"
    return Allowed(sid, frozenset(statement["Action"]), resources, condition)


def relaxed_condition(condition: Condition) -> Condition:
    by_key = {key: (operator, value) for operator, keys in condition.items() for key, value in keys.items()}
    if "ec2:CreateAction" in by_key:
        return IN_CREATING_CALL
    if "aws:TagKeys" in by_key:
        # In the place of the tags that may be set: not another cluster's tag.
        return {**OF_CLUSTER, **NOT_TO_OTHERS}
    if by_key.get(f"ec2:ResourceTag/{CLUSTER_TAG}") == ("StringEquals", CLUSTER):
        return OF_CLUSTER
    if list(by_key) == ["aws:ResourceAccount"]:
        # It protects members from a bucket of that name in another account. It does not separate clusters.
        return {}
    return condition


def contains(condition: Condition, part: Condition) -> bool:
    return all(condition.get(operator) == keys for operator, keys in part.items())


# Join statements


def with_entry(allowed: Sequence[Allowed], new: Allowed) -> list[Allowed]:
    """Return the entries with another one, which is joined with one that it fits."""
    result: list[Allowed] = []
    joined = new
    for entry in allowed:
        if can_be_joined(entry, joined):
            joined = Allowed(
                entry.sid,
                entry.actions | joined.actions,
                entry.resources | joined.resources,
                entry.condition,
            )
        else:
            result.append(entry)
    return [*result, joined]


def can_be_joined(one: Allowed, other: Allowed) -> bool:
    """Return whether one statement allows what these two allow, and no more."""
    if one.condition != other.condition:
        return False
    # ListBucket has no objects, and GetObject no buckets.
    both_read = one.actions <= S3_READS and other.actions <= S3_READS
    return one.actions == other.actions or one.resources == other.resources or both_read


# Write them


def _as_statement(entry: Allowed) -> Statement:
    statement: Statement = {
        "Sid": entry.sid,
        "Effect": "Allow",
        "Action": _one_or_all(entry.actions),
        "Resource": _one_or_all(entry.resources),
    }
    if entry.condition:
        statement["Condition"] = entry.condition
    return statement


def _one_or_all(values: Iterable[str]) -> str | list[str]:
    ordered = sorted(values)
    return ordered[0] if len(ordered) == 1 else ordered


def with_variables(statement: Statement) -> Statement:
    """Return a statement with policy variables for cluster and region. IAM replaces none before the fifth colon of a
    resource, so the region there is `*`: the first statement limits it."""
    resources = statement["Resource"]
    if isinstance(resources, str):
        without_regions: Any = _without_region(resources)
    else:
        without_regions = [_without_region(resource) for resource in resources]
    text = json.dumps({**statement, "Resource": without_regions})
    replaced = text.replace(CLUSTER, CLUSTER_VARIABLE).replace(REGION, REGION_VARIABLE)
    result: Statement = json.loads(replaced)
    return result


def _without_region(arn: str) -> str:
    parts = arn.split(":", 5)
    if len(parts) == 6 and parts[3] == REGION:
        parts[3] = "*"
    return ":".join(parts)


def text_of(policy: dict[str, Any]) -> str:
    text = json.dumps(policy, indent=4) + "\n"
    size = len(re.sub(r"\s", "", text.replace(ACCOUNT, "123456789012")))
    if size > MOST_CHARACTERS:
        message = f"The boundary has {size} characters, and a managed policy of AWS at most {MOST_CHARACTERS}"
        raise SystemExit(f"{message}. Name buckets instead of prefixes, or fewer of them.")
    return text


def parse(arguments: Sequence[str]) -> Additions:
    parser = argparse.ArgumentParser(description="Write or print the permissions boundary of members.")
    parser.add_argument("--read", action="append", default=[], help="a bucket or bucket/prefix of cluster_s3_read")
    parser.add_argument("--write", action="append", default=[], help="a bucket or bucket/prefix of cluster_s3_write")
    parser.add_argument("--kms-key", action="append", default=[], help="the ARN of a key of cluster_s3_kms_keys")
    parser.add_argument("--subnet", action="append", default=[], help="the id of your own subnet, for EMR")
    parser.add_argument("--security-group", action="append", default=[], help="the id of your own group, for EMR")
    options = parser.parse_args(arguments)
    return Additions(
        read=tuple(location.strip("/") for location in options.read),
        write=tuple(location.strip("/") for location in options.write),
        kms_keys=tuple(options.kms_key),
        subnets=tuple(options.subnet),
        security_groups=tuple(options.security_group),
    )


def main(arguments: Sequence[str]) -> None:
    additions = parse(arguments)
    text = text_of(boundary(additions))
    if additions == Additions():
        DOCUMENT.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main(sys.argv[1:])
