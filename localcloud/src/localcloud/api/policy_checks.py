"""What checks policies without a call that they are about: Access Analyzer's ValidatePolicy, IAM's simulator.

https://docs.aws.amazon.com/access-analyzer/latest/APIReference/API_ValidatePolicy.html
https://docs.aws.amazon.com/IAM/latest/APIReference/API_SimulateCustomPolicy.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.core.cloud import Call, Result, answers
from localcloud.core.errors import AwsError
from localcloud.iam.conditions import MalformedPolicy
from localcloud.iam.patterns import Value, context_of
from localcloud.iam.policy import Kind, Policy, decide, parse_policy

_LEARN_MORE = "https://docs.aws.amazon.com/IAM/latest/UserGuide/access-analyzer-reference-policy-checks.html"
_KINDS: Mapping[str, Kind] = {"IDENTITY_POLICY": "identity", "RESOURCE_POLICY": "resource"}
_DECISIONS = {
    "allowed": "allowed",
    "explicitly denied": "explicitDeny",
    "implicitly denied": "implicitDeny",
}


@answers("accessanalyzer", "ValidatePolicy")
def validate_policy(call: Call) -> Result:
    """Find what the evaluator refuses. AWS's advice about policies that are valid is not known here."""
    kind = _KINDS.get(call.params["policyType"])
    if kind is None:
        raise AwsError("ValidationException", f"The policy type {call.params['policyType']} is not known here.", 400)
    try:
        parse_policy(call.params["policyDocument"], kind=kind)
    except MalformedPolicy as error:
        finding = {"findingType": "ERROR", "issueCode": "MALFORMED_POLICY", "findingDetails": str(error)}
        return {"findings": [{**finding, "learnMoreLink": _LEARN_MORE, "locations": []}]}
    return {"findings": []}


@answers("iam", "SimulateCustomPolicy")
def simulate_custom_policy(call: Call) -> Result:
    """Decide about each action on each resource, as for a call without any other policy."""
    policies = [_policy(document) for document in call.params["PolicyInputList"]]
    entries: dict[str, Value] = {
        entry["ContextKeyName"]: _context_value(entry) for entry in call.params.get("ContextEntries") or ()
    }
    context = context_of({"aws:RequestedRegion": call.region}, entries)
    results = [
        {
            "EvalActionName": action,
            "EvalResourceName": resource,
            "EvalDecision": _DECISIONS[decide(policies, action, resource, context).outcome],
            "MatchedStatements": [],
            "MissingContextValues": [],
        }
        for action in call.params["ActionNames"]
        for resource in call.params.get("ResourceArns") or ["*"]
    ]
    return {"EvaluationResults": results, "IsTruncated": False}


def _policy(document: str) -> Policy:
    try:
        return parse_policy(document)
    except MalformedPolicy as error:
        raise AwsError("InvalidInput", str(error), 400) from error


def _context_value(entry: Mapping[str, Any]) -> Value:
    values = [str(value) for value in entry.get("ContextKeyValues") or ()]
    return values if str(entry.get("ContextKeyType", "")).endswith("List") else "".join(values[:1])
