"""Parse a policy document, and decide with it about one action on one resource.

One parser serves all kinds of policies, which differ in their elements:

| kind | Principal | Resource |
| --- | --- | --- |
| identity (users', roles' policies; boundaries) | forbidden | required |
| resource (bucket, file system) | required | required |
| trust (who may assume a role) | required | forbidden: it is the role |

A policy of Version 2008-10-17 (the default) has no variables: `${…}` is text there.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..core.caller import Caller
from .conditions import Condition, MalformedPolicy, parse_conditions
from .patterns import Context, Pattern, Unresolved
from .principal import Named, Principals

Kind = Literal["identity", "resource", "trust"]
Outcome = Literal["allowed", "explicitly denied", "implicitly denied"]

_VERSIONS = ("2012-10-17", "2008-10-17")
_ELEMENTS = {
    "Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition", "Principal", "NotPrincipal",
}  # fmt: skip


@dataclass(frozen=True)
class Decision:
    """The outcome and its origin: `source` is the kind of policy, `policy` its name, `sid` the statement's Sid, or its
    number in the policy if it has none."""

    outcome: Outcome
    source: str = ""
    policy: str = ""
    sid: str = ""
    direct: bool = True  # the caller is named directly, and not only its account

    @property
    def allowed(self) -> bool:
        return self.outcome == "allowed"

    @property
    def denied_explicitly(self) -> bool:
        return self.outcome == "explicitly denied"


IMPLICIT = Decision("implicitly denied")


@dataclass(frozen=True)
class Statement:
    sid: str
    allow: bool
    actions: tuple[Pattern, ...]
    not_actions: bool = False
    resources: tuple[Pattern, ...] = ()
    not_resources: bool = False
    conditions: tuple[Condition, ...] = ()
    principals: Principals | None = None

    def names(self, caller: Caller | None) -> Named:
        if self.principals is None:
            return Named.DIRECTLY
        return self.principals.names(caller) if caller else Named.NOT

    def matches(self, action: str, resource: str, context: Context) -> bool:
        try:
            return (
                any(pattern.matches(action, {}, ignore_case=True) for pattern in self.actions) != self.not_actions
                and (not self.resources or self._covers(resource, context) != self.not_resources)
                and all(condition.is_met(context) for condition in self.conditions)
            )
        except Unresolved:
            return False

    def _covers(self, resource: str, context: Context) -> bool:
        # A list, so that all are evaluated: a variable without a value in any of them disables the whole statement.
        return any([pattern.matches_arn(resource, context) for pattern in self.resources])


@dataclass(frozen=True)
class Policy:
    name: str
    kind: Kind
    statements: tuple[Statement, ...]

    def decide(self, action: str, resource: str, context: Context, caller: Caller | None = None) -> Decision:
        """Explicit deny beats allow; an allow that names the caller beats one that names its account."""
        best = IMPLICIT
        for statement in self.statements:
            named = statement.names(caller)
            if named is Named.NOT or not statement.matches(action, resource, context):
                continue
            if not statement.allow:
                return Decision("explicitly denied", self.kind, self.name, statement.sid)
            if not best.allowed or (named is Named.DIRECTLY and not best.direct):
                best = Decision("allowed", self.kind, self.name, statement.sid, named is Named.DIRECTLY)
        return best


def decide(policies: Iterable[Policy], action: str, resource: str, context: Context) -> Decision:
    """Decide by several policies of one kind together."""
    best = IMPLICIT
    for policy in policies:
        decision = policy.decide(action, resource, context)
        if decision.denied_explicitly:
            return decision
        if decision.allowed and not best.allowed:
            best = decision
    return best


def parse_policy(document: str | Mapping[str, Any], *, kind: Kind = "identity", name: str = "") -> Policy:
    """Parse a document. Raise MalformedPolicy with AWS's message where it is known."""
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except ValueError:
            raise MalformedPolicy("Syntax errors in policy.") from None
    if not isinstance(document, Mapping) or set(document) - {"Version", "Id", "Statement"}:
        raise MalformedPolicy("Syntax errors in policy.")
    version = document.get("Version", "2008-10-17")
    if version not in _VERSIONS:
        raise MalformedPolicy("The policy must contain a valid version string.")
    statements = document.get("Statement")
    if isinstance(statements, Mapping):
        statements = [statements]
    if not isinstance(statements, list) or not statements:
        raise MalformedPolicy("Syntax errors in policy.")
    sids = [element["Sid"] for element in statements if isinstance(element, Mapping) and element.get("Sid")]
    if len(sids) != len(set(sids)):
        raise MalformedPolicy("Statement IDs (SID) in a single policy must be unique.")
    variables = version == "2012-10-17"
    return Policy(
        name, kind, tuple(_statement(element, kind, number, variables) for number, element in enumerate(statements, 1))
    )


