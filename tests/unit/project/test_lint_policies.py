"""The scan of IAM policies: it sees all of them, and a new finding fails."""

from __future__ import annotations

import copy
import json

import pytest
import yaml

from tests.lint import grammar, policies, reference
from tests.lint.policies import Policy

ACCEPTED = policies.read_accepted(policies.ACCEPTED.read_text(encoding="utf-8"))
ENTRY = {"tool": "permissions", "policy": "p", "finding": "ALL_RESOURCES", "details": ["s3:GetObject"], "reason": "r"}


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
    assert f"permissions: {name}, Added: ALL_RESOURCES: ssm:GetParameters: new" in " ".join(lines)
    assert f"cloudsplaining: {name}: DataExfiltration: ssm:GetParameters: new" in " ".join(lines)


@pytest.mark.parametrize(
    ("action", "resource", "finding"),
    [
        ("ssm:GetParamters", "*", "reference: master, Added: NO_SUCH_ACTION: ssm:GetParamters"),
        ("smm:GetParameters", "*", "reference: master, Added: NO_SUCH_ACTION: smm:GetParameters"),
        ("s3:GetObject", "arn:aws:s3:::bucket", "reference: master, Added: NO_RESOURCE_OF_ACTION: s3:GetObject"),
        (
            "ec2:RunInstances",
            "arn:aws:ec2:*:*:subnet/*",
            "permissions: master: MISSING_RESOURCE: ec2:RunInstances image",
        ),
        ("s3:ListBucket", "arn:aws:s3:::*", "permissions: master, Added: ALL_RESOURCES: s3:ListBucket"),
        ("iam:PassRole", "arn:aws:iam::123456789012:role/x", "permissions: master: MANAGES_PERMISSIONS: iam:PassRole"),
        ("s3:PutBucketPolicy", "arn:aws:s3:::bucket", "permissions: master: MANAGES_PERMISSIONS: s3:PutBucketPolicy"),
        ("sts:AssumeRole", "arn:aws:iam::1:role/x", "permissions: master: RETURNS_CREDENTIALS: sts:AssumeRole"),
        (
            "iam:UpdateAssumeRolePolicy",
            "arn:aws:iam::123456789012:role/x",
            "permissions: master: PRIVILEGE_ESCALATION: UpdateRolePolicyToAssumeIt",
        ),
        ("s3:*", "*", "cloudsplaining: master: ServiceWildcard: s3"),
        ("iam:CreateAccessKey", "*", "cloudsplaining: master: PrivilegeEscalation: CreateAccessKey"),
    ],
)
def test_what_else_is_reported(action: str, resource: str, finding: str) -> None:
    lines = reported("master", with_statement(policies.member_policies()["master"], action, resource))
    assert [line for line in lines if line.startswith(finding)], lines


