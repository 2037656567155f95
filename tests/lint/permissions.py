"""Report permissions of a policy that need a reason: they reach further than they must, or can grant others.

It reads policies of users and roles. cloudsplaining reports only permissions on all resources; these are also reported
if they are limited to some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cloudsplaining.shared.constants import ACTIONS_THAT_RETURN_CREDENTIALS, PRIVILEGE_ESCALATION_METHODS

from tests.lint import reference
from tests.lint.reference import Found, listed

Statement = Mapping[str, Any]

TAG = re.compile(r"(aws|[a-z0-9-]+):(Resource|Request)Tag/.+", re.IGNORECASE)


def findings(policy: Mapping[str, Any]) -> Iterator[Found]:
    allowing = [statement for statement in policy["Statement"] if statement.get("Effect") == "Allow"]
    for statement in allowing:
        sid = str(statement.get("Sid", ""))
        for element in ("NotAction", "NotResource"):
            if element in statement:
                yield sid, "ALLOWS_ALL_BUT", element
        if not _requires_tag(statement):
            for action in _actions(statement):
                if any(_is_any(resource, action) for resource in listed(statement.get("Resource", []))):
                    yield sid, "ALL_RESOURCES", action
    allowed = sorted({action for statement in allowing for action in _actions(statement)})
    for action in allowed:
        for name in reference.required_resources(action):
            if not any(_covers(statement, action, name) for statement in allowing):
                yield "", "MISSING_RESOURCE", f"{action} {name}"
        if reference.access_level(action) == "Permissions management":
            yield "", "MANAGES_PERMISSIONS", action
        if action.lower() in ACTIONS_THAT_RETURN_CREDENTIALS:
            yield "", "RETURNS_CREDENTIALS", action
    for method, needed in PRIVILEGE_ESCALATION_METHODS.items():
        if {action.lower() for action in allowed}.issuperset(needed):
            yield "", "PRIVILEGE_ESCALATION", method


def _actions(statement: Statement) -> list[str]:
    return [action for pattern in listed(statement.get("Action", [])) for action in reference.actions(pattern)]


def _requires_tag(statement: Statement) -> bool:
    """Return whether the statement applies only to resources or requests with a certain tag."""
    return any(TAG.fullmatch(key) for key in statement.get("Condition", {}).get("StringEquals", {}))


def _is_any(resource: str, action: str) -> bool:
    """Return whether a resource is not limited at all, although the action's resources have ARNs."""
    possible = reference.possible_resources(action)
    any_partition = re.sub("^arn:[^:]*:", "arn:*:", resource)
    return bool(possible) and (resource == "*" or any_partition in possible.values())


def _covers(statement: Statement, action: str, name: str) -> bool:
    arn = reference.required_resources(action)[name]
    resources = listed(statement.get("Resource", "*"))
    return action in _actions(statement) and any(reference.same_arn(reference.globs(each), arn) for each in resources)
