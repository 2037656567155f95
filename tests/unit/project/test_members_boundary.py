"""docs/iam/members-boundary.json: it allows what the members' policies allow, and nothing of other clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.member_policy import MemberAccess, policy_for

from localcloud.testing.policies import context_of, decide, parse_policy
from tools import members_boundary
from tools.members_boundary import Additions, boundary, text_of

ACCOUNT, REGION = "123456789012", "eu-west-1"
BUCKET = f"red-{ACCOUNT}-{REGION}"
DATA = f"{ACCOUNT}-{REGION}-deeplearning-data"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
ADDITIONS = Additions(("datasets/imagenet",), ("theirs/out",), (KEY,))
PLACES = Additions(subnets=("subnet-1",), security_groups=("sg-1",))
EC2 = f"arn:aws:ec2:{REGION}:{ACCOUNT}"
SERVICE, NODE = "emr", "node"


@dataclass(frozen=True)
class Caller:
    """A session of a role. Its tags may be other ones than the role's."""

    role: str = f"red-{REGION}-master"
    tags: Mapping[str, str] = field(default_factory=lambda: {"deeplearning:cluster": "red"})
    region: str = REGION
    """where it calls"""

    def context(self) -> dict[str, Any]:
        tags = {f"aws:PrincipalTag/{key}": value for key, value in self.tags.items()}
        return {
            "aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:role/{self.role}",
            "aws:RequestedRegion": self.region,
            "aws:ResourceAccount": ACCOUNT,
            "aws:userid": "AROA:i-01",
            **tags,
        }


RED = Caller()


def decided(
    action: str,
    resource: str,
    caller: Caller = RED,
    additions: Additions | None = None,
    context: Mapping[str, Any] | None = None,
) -> str:
    document = json.dumps(boundary(additions)).replace("<account>", ACCOUNT)
    policy = parse_policy(document)
    return decide([policy], action, resource, context_of(caller.context(), context or {})).outcome


def test_the_committed_document_is_what_the_tool_writes() -> None:
    assert members_boundary.DOCUMENT.read_text(encoding="utf-8") == text_of(boundary())


def test_the_tool_writes_it_only_without_additions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(members_boundary, "DOCUMENT", tmp_path / "boundary.json")
    members_boundary.main(["--read", "datasets/imagenet/", "--write", "theirs/out", "--kms-key", KEY])
    assert json.loads(capsys.readouterr().out) == boundary(ADDITIONS)
    members_boundary.main(["--subnet", "subnet-1", "--security-group", "sg-1"])
    assert json.loads(capsys.readouterr().out) == boundary(PLACES)
    assert not (tmp_path / "boundary.json").exists()
    members_boundary.main([])
    assert json.loads((tmp_path / "boundary.json").read_text(encoding="utf-8")) == boundary()


def test_one_that_is_too_long_is_refused() -> None:
    many = tuple(f"bucket-number-{number}/prefix" for number in range(20))
    with pytest.raises(SystemExit, match="at most 6144"):
        text_of(boundary(Additions(read=many)))


# What the roles' policies allow


def allowed_requests(role: str, access: MemberAccess) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield requests that the policy of a role allows: an action, a resource, and the condition keys."""
    for statement in policy_for(role, access)["Statement"]:
        if statement["Effect"] != "Allow":
            continue
        context = context_for(statement.get("Condition", {}))
        for action in statement["Action"]:
            for resource in statement["Resource"]:
                yield action, one_resource(resource), context


def one_resource(pattern: str) -> str:
    named = pattern.replace("${aws:userid}", "AROA:i-01").replace("${*}", "<star>")
    return named.replace("*", "x").replace("<star>", "*") if named != "*" else "*"


def context_for(condition: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return condition keys that meet a condition."""
    context: dict[str, Any] = {}
    for operator, keys in condition.items():
        for key, values in keys.items():
            if operator == "Null" or operator.endswith("IfExists"):
                continue
            first = values[0] if isinstance(values, list) else values
            context[key] = values if operator.startswith("ForAllValues") else first.replace("*", "x")
    # EC2 sets both keys.
    for key, value in list(context.items()):
        if key.startswith("ec2:ResourceTag/"):
            context[key.replace("ec2:", "aws:")] = value
    return context


@pytest.mark.parametrize("role", ["master", "worker", NODE, SERVICE])
@pytest.mark.parametrize("additions", [Additions(), ADDITIONS, PLACES], ids=["plain", "buckets", "places"])
def test_it_allows_what_the_policies_of_members_allow(role: str, additions: Additions) -> None:
    access = MemberAccess(
        cluster="red",
        region=REGION,
        account=ACCOUNT,
        bucket=BUCKET,
        read=additions.read,
        write=(f"{BUCKET}/results/run1", *additions.write),
        kms_keys=additions.kms_keys,
        emr_subnets=additions.subnets,
        emr_security_groups=additions.security_groups,
        idle_end=True,
        workers_associate=True,
    )
    caller = Caller(role=f"red-{REGION}-{role}")
    document = parse_policy(json.dumps(boundary(additions)).replace("<account>", ACCOUNT))
    requests = list(allowed_requests(role, access))
    assert requests
    for action, resource, context in requests:
        outcome = decide([document], action, resource, context_of(caller.context(), context)).outcome
        assert outcome == "allowed", (action, resource, context)


# What is not the cluster's own