@pytest.mark.parametrize("element", ["NotAction", "NotResource"])
def test_allowing_all_but_some_is_reported(element: str) -> None:
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::red/*"}
    statement[element] = statement.pop(element.removeprefix("Not"))
    found = policies.scan({"p": {"Version": "2012-10-17", "Statement": [statement]}})
    assert f"permissions: p: ALLOWS_ALL_BUT: {element}" in map(str, found)


@pytest.mark.parametrize(
    ("condition", "limits"),
    [
        ({"StringEquals": {"aws:ResourceTag/cluster": "red"}}, True),
        ({"StringEqualsIfExists": {"aws:ResourceTag/cluster": "red"}}, False),
        ({"StringNotEquals": {"aws:ResourceTag/cluster": "red"}}, False),
        ({"StringEquals": {"aws:RequestedRegion": "us-east-1"}}, False),
    ],
)
def test_only_a_required_tag_limits_an_action_on_all_resources(condition: dict[str, object], limits: bool) -> None:
    statement = {"Effect": "Allow", "Action": "ec2:DeleteVolume", "Resource": "*", "Condition": condition}
    lines = map(str, policies.scan({"p": {"Version": "2012-10-17", "Statement": [statement]}}))
    assert ("permissions: p: ALL_RESOURCES: ec2:DeleteVolume" not in lines) == limits


def test_a_resource_that_another_statement_allows_is_not_missing() -> None:
    arn = "arn:aws:ec2:us-east-1:123456789012"
    statements = [
        {"Effect": "Allow", "Action": "ec2:CreateNetworkInterface", "Resource": f"{arn}:{name}/*"}
        for name in ("network-interface", "subnet")
    ]
    policy = {"Version": "2012-10-17", "Statement": statements}
    assert not [finding for finding in policies.scan({"p": policy}) if finding.finding == "MISSING_RESOURCE"]
    statements[1]["Effect"] = "Deny"
    (missing,) = [finding for finding in policies.scan({"p": policy}) if finding.finding == "MISSING_RESOURCE"]
    assert missing.detail == "ec2:CreateNetworkInterface subnet"


OBJECTS = {"Sid": "Added", "Effect": "Allow", "Action": ["s3:GetObject"], "Resource": "arn:aws:s3:::red/*"}


def forms(policy: Policy) -> list[str]:
    """What is wrong with the form of a policy."""
    found = sorted(policies.scan_resource_policies({"p": policy}))
    return [f"{finding.finding}: {finding.detail}" for finding in found if finding.tool == "grammar"]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, []),
        ({"Version": "2008-10-17"}, ["MALFORMED: Version is 2008-10-17, not 2012-10-17"]),
        ({"Statements": []}, ["MALFORMED: unknown element Statements"]),
        ({"Statement": [OBJECTS, OBJECTS]}, ["MALFORMED: several statements have this Sid"]),
    ],
)
def test_a_malformed_policy_is_reported(change: dict[str, object], wrong: list[str]) -> None:
    assert forms({"Version": "2012-10-17", "Statement": [OBJECTS], **change}) == wrong


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"Efect": "Deny"}, "MALFORMED: unknown element Efect"),
        ({"Sid": "See it"}, "MALFORMED: the Sid has other characters than letters and digits"),
        ({"Effect": "allow"}, "MALFORMED: Effect is allow"),
        ({"NotAction": "s3:PutObject"}, "MALFORMED: both Action and NotAction"),
        ({"NotResource": "*"}, "MALFORMED: both Resource and NotResource"),
        ({"Resource": "red"}, "MALFORMED_ARN: red"),
        ({"Resource": "arn:aws:s3:::"}, "MALFORMED_ARN: arn:aws:s3:::"),
        ({"Resource": "arn:amazon:s3:::red/*"}, "MALFORMED_ARN: arn:amazon:s3:::red/*"),
        ({"Resource": "arn:aws:s3:useast1::red/*"}, "MALFORMED_ARN: arn:aws:s3:useast1::red/*"),
        ({"Resource": "arn:aws:s3::1234:red/*"}, "MALFORMED_ARN: arn:aws:s3::1234:red/*"),
        ({"Resource": "arn:aws:s3:::red/${aws:username}/*"}, None),
        ({"Condition": {"StringEqual": {"aws:userid": "x"}}}, "UNKNOWN_OPERATOR: StringEqual"),
        ({"Condition": {"NullIfExists": {"aws:userid": "true"}}}, "UNKNOWN_OPERATOR: NullIfExists"),
        (
            {"Condition": {"NumericEquals": {"aws:SecureTransport": "1"}}},
            "WRONG_OPERATOR: NumericEquals aws:SecureTransport, whose type is Bool",
        ),
        (
            {"Condition": {"StringEquals": {"aws:SourceIp": "192.0.2.1"}}},
            "WRONG_OPERATOR: StringEquals aws:SourceIp, whose type is IPAddress",
        ),
        (
            {"Condition": {"ForAllValues:StringEquals": {"aws:userid": ["x", "y"]}}},
            "SINGLE_VALUE: ForAllValues:StringEquals aws:userid, which has one value",
        ),
        ({"Condition": {"Bool": {"aws:SecureTransport": "yes"}}}, "WRONG_VALUE: Bool aws:SecureTransport yes"),
        ({"Condition": {"Null": {"aws:userid": "x"}}}, "WRONG_VALUE: Null aws:userid x"),
        ({"Condition": {"IpAddress": {"aws:SourceIp": "192.0.2"}}}, "WRONG_VALUE: IpAddress aws:SourceIp 192.0.2"),
        ({"Condition": {"ArnLike": {"aws:PrincipalArn": "root"}}}, "WRONG_VALUE: ArnLike aws:PrincipalArn root"),
        (
            {"Condition": {"DateLessThan": {"aws:CurrentTime": "soon"}}},
            "WRONG_VALUE: DateLessThan aws:CurrentTime soon",
        ),
        ({"Condition": {"IpAddress": {"aws:SourceIp": ["192.0.2.0/24", "2001:db8::/32"]}}}, None),
        ({"Condition": {"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/x"}}}, None),
        ({"Condition": {"DateLessThan": {"aws:CurrentTime": "2027-01-01T00:00:00Z"}}}, None),
    ],
)
def test_a_malformed_statement_is_reported(change: dict[str, object], wrong: str | None) -> None:
    expected = [wrong] if wrong else []
    assert forms({"Version": "2012-10-17", "Statement": [OBJECTS | change]}) == expected


@pytest.mark.parametrize(
    ("elements", "wrong"),
    [
        (("Action",), "MALFORMED: no Action"),
        (("Resource",), "MALFORMED: neither Resource nor Principal"),
        (("Effect",), "MALFORMED: Effect is None"),
    ],
)
def test_a_missing_element_is_reported(elements: tuple[str, ...], wrong: str) -> None:
    statement = {name: value for name, value in OBJECTS.items() if name not in elements}
    assert next(grammar.findings({"Version": "2012-10-17", "Statement": [statement]}))[1:] == tuple(
        wrong.split(": ", 1)
    )


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"Action": ["s3:GetObjekt"]}, "NO_SUCH_ACTION: s3:GetObjekt"),
        ({"Resource": ["arn:aws:s3:::red/*", "arn:aws:s3::red"]}, "NO_SUCH_RESOURCE: arn:aws:s3::red"),
        ({"Action": ["s3:GetObject", "s3:ListAllMyBuckets"]}, "NO_RESOURCE_OF_ACTION: s3:ListAllMyBuckets"),
        ({"Condition": {"StringEquals": {"s3:Prefiks": "x"}}}, "NO_SUCH_CONDITION_KEY: s3:GetObject s3:Prefiks"),
        ({"Condition": {"StringLikeIfExists": {"s3:prefix": "x"}}}, "NO_SUCH_CONDITION_KEY: s3:GetObject s3:prefix"),
        ({"Condition": {"Null": {"s3:prefix": "true"}}}, "NO_SUCH_CONDITION_KEY: s3:GetObject s3:prefix"),
        (
            {"Condition": {"Bool": {"aws:MultiFactorAuthPresent": "false"}}},
            "NO_SUCH_CONDITION_KEY: s3:GetObject aws:MultiFactorAuthPresent",
        ),
        ({"Condition": {"Bool": {"aws:SecureTransport": "true"}}}, ""),
        ({"Action": ["s3:Get*"], "Condition": {"StringLike": {"s3:ExistingObjectTag/a": "x"}}}, ""),
        ({"Action": "s3:*", "Condition": {"StringLikeIfExists": {"s3:prefix": "x"}}}, ""),
    ],
)
def test_what_the_reference_of_aws_does_not_have_is_reported(change: dict[str, object], finding: str) -> None:
    actual = policies.scan_resource_policies({"bucket": {"Version": "2012-10-17", "Statement": [OBJECTS | change]}})
    expected = [f"reference: bucket, Added: {finding}"] if finding else []
    assert [str(found) for found in actual if found.tool == "reference"] == expected


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [("a*c", "*b*", True), ("a*", "*z", True), ("abc", "a*d", False), ("*/*", "bucket", False), ("*", "", True)],
)
def test_patterns_that_one_text_matches_overlap(one: str, other: str, overlap: bool) -> None:
    assert reference.overlap(one, other) == reference.overlap(other, one) == overlap


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("arn:aws:ec2:us-east-1:123456789012:network-interface/*", "arn:*:ec2:*::image/*", False),
        ("arn:aws:ec2:us-east-1::image/*", "arn:*:ec2:*::image/*", True),
        ("arn:aws:logs:*:*:log-group:a:*", "arn:*:logs:*:*:log-group:*:log-stream:*", True),
        ("arn:aws:s3::red", "arn:*:s3:::*", False),
        ("*", "arn:*:s3:::*", True),
    ],
)
def test_arns_are_compared_part_by_part(one: str, other: str, same: bool) -> None:
    assert reference.same_arn(one, other) == reference.same_arn(other, one) == same


def test_policies_on_resources_are_rendered() -> None:
    rendered = policies.resource_policies()
    assert sorted(rendered) == ["bucket", "file-system", "trust-emr", "trust-master", "trust-node", "trust-worker"]
    assert "{{" not in json.dumps(rendered)
    assert policies.scan_resource_policies(rendered) == set()


def test_the_boundary_is_compared_with_the_reference() -> None:
    (name,) = policies.boundary()
    policy = policies.boundary()[name]
    assert "<" not in json.dumps(policy)
    accepted = policies.scan_resource_policies({name: policy})
    assert accepted == {finding for finding in ACCEPTED if finding.policy == name}
    policy["Statement"][0]["NotAction"] = "iam:PassRoll"
    (finding,) = policies.scan_resource_policies({name: policy}) - accepted
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
    "entry", [{**ENTRY, "reason": ""}, {**ENTRY, "details": []}, {**ENTRY, "sid": "See"}, {"tool": "permissions"}]
)
def test_an_entry_that_is_not_whole_is_refused(entry: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="an accepted finding has details, finding, policy, reason, tool"):
        policies.read_accepted(yaml.safe_dump([entry]))
