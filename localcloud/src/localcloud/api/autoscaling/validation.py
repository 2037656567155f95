"""Validate requests about groups, and refuse invalid ones with AWS's errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from localcloud.api.autoscaling import launching
from localcloud.api.autoscaling.records import (
    LAUNCHING,
    Group,
    Hook,
    LaunchTemplateSpecification,
    Member,
    Subnet,
    Tag,
)
from localcloud.api.autoscaling.state import Scaling
from localcloud.core.caller import Caller
from localcloud.core.errors import AwsError
from localcloud.core.words import aws_error

NO_SOURCE = (
    "Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy "
    "parameter."
)


def invalid(message: str) -> AwsError:
    return AwsError("ValidationError", message)


def check_sizes(min_size: int, max_size: int, desired: int) -> None:
    if min_size < 0 or max_size < 0:
        raise invalid("MinSize and MaxSize must not be negative.")
    if max_size < min_size:
        raise invalid(f"Max bound, {max_size}, must be greater than or equal to min bound, {min_size}")
    if not min_size <= desired <= max_size:
        raise invalid(
            f"Desired capacity:{desired} must be between the specified min size:{min_size} and max size:{max_size}"
        )


def check_desired(group: Group, desired: int) -> None:
    if desired < group.min_size:
        raise invalid(
            f"New SetDesiredCapacity value {desired} is below min value {group.min_size} for the AutoScalingGroup."
        )
    if desired > group.max_size:
        raise invalid(
            f"New SetDesiredCapacity value {desired} is above max value {group.max_size} for the AutoScalingGroup."
        )


def group_named(scaling: Scaling, name: str) -> Group:
    group = scaling.groups.get(name)
    if group is None:
        raise aws_error("autoscaling:*", "ValidationError", "name not found")
    return group


def changeable(scaling: Scaling, name: str) -> Group:
    """Return a group that can be changed: not one that is being deleted."""
    group = group_named(scaling, name)
    if group.deleting:
        raise aws_error("autoscaling:UpdateAutoScalingGroup", "ScalingActivityInProgress", name=name)
    return group


def member_with(scaling: Scaling, instance_id: str) -> tuple[Group, Member]:
    pair = scaling.find(instance_id)
    if pair is None:
        raise invalid(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")
    return pair


def members_of(group: Group, ids: Sequence[str], *states: str) -> list[Member]:
    """Members by their ids, all in one of these states."""
    for name in ids:
        if name not in group.members:
            raise invalid(f"The instance {name} is not part of Auto Scaling group {group.name}.")
        if states and group.members[name].state not in states:
            raise invalid(f"The instance {name} is not in {' or '.join(states)}.")
    return [group.members[name] for name in dict.fromkeys(ids)]


def subnets_of(scaling: Scaling, identifier: str | None, zones: Sequence[str]) -> list[Subnet]:
    """Return the subnets of a VPCZoneIdentifier, which must be in the request's zones if it has any."""
    ids = [name.strip() for name in (identifier or "").split(",") if name.strip()]
    if not ids:
        raise invalid("The local cloud has no groups without subnets: use VPCZoneIdentifier.")
    try:
        zone_of = scaling.ec2.zones_of(ids)
    except AwsError as error:
        raise invalid(error.message) from error
    if zones and set(zones) != set(zone_of.values()):
        raise invalid("The availability zones of the specified subnets and the Auto Scaling group do not match")
    return [Subnet(zone_of[name], name) for name in dict.fromkeys(ids)]


def read_source(scaling: Scaling, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a group that say what it launches from; empty if the request names nothing."""
    for key in ("LaunchConfigurationName", "MixedInstancesPolicy"):
        if params.get(key):
            raise invalid(f"The local cloud does not have {key}: use LaunchTemplate.")
    template = params.get("LaunchTemplate")
    return {"template": read_template(scaling, template)} if template else {}


def read_template(scaling: Scaling, request: Mapping[str, Any]) -> LaunchTemplateSpecification:
    """Return an existing template with id and name, and the version that the request names."""
    if not request.get("LaunchTemplateId") and not request.get("LaunchTemplateName"):
        raise invalid("Valid requests must contain either launchTemplateId or LaunchTemplateName")
    if request.get("LaunchTemplateId") and request.get("LaunchTemplateName"):
        raise invalid("Valid requests must contain either launchTemplateId or LaunchTemplateName")
    try:
        resolved = scaling.ec2.template(request).specification
    except AwsError as error:
        raise aws_error("autoscaling:CreateAutoScalingGroup", "ValidationError", reason=error.message) from error
    return LaunchTemplateSpecification(resolved.id, resolved.name, str(request.get("Version") or "$Default"))


def check_launchable(scaling: Scaling, group: Group, caller: Caller) -> None:
    """Make a dry run of the launch template with the caller's permissions, as AWS does when a group gets one."""
    scaling.templates.clear()
    try:
        scaling.ec2.dry_run(launching.launch_request(scaling, group, group.subnets[0]), caller)
    except AwsError as error:
        if error.code == "UnauthorizedOperation":
            raise AwsError(
                "AccessDenied", f"You are not authorized to use launch template: {group.template.id}", 403
            ) from error
        raise aws_error("autoscaling:CreateAutoScalingGroup", "ValidationError", reason=error.message) from error


def read_hook(request: Mapping[str, Any], before: Hook | None = None) -> Hook:
    """Read a lifecycle hook; settings that the request leaves out stay as they were."""
    if request.get("LifecycleTransition") != LAUNCHING and not before:
        raise invalid(f"The local cloud has lifecycle hooks with the transition {LAUNCHING} only.")
    if request.get("NotificationTargetARN"):
        raise invalid("The local cloud has no notifications.")
    heartbeat = int(request.get("HeartbeatTimeout") or (before.heartbeat if before else 3600))
    if not 30 <= heartbeat <= 7200:
        raise invalid(f"Heartbeat Timeout must be between 30 and 7200 seconds: {heartbeat}")
    default = request.get("DefaultResult") or (before.default if before else "ABANDON")
    if default not in ("CONTINUE", "ABANDON"):
        raise invalid(f"Default result {default} is not valid: use CONTINUE or ABANDON.")
    return Hook(
        name=request["LifecycleHookName"],
        heartbeat=heartbeat,
        default=default,
    )


def read_tags(request: Iterable[Mapping[str, Any]]) -> dict[str, Tag]:
    tags: dict[str, Tag] = {}
    for tag in request:
        key = tag.get("Key") or ""
        if not key or len(key) > 128:
            raise invalid("Tag keys must have 1 to 128 characters.")
        if key.lower().startswith("aws:"):
            raise invalid(f"Tag key {key} is not valid: aws: prefixed tag key names are not allowed for external use.")
        # botocore's model has no default here; AWS's is false.
        tags[key] = Tag(str(tag.get("Value") or ""), bool(tag.get("PropagateAtLaunch", False)))
    if len(tags) > 50:
        raise AwsError("LimitExceeded", "You may have at most 50 tags on an Auto Scaling group.")
    return tags
