"""The scan of IAM policies: it sees all of them, and a new finding fails."""

from __future__ import annotations

import copy
import json

import pytest
import yaml

from tests.lint import policies, reference
from tests.lint.policies import Policy

ACCEPTED = policies.read_accepted(policies.ACCEPTED.read_text(encoding="utf-8"))
ENTRY = {"tool": "parliament", "policy": "p", "finding": "RESOURCE_STAR", "details": ["s3:GetObject"], "reason": "r"}


def with_statement(policy: Policy, action: str, resource: str = "*") -> Policy:
    changed = copy.deepcopy(policy)
    changed["Statement"].append({"Sid": "Added", "Effect": "Allow", "Action": [action], "Resource": resource})
    return changed


def reported(name: str, policy: Policy) -> list[str]:
    """Return the new findings of one policy."""
    accepted = {finding for finding in ACCEPTED if finding.policy == name}
    return policies.new_findings(policies.scan({name: policy}), accepted)


@pytest.mark.parametrize("name", ["operator-identity", "operator-machines", "master", "worker-with-buckets"])
def test_reading_all_parameters_of_the_account_is_reported(name: str) -> None:
    policy = (policies.operator_policies() | policies.member_policies())[name]
    assert reported(name, policy) == []
    lines = reported(name, with_statement(policy, "ssm:GetParameters"))
    assert f"parliament: {name}, Added: RESOURCE_STAR: ssm:GetParameters: new" in " ".join(lines)
    assert f"cloudsplaining: {name}: DataExfiltration: ssm:GetParameters: new" in " ".join(lines)


@pytest.mark.parametrize(
    ("action", "resource", "finding"),
    [
        ("ssm:GetParamters", "*", "parliament: master, Added: UNKNOWN_ACTION"),
        ("s3:GetObject", "arn:aws:s3:::bucket", "parliament: master, Added: RESOURCE_MISMATCH"),
        ("s3:*", "*", "cloudsplaining: master: ServiceWildcard: s3"),
        ("iam:CreateAccessKey", "*", "cloudsplaining: master: PrivilegeEscalation: CreateAccessKey"),
    ],
)
def test_what_else_is_reported(action: str, resource: str, finding: str) -> None:
    lines = reported("master", with_statement(policies.member_policies()["master"], action, resource))
    assert [line for line in lines if line.startswith(finding)], lines


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"Action": ["s3:GetObjekt"]}, "NO_SUCH_ACTION: s3:GetObjekt"),
        ({"Resource": ["arn:aws:s3:::red/*", "arn:aws:s3::red"]}, "NO_SUCH_RESOURCE: arn:aws:s3::red"),
        ({"Action": ["s3:GetObject", "s3:ListAllMyBuckets"]}, "NO_RESOURCE_OF_ACTION: s3:ListAllMyBuckets"),
        ({"Condition": {"StringEquals": {"s3:Prefiks": "x"}}}, "NO_SUCH_CONDITION_KEY: s3:GetObject s3:Prefiks"),
        ({"Condition": {"StringLikeIfExists": {"s3:prefix": "x"}}}, "NO_SUCH_CONDITION_KEY: s3:GetObject s3:prefix"),
        ({"Condition": {"Null": {"s3:prefix": "true"}}}, "NO_SUCH_CONDITION_KEY: s3:GetObject s3:prefix"),
        ({"Condition": {"Bool": {"aws:SecureTransport": "true"}}}, ""),
        ({"Action": ["s3:Get*"], "Condition": {"StringLike": {"s3:ExistingObjectTag/a": "x"}}}, ""),
        ({"Action": "s3:*", "Condition": {"StringLikeIfExists": {"s3:prefix": "x"}}}, ""),
    ],
)
def test_what_the_reference_of_aws_does_not_have_is_reported(change: dict[str, object], finding: str) -> None:
    statement = {"Sid": "Added", "Effect": "Allow", "Action": ["s3:GetObject"], "Resource": "arn:aws:s3:::red/*"}
    actual = policies.scan_resource_policies({"bucket": {"Statement": [statement | change]}})
    assert [str(finding) for finding in actual] == [f"reference: bucket, Added: {finding}"] * bool(finding)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [("a*c", "*b*", True), ("a*", "*z", True), ("abc", "a*d", False), ("*/*", "bucket", False), ("*", "", True)],
)
def test_patterns_that_one_text_matches_overlap(one: str, other: str, overlap: bool) -> None:
    assert reference.overlap(one, other) == reference.overlap(other, one) == overlap


def test_policies_on_resources_are_rendered() -> None:
    rendered = policies.resource_policies()
    assert sorted(rendered) == ["bucket", "file-system", "trust-emr", "trust-master", "trust-node", "trust-worker"]
    assert "{{" not in json.dumps(rendered)
    assert policies.scan_resource_policies(rendered) == set()


def test_the_boundary_is_compared_with_the_reference() -> None:
    (name,) = policies.boundary()
    policy = policies.boundary()[name]
    assert "<" not in json.dumps(policy)
    assert policies.scan_resource_policies({name: policy}) == set()
    policy["Statement"][0]["NotAction"] = "iam:PassRoll"
    (finding,) = policies.scan_resource_policies({name: policy})
    assert str(finding) == "reference: members-boundary, OnlyRolesOfTheCluster: NO_SUCH_ACTION: iam:PassRoll"


def test_members_policies_are_rendered_with_and_without_buckets() -> None:
    rendered = policies.member_policies()
    members = [f"{role}{suffix}" for role in ("master", "node", "worker") for suffix in ("", "-with-buckets")]
    assert sorted(rendered) == ["emr", *members]
    for name, policy in rendered.items():
        text = json.dumps(policy)
        assert "{{" not in text
        assert ("arn:aws:s3:::datasets" in text) == ("arn:aws:s3:::results/red" in text) == ("buckets" in name)
        assert ("ec2:CreateTags" in text) == name.startswith(("master", "node", "emr"))


def test_policies_of_operators_are_filled_in() -> None:
    documents = {path.stem for path in (policies.ROOT / "docs/iam").glob("operator-*.json")}
    assert set(policies.operator_policies()) == documents != set()
    assert "<" not in json.dumps(policies.operator_policies())


@pytest.mark.parametrize(
    "entry", [{**ENTRY, "reason": ""}, {**ENTRY, "details": []}, {**ENTRY, "sid": "See"}, {"tool": "parliament"}]
)
def test_an_entry_that_is_not_whole_is_refused(entry: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="an accepted finding has details, finding, policy, reason, tool"):
        policies.read_accepted(yaml.safe_dump([entry]))