def _statement(statement: Any, kind: Kind, number: int, variables: bool) -> Statement:
    if not isinstance(statement, Mapping) or set(statement) - _ELEMENTS:
        raise MalformedPolicy("Syntax errors in policy.")
    if statement.get("Effect") not in ("Allow", "Deny"):
        raise MalformedPolicy("Syntax errors in policy." if "Effect" in statement else "Missing required field Effect")
    sid = statement.get("Sid", "")
    if not isinstance(sid, str) or (kind == "identity" and not re.fullmatch("[A-Za-z0-9]*", sid)):
        raise MalformedPolicy("Statement IDs (SID) must be alpha-numeric. Check that your input satisfies the regular "
                              "expression [0-9A-Za-z]*")  # fmt: skip
    actions, not_actions = _either(statement, "Action", "NotAction")
    if not actions:
        raise MalformedPolicy("Policy statement must contain actions.")
    if not all(action == "*" or re.fullmatch(r"[A-Za-z0-9-]+:[A-Za-z0-9*?]+", action) for action in actions):
        raise MalformedPolicy("Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.")
    resources, not_resources = _either(statement, "Resource", "NotResource")
    if kind == "trust" and resources:
        raise MalformedPolicy("Has prohibited field Resource")
    if kind != "trust" and not resources:
        raise MalformedPolicy("Policy statement must contain resources.")
    for resource in resources:
        if resource != "*" and not re.match(r"arn:[^:]*(:[^:]*|\*$)", resource):
            raise MalformedPolicy(f'Resource {resource} must be in ARN format or "*".')
    resource_patterns = tuple(Pattern.parse(resource, variables=variables) for resource in resources)
    if any(pattern.has_early_variable for pattern in resource_patterns):
        raise MalformedPolicy("The policy failed legacy parsing")
    return Statement(
        sid=sid or str(number),
        allow=statement["Effect"] == "Allow",
        actions=tuple(Pattern.parse(action, variables=False) for action in actions),
        not_actions=not_actions,
        resources=resource_patterns,
        not_resources=not_resources,
        conditions=parse_conditions(statement.get("Condition", {}), variables=variables),
        principals=_principals(statement, kind),
    )


def _either(statement: Mapping[str, Any], name: str, inverse: str) -> tuple[list[str], bool]:
    if name in statement and inverse in statement:
        raise MalformedPolicy(f"Statement/policy already has instance of {name}")
    return _texts(statement.get(name, statement.get(inverse, []))), inverse in statement


def _texts(element: Any) -> list[str]:
    values = element if isinstance(element, list) else [element]
    if not all(isinstance(value, str) for value in values):
        raise MalformedPolicy("Syntax errors in policy.")
    return values


def _principals(statement: Mapping[str, Any], kind: Kind) -> Principals | None:
    if kind == "identity":
        if "Principal" in statement or "NotPrincipal" in statement:
            raise MalformedPolicy("Policy document should not specify a principal.")
        return None
    if ("Principal" in statement) == ("NotPrincipal" in statement):
        raise MalformedPolicy("Missing required field Principal")
    inverted = "NotPrincipal" in statement
    element = statement["NotPrincipal"] if inverted else statement["Principal"]
    if element == "*":
        return Principals(everyone=True, inverted=inverted)
    if not isinstance(element, Mapping) or set(element) - {"AWS", "Service", "Federated", "CanonicalUser"}:
        raise MalformedPolicy("Invalid principal in policy")
    aws = tuple(_texts(element.get("AWS", [])))
    if any("*" in name and name != "*" for name in aws):
        raise MalformedPolicy("Invalid principal in policy")
    return Principals(
        everyone="*" in aws,
        aws=aws,
        services=tuple(_texts(element.get("Service", []))),
        federated=tuple(_texts(element.get("Federated", []))),
        inverted=inverted,
    )
