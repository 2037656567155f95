"""EC2 Auto Scaling: groups and their activities, on request. `engine` has what happens by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from localcloud.api.autoscaling import messages, responses, termination, validation
from localcloud.api.autoscaling.records import PROCESSES, Group, new_id
from localcloud.api.autoscaling.regions import scaling_in
from localcloud.api.autoscaling.state import Scaling
from localcloud.api.autoscaling.validation import invalid
from localcloud.api.iam.linked_roles import ensure_service_linked_role
from localcloud.core.cloud import Call, Result, answers, arn
from localcloud.core.settings import ACCOUNT
from localcloud.core.words import aws_error

SERVICE = "autoscaling.amazonaws.com"
SERVICE_ROLE = "AWSServiceRoleForAutoScaling"

STORED = (
    "CapacityRebalance",
    "DefaultInstanceWarmup",
    "MaxInstanceLifetime",
)


@answers("autoscaling", "CreateAutoScalingGroup")
def create(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    name = params["AutoScalingGroupName"]
    if name in scaling.groups:
        raise aws_error("autoscaling:CreateAutoScalingGroup", "AlreadyExists", name=name)
    if ":" in name:
        raise invalid("Auto Scaling group names must not contain colons.")
    if params.get("InstanceId"):
        raise invalid("The local cloud makes no group after an instance: give a launch template.")
    min_size, max_size = params["MinSize"], params["MaxSize"]
    desired = params.get("DesiredCapacity")
    desired = min_size if desired is None else desired
    validation.check_sizes(min_size, max_size, desired)
    source = validation.read_source(scaling, params)
    if not source:
        raise invalid(validation.NO_SOURCE)
    group = Group(
        name=name,
        arn=arn("autoscaling", call.region, f"autoScalingGroup:{new_id()}:autoScalingGroupName/{name}"),
        created=scaling.now,
        min_size=min_size,
        max_size=max_size,
        desired=desired,
        subnets=validation.subnets_of(scaling, params.get("VPCZoneIdentifier"), params.get("AvailabilityZones") or []),
        zone_identifier=_identifier(params.get("VPCZoneIdentifier")),
        tags=validation.read_tags(params.get("Tags") or []),
        service_role=params.get("ServiceLinkedRoleARN")
        or f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{SERVICE}/{SERVICE_ROLE}",
        **source,
    )
    for specification in params.get("LifecycleHookSpecificationList") or []:
        hook = validation.read_hook(specification)
        group.hooks[hook.name] = hook
    _read_settings(group, params)
    validation.check_launchable(scaling, group, call.caller)
    ensure_service_linked_role(call.cloud, SERVICE)
    if desired:
        group.reasons.append(messages.at(scaling.now, messages.created(desired)))
    scaling.groups[name] = group
    scaling.watch()
    scaling.schedule_step()
    return {}


def _read_settings(group: Group, params: Mapping[str, Any]) -> None:
    """Read the settings that creating and updating have in common; settings left out stay as they are."""
    fields = {
        "DefaultCooldown": "cooldown",
        "HealthCheckGracePeriod": "grace_period",
        "HealthCheckType": "health_type",
        "PlacementGroup": "placement_group",
        "ServiceLinkedRoleARN": "service_role",
    }
    for name, attribute in fields.items():
        if params.get(name) is not None:
            setattr(group, attribute, params[name])
    if params.get("NewInstancesProtectedFromScaleIn"):
        raise invalid("The local cloud has no protection from scale-in.")
    if params.get("TerminationPolicies") not in (None, [], ["Default"]):
        raise invalid("The local cloud has no termination policy but Default.")
    group.stored.update({name: params[name] for name in STORED if params.get(name) is not None})


@answers("autoscaling", "UpdateAutoScalingGroup")
def update(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = validation.changeable(scaling, params["AutoScalingGroupName"])
    min_size = group.min_size if params.get("MinSize") is None else params["MinSize"]
    max_size = group.max_size if params.get("MaxSize") is None else params["MaxSize"]
    desired = params.get("DesiredCapacity")
    if desired is None:
        # A new bound takes the desired capacity along.
        desired = min(max(group.desired, min_size), max_size)
    validation.check_sizes(min_size, max_size, desired)
    source = validation.read_source(scaling, params)
    subnets, identifier = group.subnets, group.zone_identifier
    if params.get("VPCZoneIdentifier") or params.get("AvailabilityZones"):
        requested = params.get("VPCZoneIdentifier") or identifier
        subnets = validation.subnets_of(scaling, requested, params.get("AvailabilityZones") or [])
        identifier = _identifier(requested)
    if source:
        trial = replace(
            group, subnets=subnets, placement_group=params.get("PlacementGroup") or group.placement_group, **source
        )
        validation.check_launchable(scaling, trial, call.caller)
        group.template = trial.template
    _read_settings(group, params)
    group.subnets, group.zone_identifier = subnets, identifier
    if (min_size, max_size, desired) != (group.min_size, group.max_size, group.desired):
        if desired != group.desired:
            group.reasons.append(messages.at(scaling.now, messages.updated(min_size, max_size, desired, group.desired)))
        group.min_size, group.max_size, group.desired = min_size, max_size, desired
    group.reset_backoff()
    scaling.schedule_step()
    return {}


def _identifier(subnets: str | None) -> str:
    return ",".join(name.strip() for name in (subnets or "").split(",") if name.strip())


@answers("autoscaling", "DeleteAutoScalingGroup")
def delete(call: Call) -> Result:
    scaling, name = scaling_in(call.cloud, call.region), call.params["AutoScalingGroupName"]
    group = scaling.groups.get(name)
    if group is None:
        raise invalid(f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")
    force = bool(call.params.get("ForceDelete"))
    if group.deleting:
        return {}
    if not force:
        if any(not member.state.startswith("Terminating") for member in group.members.values()):
            raise aws_error("autoscaling:DeleteAutoScalingGroup", "ResourceInUse")
        if group.members or group.launches:
            raise aws_error("autoscaling:DeleteAutoScalingGroup", "ScalingActivityInProgress")
    _begin_deletion(scaling, group)
    return {}


def _begin_deletion(scaling: Scaling, group: Group) -> None:
    """Terminate its instances; the group is gone when the last of them is."""
    now, before = scaling.now, group.desired
    group.deleting = True
    group.hooks.clear()
    for launch in group.launches:
        launch.activity.finish("Cancelled", now, "The group was deleted before the instance was launched.")
    group.launches.clear()
    reasons = [messages.at(now, messages.force_deleted(before))]
    group.min_size = group.max_size = group.desired = 0
    for member in list(group.members.values()):
        if member.state.startswith("Terminating"):
            termination.request_termination(scaling, member)
            continue
        sentences = (messages.shrinks(before, 0), messages.selected(member.id))
        termination.end(scaling, group, member, messages.cause(reasons, now, *sentences))
    scaling.schedule_step()


@answers("autoscaling", "DescribeAutoScalingGroups")
def describe(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    names = params.get("AutoScalingGroupNames")
    groups = [
        group
        for name, group in sorted(scaling.groups.items())
        if (not names or name in names)
        and all(_matches_filter(group, filter_) for filter_ in params.get("Filters") or [])
    ]
    groups, token = responses.page(groups, lambda group: group.name, params, 50, 100)
    instances = params.get("IncludeInstances") is not False
    return {"AutoScalingGroups": [responses.group(group, instances) for group in groups], **token}


def _matches_filter(group: Group, filter_: Mapping[str, Any]) -> bool:
    """Return whether the group has a tag that matches the filter."""
    name, values = filter_.get("Name", ""), filter_.get("Values") or []
    if name.startswith("tag:"):
        tag = group.tags.get(name[4:])
        return tag is not None and tag.value in values
    if name == "tag-key":
        return any(key in values for key in group.tags)
    if name == "tag-value":
        return any(tag.value in values for tag in group.tags.values())
    raise invalid(f"Filter type {name} is not correct. Allowed Filter types are: tag-key, tag-value, tag:<key>")


@answers("autoscaling", "SetDesiredCapacity")
def set_desired(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = validation.changeable(scaling, params["AutoScalingGroupName"])
    desired = params["DesiredCapacity"]
    validation.check_desired(group, desired)
    if desired != group.desired:
        group.reasons.append(messages.at(scaling.now, messages.set_explicitly(group.desired, desired)))
        group.desired = desired
    group.reset_backoff()
    scaling.schedule_step()
    return {}


@answers("autoscaling", "SuspendProcesses", "ResumeProcesses")
def suspend_or_resume(call: Call) -> Result:
    scaling = scaling_in(call.cloud, call.region)
    group = validation.changeable(scaling, call.params["AutoScalingGroupName"])
    names = call.params.get("ScalingProcesses") or list(PROCESSES)
    for name in names:
        if name not in PROCESSES:
            raise invalid(f"{name} is not a valid process: use {', '.join(PROCESSES)}.")
    for name in names:
        if call.operation == "ResumeProcesses":
            group.suspended.pop(name, None)
        elif name not in group.suspended:
            group.suspended[name] = f"User suspended at {messages.datetime_of(scaling.now):%Y-%m-%dT%H:%M:%SZ}"
    if call.operation == "ResumeProcesses":
        group.reset_backoff()
    scaling.schedule_step()
    return {}


@answers("autoscaling", "DisableMetricsCollection")
def disable_metrics(_call: Call) -> Result:
    """No metrics are collected. amazon.aws.autoscaling_group makes this call with every update."""
    return {}


@answers("autoscaling", "DescribeScalingActivities")
def describe_activities(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    alive = {group.arn for group in scaling.groups.values()}
    name, deleted = params.get("AutoScalingGroupName"), bool(params.get("IncludeDeletedGroups"))
    if name and name not in scaling.groups and not deleted:
        raise aws_error("autoscaling:*", "ValidationError", "name not found")
    ids = params.get("ActivityIds")
    activities = [
        activity
        for activity in reversed(scaling.activities)
        if (not name or activity.group == name)
        and (not ids or activity.id in ids)
        and (deleted or activity.group_arn in alive)
    ]
    activities, token = responses.page(activities, lambda activity: activity.id, params, 100, 100)
    return {
        "Activities": [responses.activity(activity, activity.group_arn in alive) for activity in activities],
        **token,
    }
