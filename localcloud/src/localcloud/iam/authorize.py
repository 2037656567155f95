"""Decide from all policies together whether the caller has every permission that a call needs.

Within one account:
* An explicit deny anywhere wins.
* Otherwise one allow is enough, from the caller's own policies or from the resource's policy, if that names the
  caller (or everyone). A resource's policy that names only the account leaves the decision to the caller's policies.
* A role can be assumed only if its trust policy allows it; if that names only the account, the caller's own
  policies must allow it too.
* A permissions boundary must allow as well. (On AWS a resource's policy that names a user or a session is not limited
  by it. Here it is: stricter than AWS, never laxer.)
* The account's root user needs no policy.

On a resource of another account the caller's policies and the resource's must both allow.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic_policy-eval-basics-single-account.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic-cross-account.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..core.caller import Caller
from .patterns import context_of
from .policy import IMPLICIT, Decision, Policy, decide
from .rules import Need

_OF_TRUST = ("AssumeRole", "AssumeRoleWithSAML", "AssumeRoleWithWebIdentity", "TagSession", "SetSourceIdentity")
TRUST_ACTIONS = frozenset(f"sts:{name}" for name in _OF_TRUST)
"""The actions for which a role's trust policy counts."""


@dataclass(frozen=True)
class Denial:
    """A permission that the caller lacks, and the decision that gives the reason."""

    need: Need
    decision: Decision


def authorize(
    identity_policies: Iterable[Policy],
    needs: Iterable[Need],
    caller: Caller,
    *,
    resource_policies: Mapping[str, Policy] | None = None,
    boundaries: Iterable[Policy] | None = None,
) -> list[Denial]:
    """Return the needs that are refused, in their order; an empty list allows the call.

    The keys of `resource_policies` are ARNs of buckets, file systems and roles (whose policy is the trust policy):
    those that `policy_arn` returns for the needs. `boundaries` is None for a caller without one."""
    policies = list(identity_policies)
    bounds = None if boundaries is None else list(boundaries)
    decisions = ((need, evaluate(policies, need, caller, resource_policies or {}, bounds)) for need in needs)
    return [Denial(need, decision) for need, decision in decisions if not decision.allowed]


def policy_arn(need: Need) -> str:
    """Return the ARN of the resource whose policy applies: the bucket of an object, otherwise the resource itself."""
    return need.resource.partition("/")[0] if need.resource.split(":")[2:3] == ["s3"] else need.resource


def evaluate(
    identity_policies: list[Policy],
    need: Need,
    caller: Caller,
    resource_policies: Mapping[str, Policy],
    boundaries: list[Policy] | None,
) -> Decision:
    context = context_of(caller.context(), need.context)
    identity = decide(identity_policies, need.action, need.resource, context)
    policy = resource_policies.get(policy_arn(need))
    trust = need.action in TRUST_ACTIONS
    if policy is not None and (policy.kind == "trust") != trust:
        policy = None  # a trust policy does not apply to iam:GetRole, and no other policy to sts:AssumeRole
    resource = policy.decide(need.action, need.resource, context, caller) if policy else IMPLICIT
    bound = _bound(boundaries, need, context)

    for decision in (identity, bound, resource):
        if decision.denied_explicitly:
            return decision
    if trust and not resource.allowed:
        return Decision("implicitly denied", "trust", policy.name if policy else "")
    foreign = _is_foreign(need, caller)
    if foreign and not resource.allowed:
        return Decision("implicitly denied", "resource", policy.name if policy else "")
    granted = resource if resource.allowed and resource.direct and not foreign else identity
    if granted.allowed and not bound.allowed:
        return bound
    return granted if granted.allowed else Decision("implicitly denied", "identity")


def _bound(boundaries: list[Policy] | None, need: Need, context: dict[str, Any]) -> Decision:
    if boundaries is None:
        return Decision("allowed", "boundary")
    return replace(decide(boundaries, need.action, need.resource, context), source="boundary")


def _is_foreign(need: Need, caller: Caller) -> bool:
    """Return whether another account owns the resource. AWS's own resources (managed policies) are open to all."""
    owner = need.context.get("aws:ResourceAccount", caller.account)
    return bool(caller.account) and owner not in (caller.account, "aws")
