"""What one policy says: parsing, matching, conditions, variables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localcloud.core.caller import Caller
from localcloud.iam import MalformedPolicy, parse_policy
from localcloud.iam.patterns import Pattern, context_of

ROLE_ARN = "arn:aws:iam::123456789012:role/cluster-worker"


def policy(*statements: dict[str, Any], version: str = "2012-10-17") -> Any:
    return parse_policy({"Version": version, "Statement": list(statements)}, name="test")


def allow(action: Any = "*", resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def says(document: Any, action: str, resource: str = "*", **context: Any) -> str:
    return str(document.decide(action, resource, context_of(context)).outcome)


@pytest.mark.parametrize(
    ("pattern", "arn", "matches"),
    [
        ("*", "arn:aws:ec2:us-east-1:1:vpc/vpc-1", True),
        ("*", "*", True),
        ("arn:aws:ec2:*:*:vpc/*", "arn:aws:ec2:us-east-1:1:vpc/vpc-1", True),
        ("arn:aws:ec2:*:*:vpc/*", "*", False),
        ("arn:aws:ec2:*:vpc/*", "arn:aws:ec2:us-east-1:1:vpc/vpc-1", False),  # a * stays within its part
        ("arn:aws:ec2:us-*-1:1:vpc/vpc-1", "arn:aws:ec2:us-east-1:1:vpc/vpc-1", True),
        ("arn:aws:ec2:us-east-1:1:vpc/vpc-?", "arn:aws:ec2:us-east-1:1:vpc/vpc-12", False),
        ("arn:aws:ec2:us-east-1:1:vpc/vpc-1", "arn:aws:ec2:us-east-1:1:vpc/*", False),
        ("arn:aws:s3:::b/*", "arn:aws:s3:::b/a/b/c", True),
        ("arn:aws:s3:::b", "arn:aws:s3:::b/a", False),
        ("arn:aws:s3:::B", "arn:aws:s3:::b", False),
        ("arn:aws:s3*", "arn:aws:s3:::b", True),
        ("arn:aws:s3", "arn:aws:s3:::b", False),
        ("arn:*:ec2:*:*:*", "arn:aws-cn:ec2:cn-north-1:1:vpc/v", True),
        (
            "arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/c-*",
            "arn:aws:autoscaling:us-east-1:1:autoScalingGroup:0a:autoScalingGroupName/c-workers",
            True,
        ),
        ("arn:aws:s3:::b/${*}", "arn:aws:s3:::b/x", False),
        ("arn:aws:s3:::b/${*}", "arn:aws:s3:::b/*", True),
    ],
)
def test_arns_match_part_by_part(pattern: str, arn: str, matches: bool) -> None:
    assert Pattern.parse(pattern).matches_arn(arn, {}) is matches


@pytest.mark.parametrize(
    ("operator", "condition", "value", "holds"),
    [
        ("StringEquals", "a", "a", True),
        ("StringEquals", "a", "A", False),
        ("StringEquals", "a*", "ab", False),
        ("StringEquals", ["a", "b"], "b", True),
        ("StringEquals", "a", None, False),
        ("StringEqualsIfExists", "a", None, True),
        ("StringEqualsIfExists", "a", "b", False),
        ("StringNotEquals", "a", "b", True),
        ("StringNotEquals", ["a", "b"], "b", False),
        ("StringNotEquals", "a", None, True),
        ("StringEqualsIgnoreCase", "a", "A", True),
        ("StringNotEqualsIgnoreCase", "a", "A", False),
        ("StringLike", "a*", "ab", True),
        ("StringLike", "a?", "abc", False),
        ("StringNotLike", "a*", "ab", False),
        ("StringNotLike", "a*", None, True),
        ("stringequals", "a", "a", True),
        ("ArnLike", "arn:aws:iam::*:role/*", ROLE_ARN, True),
        ("ArnEquals", "arn:aws:iam::*:role/*", ROLE_ARN, True),
        ("ArnNotEquals", ROLE_ARN, ROLE_ARN, False),
        ("ArnNotLike", "arn:aws:iam::*:user/*", ROLE_ARN, True),
        ("Bool", "true", "true", True),
        ("Bool", True, "false", False),
        ("Bool", "false", None, False),
        ("BoolIfExists", "false", None, True),
        ("Null", "true", None, True),
        ("Null", "true", "x", False),
        ("Null", "false", "x", True),
        ("Null", "false", None, False),
        ("NumericEquals", 5, "5.0", True),
        ("NumericNotEquals", "5", "5", False),
        ("NumericLessThan", "5", "4", True),
        ("NumericLessThanEquals", "5", "6", False),
        ("NumericGreaterThan", "5", "5", False),
        ("NumericGreaterThanEquals", "5", "5", True),
        ("NumericEquals", "5", "five", False),
        ("DateGreaterThan", "2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z", True),
        ("DateLessThan", "2026-01-01T00:00:00Z", "1800000000", False),
        ("DateEquals", "2026-01-01", "2026-01-01T00:00:00Z", True),
        ("DateNotEquals", "2026-01-01", "2026-01-01T00:00:00Z", False),
        ("DateLessThanEquals", "2026-01-01", "2026-01-01T00:00:00Z", True),
        ("DateGreaterThanEquals", "2026-01-01", "2025-01-01T00:00:00Z", False),
        ("IpAddress", "10.0.0.0/8", "10.1.2.3", True),
        ("IpAddress", "10.0.0.1", "10.0.0.2", False),
        ("IpAddress", "2001:db8::/32", "10.1.2.3", False),
        ("NotIpAddress", "10.0.0.0/8", "10.1.2.3", False),
        ("NotIpAddress", "10.0.0.0/8", "192.0.2.1", True),
        ("ForAllValues:StringEquals", ["a", "b"], ["a"], True),
        ("ForAllValues:StringEquals", ["a", "b"], ["a", "c"], False),
        ("ForAllValues:StringEquals", ["a"], None, True),
        ("ForAllValues:StringLike", "a*", ["ab", "ac"], True),
        ("ForAllValues:StringNotEquals", "a", ["b", "a"], False),
        ("ForAnyValue:StringEquals", ["a", "b"], ["c", "b"], True),
        ("ForAnyValue:StringEquals", ["a", "b"], ["c"], False),
        ("ForAnyValue:StringEquals", ["a"], None, False),
        ("ForAnyValue:StringNotEquals", ["a"], ["a", "b"], True),
        ("ForAnyValue:StringNotEquals", ["a"], None, False),
        ("ForAnyValue:StringEqualsIfExists", ["a"], None, True),
        ("StringEquals", "a", ["b", "a"], True),
        ("StringNotEquals", "a", ["b", "a"], False),
    ],
)
def test_each_operator(operator: str, condition: Any, value: Any, holds: bool) -> None:
    document = policy(allow(Condition={operator: {"x:Key": condition}}))
    context = {} if value is None else {"X:kEY": value}
    assert says(document, "ec2:RunInstances", **context) == ("allowed" if holds else "implicitly denied")


def test_all_operators_and_all_keys_must_hold() -> None:
    document = policy(allow(Condition={"StringEquals": {"a:b": "1", "a:c": "2"}, "Bool": {"a:d": "true"}}))
    assert says(document, "x:y", **{"a:b": "1", "a:c": "2", "a:d": "true"}) == "allowed"
    assert says(document, "x:y", **{"a:b": "1", "a:c": "3", "a:d": "true"}) == "implicitly denied"
    assert says(document, "x:y", **{"a:b": "1", "a:c": "2", "a:d": "false"}) == "implicitly denied"


def test_the_tag_part_of_a_condition_key_has_no_case() -> None:
    document = policy(allow(Condition={"StringEquals": {"aws:ResourceTag/DeepLearning:Cluster": "one"}}))
    assert says(document, "ec2:StopInstances", **{"aws:ResourceTag/deeplearning:cluster": "one"}) == "allowed"
    assert says(document, "ec2:StopInstances", **{"aws:ResourceTag/deeplearning:cluster": "One"}) == "implicitly denied"


@pytest.mark.parametrize(
    ("statement", "action", "outcome"),
    [
        (allow("ec2:RunInstances"), "EC2:runinstances", "allowed"),
        (allow(["ec2:Describe*", "s3:*"]), "ec2:DescribeVpcs", "allowed"),
        (allow("ec2:Describe?pcs"), "ec2:DescribeVpcs", "allowed"),
        (allow("ec2:Describe*"), "ec2:CreateVpc", "implicitly denied"),
        ({"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}, "ec2:CreateVpc", "allowed"),
        ({"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}, "iam:GetRole", "implicitly denied"),
    ],
)
def test_actions(statement: dict[str, Any], action: str, outcome: str) -> None:
    assert says(policy(statement), action) == outcome


def test_not_resource() -> None:
    document = policy({"Effect": "Allow", "Action": "*", "NotResource": "arn:aws:s3:::secret/*"})
    assert says(document, "s3:GetObject", "arn:aws:s3:::open/a") == "allowed"
    assert says(document, "s3:GetObject", "arn:aws:s3:::secret/a") == "implicitly denied"


def test_explicit_deny_beats_allow_and_says_who() -> None:
    deny = {"Sid": "NotThese", "Effect": "Deny", "Action": "ec2:Terminate*", "Resource": "*"}
    decision = policy(allow(), deny).decide("ec2:TerminateInstances", "*", {})
    assert (decision.outcome, decision.policy, decision.sid) == ("explicitly denied", "test", "NotThese")
    assert policy(allow(), deny).decide("ec2:StopInstances", "*", {}).sid == "1"


INSTANCE = Caller.session(ROLE_ARN, "AROAEXAMPLE", "i-0123")


@pytest.mark.parametrize(
    ("resource", "asked", "outcome"),
    [
        ("arn:aws:s3:::b/members/${aws:userid}/*", "arn:aws:s3:::b/members/AROAEXAMPLE:i-0123/report.json", "allowed"),
        ("arn:aws:s3:::b/members/${aws:userid}/*", "arn:aws:s3:::b/members/AROAEXAMPLE:i-9/r", "implicitly denied"),
        ("arn:aws:s3:::b/${AWS:UserId}", "arn:aws:s3:::b/AROAEXAMPLE:i-0123", "allowed"),
        ("arn:aws:s3:::b/${aws:username}/*", "arn:aws:s3:::b//x", "implicitly denied"),  # sessions have no user name
        ("arn:aws:s3:::b/${aws:username, 'role'}/*", "arn:aws:s3:::b/role/x", "allowed"),
        ("arn:aws:s3:::b/${aws:PrincipalTag/team}/*", "arn:aws:s3:::b/blue/x", "implicitly denied"),
        ("arn:aws:s3:::b/${$}", "arn:aws:s3:::b/$", "allowed"),
        (["arn:aws:s3:::b/*", "arn:aws:s3:::b/${aws:username}"], "arn:aws:s3:::b/x", "implicitly denied"),
    ],
)
def test_policy_variables(resource: Any, asked: str, outcome: str) -> None:
    assert says(policy(allow("s3:*", resource)), "s3:PutObject", asked, **INSTANCE.context()) == outcome


def test_what_a_variable_stands_for_is_no_wildcard() -> None:
    odd = Caller.user("arn:aws:iam::1:user/*", "AIDA", tags={"team": "*"})
    document = policy(allow("s3:*", ["arn:aws:s3:::b/${aws:username}/*", "arn:aws:s3:::b/${aws:PrincipalTag/team}/*"]))
    assert says(document, "s3:GetObject", "arn:aws:s3:::b/other/x", **odd.context()) == "implicitly denied"
    assert says(document, "s3:GetObject", "arn:aws:s3:::b/*/x", **odd.context()) == "allowed"


def test_variables_in_conditions_and_only_single_values() -> None:
    document = policy(allow(Condition={"StringEquals": {"aws:ResourceTag/owner": "${aws:PrincipalTag/owner}"}}))
    mine = {"aws:ResourceTag/owner": "me", "aws:PrincipalTag/owner": "me"}
    assert says(document, "x:y", **mine) == "allowed"
    assert says(document, "x:y", **mine | {"aws:PrincipalTag/owner": "you"}) == "implicitly denied"
    assert says(document, "x:y", **mine | {"aws:PrincipalTag/owner": ["me"]}) == "implicitly denied"


def test_the_old_version_knows_no_variables() -> None:
    document = policy(allow("s3:*", "arn:aws:s3:::b/${aws:userid}"), version="2008-10-17")
    assert says(document, "s3:GetObject", "arn:aws:s3:::b/x", **{"aws:userid": "x"}) == "implicitly denied"
    assert says(document, "s3:GetObject", "arn:aws:s3:::b/${aws:userid}", **{"aws:userid": "x"}) == "allowed"


def test_one_statement_may_stand_without_a_list_and_as_text() -> None:
    text = json.dumps({"Version": "2012-10-17", "Statement": allow("ec2:*")})
    assert says(parse_policy(text), "ec2:CreateVpc") == "allowed"


PRINCIPAL = {"AWS": "arn:aws:iam::123456789012:root"}


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ("{", "identity"),
        ("[]", "identity"),
        ({"Version": "2012-10-17"}, "identity"),
        ({"Version": "2012-10-17", "Statement": []}, "identity"),
        ({"Version": "2020-01-01", "Statement": [allow()]}, "identity"),
        ({"Version": "2012-10-17", "Statement": [allow()], "Extra": 1}, "identity"),
        (allow(Effect="Maybe"), "identity"),
        (allow(Colour="red"), "identity"),
        ({"Effect": "Allow", "Action": "*"}, "identity"),
        ({"Effect": "Allow", "Resource": "*"}, "identity"),
        ({"Action": "*", "Resource": "*"}, "identity"),
        (allow("RunInstances"), "identity"),
        (allow("*:Run"), "identity"),
        (allow(resource="my-bucket"), "identity"),
        (allow(resource=["arn:aws:s3:::b", 5]), "identity"),
        (allow(NotAction="ec2:*"), "identity"),
        (allow(Sid="not ok"), "identity"),
        (allow(Principal="*"), "identity"),
        (allow(Condition={"StringIs": {"a:b": "c"}}), "identity"),
        (allow(Condition={"ForEveryValue:StringEquals": {"a:b": "c"}}), "identity"),
        (allow(Condition={"NullIfExists": {"a:b": "true"}}), "identity"),
        (allow(Condition={"ForAnyValue:Null": {"a:b": "true"}}), "identity"),
        (allow(Condition={"NumericLessThan": {"a:b": "many"}}), "identity"),
        (allow(Condition={"DateLessThan": {"a:b": "soon"}}), "identity"),
        (allow(Condition={"IpAddress": {"a:b": "10.0.0.0/99"}}), "identity"),
        (allow(Condition={"Bool": {"a:b": "perhaps"}}), "identity"),
        (allow(Condition={"StringEquals": {"a:b": []}}), "identity"),
        (allow(Condition={"StringEquals": {"a:b": {"c": "d"}}}), "identity"),
        (allow(Condition={"StringEquals": "a"}), "identity"),
        (allow(Condition=["a"]), "identity"),
        (allow(), "resource"),
        (allow(Principal={"Everyone": "x"}), "resource"),
        (allow(Principal={"AWS": "arn:aws:iam::1:user/*"}), "resource"),
        (allow("sts:AssumeRole", Principal=PRINCIPAL), "trust"),
    ],
)
def test_malformed_policies_are_refused_when_they_are_read(document: Any, kind: Any) -> None:
    whole = isinstance(document, str) or "Statement" in document or "Version" in document
    with pytest.raises(MalformedPolicy):
        parse_policy(document if whole else {"Version": "2012-10-17", "Statement": document}, kind=kind)


@pytest.mark.parametrize("part", ["region", "account"])
def test_a_variable_before_the_fifth_colon_of_a_resource_is_refused(part: str) -> None:
    parts = {"region": "us-east-1", "account": "123456789012", part: "${aws:RequestedRegion}"}
    with pytest.raises(MalformedPolicy, match="legacy parsing"):
        policy(allow(resource=f"arn:aws:ec2:{parts['region']}:{parts['account']}:vpc/*"))
    # There it is text in the old version, and in a condition it may be anywhere.
    policy(allow(resource="arn:aws:ec2:${aws:RequestedRegion}:1:vpc/*"), version="2008-10-17")
    policy(allow(Condition={"ArnEquals": {"ec2:Vpc": "arn:aws:ec2:${aws:RequestedRegion}:1:vpc/v"}}))


def test_two_statements_of_one_name_are_refused() -> None:
    with pytest.raises(MalformedPolicy, match="unique"):
        policy(allow(Sid="A"), allow(Sid="A"))