@pytest.mark.parametrize(
    "caller",
    [
        # The session of another cluster's role that its holder has given this cluster's tag.
        Caller(role=f"blue-{REGION}-master"),
        Caller(role=f"red-foo-{REGION}-master"),
        Caller(role=f"red-{REGION}-foo-{REGION}-master"),
        # Another region, other names, and roles without the tag.
        Caller(role="red-us-east-1-master"),
        Caller(region="us-east-1"),
        Caller(role=f"red-{REGION}-admin"),
        Caller(role=f"path/red-{REGION}-master"),
        Caller(tags={}),
        Caller(tags={"team": "red"}),
        Caller(tags={"deeplearning:cluster": "blue"}),
    ],
    ids=repr,
)
def test_only_a_role_of_the_cluster_reaches_it(caller: Caller) -> None:
    tagged = {"aws:ResourceTag/deeplearning:cluster": "red"}
    requests: list[tuple[str, str, dict[str, str]]] = [
        ("s3:GetObject", f"arn:aws:s3:::{BUCKET}/members/a/report.json", {}),
        ("s3:PutObject", f"arn:aws:s3:::{BUCKET}/results/model", {}),
        ("ec2:TerminateInstances", f"{EC2}:instance/i-1", tagged),
        ("autoscaling:PutScheduledUpdateGroupAction", group_arn("red-workers"), {}),
        ("elasticmapreduce:RemoveAutoTerminationPolicy", f"arn:aws:elasticmapreduce:{REGION}:{ACCOUNT}:cluster/j", {}),
    ]
    for action, resource, context in requests:
        assert decided(action, resource, caller, context=context) != "allowed"


def group_arn(name: str) -> str:
    return f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:1:autoScalingGroupName/{name}"


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("s3:GetObject", f"arn:aws:s3:::blue-{ACCOUNT}-{REGION}/x", {}),
        ("s3:ListBucket", f"arn:aws:s3:::blue-{ACCOUNT}-{REGION}", {}),
        ("s3:DeleteObject", f"arn:aws:s3:::blue-{ACCOUNT}-{REGION}/results/x", {}),
        ("s3:PutObject", f"arn:aws:s3:::{DATA}/coco/x", {}),
        ("s3:GetObject", "arn:aws:s3:::datasets/imagenet/x", {}),
        # The cluster's own objects that members do not write.
        ("s3:PutObject", f"arn:aws:s3:::{BUCKET}/lock.json", {}),
        ("s3:PutObject", f"arn:aws:s3:::{BUCKET}/image_machine_lock.json", {}),
        ("s3:PutObject", f"arn:aws:s3:::{BUCKET}/settings.json", {}),
        ("s3:PutObject", f"arn:aws:s3:::{BUCKET}/bundles/a.tar", {}),
        ("s3:PutObject", f"arn:aws:s3:::{BUCKET}/members/AROA:i-02/report.json", {}),
        ("s3:PutBucketPolicy", f"arn:aws:s3:::{BUCKET}", {}),
        ("ec2:TerminateInstances", f"{EC2}:instance/i-1", {"aws:ResourceTag/deeplearning:cluster": "blue"}),
        ("ec2:TerminateInstances", f"{EC2}:instance/i-1", {}),
        ("ec2:CreateTags", f"{EC2}:instance/i-1", {"aws:RequestTag/deeplearning:cluster": "red"}),
        ("ec2:RunInstances", f"{EC2}:network-interface/eni-1", {}),
        ("ec2:RunInstances", f"{EC2}:capacity-reservation/cr-1", {}),
        ("ec2:RunInstances", f"{EC2}:subnet/subnet-1", {}),
        ("ec2:RunInstances", f"{EC2}:image/ami-1", {"aws:ResourceTag/deeplearning:cluster": "blue"}),
        ("autoscaling:PutScheduledUpdateGroupAction", group_arn("blue-workers"), {}),
        ("autoscaling:UpdateAutoScalingGroup", group_arn("red-workers"), {}),
        ("iam:CreateUser", f"arn:aws:iam::{ACCOUNT}:user/eve", {}),
        ("iam:PutRolePolicy", f"arn:aws:iam::{ACCOUNT}:role/red-{REGION}-master", {}),
        ("iam:DeleteRolePermissionsBoundary", f"arn:aws:iam::{ACCOUNT}:role/red-{REGION}-master", {}),
        (
            "iam:PassRole",
            f"arn:aws:iam::{ACCOUNT}:role/blue-{REGION}-node",
            {"iam:PassedToService": "ec2.amazonaws.com"},
        ),
        ("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/admin", {"iam:PassedToService": "ec2.amazonaws.com"}),
        ("sts:AssumeRole", f"arn:aws:iam::{ACCOUNT}:role/admin", {}),
        ("ssm:GetParameter", f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/x", {}),
        ("kms:Decrypt", KEY, {"kms:ViaService": f"s3.{REGION}.amazonaws.com"}),
    ],
)
def test_what_others_have_is_not_reached(action: str, resource: str, context: dict[str, str]) -> None:
    assert decided(action, resource, context=context) != "allowed"


def test_an_account_can_add_its_own_buckets_and_places() -> None:
    assert decided("s3:GetObject", "arn:aws:s3:::datasets/imagenet/x", additions=ADDITIONS) == "allowed"
    assert decided("s3:GetObject", "arn:aws:s3:::datasets/other/x", additions=ADDITIONS) != "allowed"
    assert decided("s3:PutObject", "arn:aws:s3:::theirs/out/x", additions=ADDITIONS) == "allowed"
    service = Caller(role=f"red-{REGION}-emr")
    assert decided("ec2:RunInstances", f"{EC2}:subnet/subnet-1", service, PLACES) == "allowed"
    assert decided("ec2:RunInstances", f"{EC2}:subnet/subnet-2", service, PLACES) != "allowed"
