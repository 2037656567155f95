"""All policies together: is the caller allowed all that a call needs?

Within one account:
* An explicit deny anywhere wins.
* Otherwise one allow is enough, from the caller's own policies or from the resource's policy, if that names the
  caller (or everyone). A resource's policy that names only the account adds nothing here: it hands on to the
  caller's policies.
* A role can be assumed only if its trust policy allows it; if that names only the account, the caller's own
  policies must allow it too.
* A permissions boundary must allow as well. (AWS lets a resource's policy that names a user or a session get round
  it. We do not: stricter than AWS, never laxer.)
* The account's root needs no policy of its own.

On a resource of another account the caller's policies and the resource's must both allow.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic_policy-eval-basics-single-account.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic-cross-account.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .patterns import context_of
from .policy import IMPLICIT, Decision, Policy, decide
from .principal import Caller
from .rules import Need

TRUST_ACTIONS = {"AssumeRole", "AssumeRoleWithSAML", "AssumeRoleWithWebIdentity", "TagSession", "SetSourceIdentity"}


@dataclass(frozen=True)
class Denial:
    """A need that is not met, and the decision that says why."""

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
    """The needs that are refused, in their order; none if the call may go on.

    `resource_policies` has the ARN of a bucket, file system or role (then the policy is its trust policy);
    `policy_arns(needs)` says for which ones it should. `boundaries` is None for a caller without one."""
    mine = list(identity_policies)
    bounds = None if boundaries is None else list(boundaries)
    judged = ((need, judge(mine, need, caller, resource_policies or {}, bounds)) for need in needs)
    return [Denial(need, decision) for need, decision in judged if not decision.allowed]


def policy_arn(need: Need) -> str:
    """The resource whose own policy speaks about this need: the bucket for an object, otherwise the resource itself."""
    return need.resource.partition("/")[0] if need.resource.split(":")[2:3] == ["s3"] else need.resource


def judge(
    identity_policies: list[Policy],
    need: Need,
    caller: Caller,
    resource_policies: Mapping[str, Policy],
    boundaries: list[Policy] | None,
) -> Decision:
    context = context_of(caller.context(), need.context)
    identity = decide(identity_policies, need.action, need.resource, context)
    about = resource_policies.get(policy_arn(need))
    trusting = _asks_for_trust(need.action)
    if about is not None and (about.kind == "trust") != trusting:
        about = None  # a trust policy says nothing about iam:GetRole, and no other policy about sts:AssumeRole
    resource = about.decide(need.action, need.resource, context, caller) if about else IMPLICIT
    bound = _bound(boundaries, need, context)

    for decision in (identity, bound, resource):
        if decision.denied_explicitly:
            return decision
    if trusting and not resource.allowed:
        return Decision("implicitly denied", "trust", about.name if about else "")
    foreign = _is_foreign(need, caller)
    if foreign and not resource.allowed:
        return Decision("implicitly denied", "resource", about.name if about else "")
    granted = resource if resource.allowed and resource.direct and not foreign else identity
    if granted.allowed and not bound.allowed:
        return bound
    return granted if granted.allowed else Decision("implicitly denied", "identity")


def _bound(boundaries: list[Policy] | None, need: Need, context: dict[str, Any]) -> Decision:
    if boundaries is None:
        return Decision("allowed", "boundary")
    return replace(decide(boundaries, need.action, need.resource, context), source="boundary")


def _is_foreign(need: Need, caller: Caller) -> bool:
    """True if another account owns the resource; what belongs to AWS itself (managed policies) is open to all."""
    owner = need.context.get("aws:ResourceAccount", caller.account)
    return bool(caller.account) and owner not in (caller.account, "aws")


def _asks_for_trust(action: str) -> bool:
    service, _, name = action.partition(":")
    return service == "sts" and name in TRUST_ACTIONS
