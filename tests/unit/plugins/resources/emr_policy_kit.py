"""What the policies of a cluster on EMR allow, as the local cloud's evaluator decides it."""

from __future__ import annotations

from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.resources.member_policy import MemberAccess, policy_for

from localcloud.testing.policies import context_of, decide, parse_policy

ACCOUNT, OTHER = "123456789012", "210987654321"
BUCKET, DATA = f"red-{ACCOUNT}-us-east-1", f"{ACCOUNT}-us-east-1-deeplearning-data"
EC2 = f"arn:aws:ec2:us-east-1:{ACCOUNT}"
MARKED = {"aws:ResourceTag/deeplearning:cluster": "red"}
OTHERS = {"aws:ResourceTag/deeplearning:cluster": "blue"}
MARKING = {"aws:RequestTag/deeplearning:cluster": "red"}
OTHERS_MARKING = {"aws:RequestTag/deeplearning:cluster": "blue"}


def allowed(role: str, action: str, resource: str, context: dict[str, Any] | None = None, **more: Any) -> bool:
    access = MemberAccess("red", "us-east-1", ACCOUNT, BUCKET, **more)
    principal = {"aws:userid": "AROANODE:i-01"}
    policy = parse_policy(policy_for(role, access))
    return decide([policy], action, resource, context_of(principal, context or {})).outcome == "allowed"
