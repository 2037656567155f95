"""Access Analyzer's validation of a policy, and IAM's simulator."""

from __future__ import annotations

import json

import pytest

from localcloud.core.errors import AwsError
from localcloud_kits.ec2_kit import Ec2

TAG = "aws:ResourceTag/team"
STATEMENT = {
    "Effect": "Allow",
    "Action": "ec2:DeleteVpc",
    "Resource": "*",
    "Condition": {"StringEquals": {TAG: "red"}},
}
POLICY = json.dumps({"Version": "2012-10-17", "Statement": [STATEMENT]})
VPC = "arn:aws:ec2:us-east-1:123456789012:vpc/vpc-0123456789abcdef0"


def findings(ec2: Ec2, document: str) -> list[str]:
    answer = ec2("ValidatePolicy", service="accessanalyzer", policyDocument=document, policyType="IDENTITY_POLICY")
    return [f"{finding['findingType']}: {finding['findingDetails']}" for finding in answer["findings"]]


def test_a_valid_policy_has_no_findings_and_another_has_an_error(ec2: Ec2) -> None:
    assert findings(ec2, POLICY) == []
    (finding,) = findings(ec2, POLICY.replace("StringEquals", "StringIsRather"))
    assert finding.startswith("ERROR: ") and "StringIsRather" in finding
    with pytest.raises(AwsError) as refused:
        ec2("ValidatePolicy", service="accessanalyzer", policyDocument=POLICY, policyType="MOON")
    assert refused.value.code == "ValidationException"


@pytest.mark.parametrize(
    ("action", "team", "decision"),
    [
        ("ec2:DeleteVpc", "red", "allowed"),
        ("ec2:DeleteVpc", "blue", "implicitDeny"),
        ("ec2:CreateVpc", "red", "implicitDeny"),
    ],
)
def test_the_simulator_decides_by_action_and_context(ec2: Ec2, action: str, team: str, decision: str) -> None:
    entries = [{"ContextKeyName": TAG, "ContextKeyValues": [team], "ContextKeyType": "string"}]
    asked = {"PolicyInputList": [POLICY], "ActionNames": [action], "ResourceArns": [VPC], "ContextEntries": entries}
    (result,) = ec2("SimulateCustomPolicy", service="iam", **asked)["EvaluationResults"]
    assert (result["EvalActionName"], result["EvalResourceName"], result["EvalDecision"]) == (action, VPC, decision)


def test_an_explicit_deny_wins_and_a_list_of_keys_is_a_list(ec2: Ec2) -> None:
    keys = {"ForAllValues:StringEquals": {"aws:TagKeys": ["team", "rank"]}}
    allow = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    deny = {"Effect": "Deny", "Action": "ec2:CreateTags", "Resource": "*", "Condition": keys}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allow, deny]})
    asked = {"PolicyInputList": [policy], "ActionNames": ["ec2:CreateTags"]}
    for names, decision in ((["team", "rank"], "explicitDeny"), (["team", "cost"], "allowed")):
        entry = {"ContextKeyName": "aws:TagKeys", "ContextKeyValues": names, "ContextKeyType": "stringList"}
        answer = ec2("SimulateCustomPolicy", service="iam", ContextEntries=[entry], **asked)
        assert [result["EvalDecision"] for result in answer["EvaluationResults"]] == [decision]


def test_a_malformed_policy_is_refused_by_the_simulator(ec2: Ec2) -> None:
    with pytest.raises(AwsError) as refused:
        ec2("SimulateCustomPolicy", service="iam", PolicyInputList=["{}"], ActionNames=["ec2:CreateVpc"])
    assert refused.value.code == "InvalidInput"
