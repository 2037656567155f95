"""Records as boto3 shows them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from localcloud.autoscaling.records import Activity, Group, Hook, Member, Refresh, Spec
from localcloud.autoscaling.words import moment
from localcloud.errors import AwsError

T = TypeVar("T")
Shown = dict[str, Any]


def page(
    items: Sequence[T], key: Callable[[T], str], params: Mapping[str, Any], default: int, most: int
) -> tuple[list[T], Shown]:
    """One page of a list, and the token of the next one: the last item that has been shown."""
    size = params.get("MaxRecords") or default
    if not 1 <= size <= most:
        raise AwsError("ValidationError", f"The specified MaxRecords value {size} is out of range (1 - {most}).")
    start = 0
    token = params.get("NextToken")
    if token:
        start = next((number for number, item in enumerate(items, 1) if key(item) == token), -1)
        if start < 0:
            raise AwsError("InvalidNextToken", f"The token '{token}' is invalid.")
    shown = list(items[start : start + size])
    more = start + size < len(items)
    return shown, {"NextToken": key(shown[-1])} if more else {}


def spec(given: Spec) -> Shown:
    return {"LaunchTemplateId": given.id, "LaunchTemplateName": given.name, "Version": given.version}


def member(given: Member) -> Shown:
    shown: Shown = {
        "InstanceId": given.id,
        "InstanceType": given.type,
        "AvailabilityZone": given.place.zone,
        "LifecycleState": given.state,
        "HealthStatus": given.health,
        "ProtectedFromScaleIn": given.protected,
    }
    if given.template:
        shown["LaunchTemplate"] = spec(given.template)
    if given.configuration:
        shown["LaunchConfigurationName"] = given.configuration
    return shown


def instance(group: Group, given: Member) -> Shown:
    """An instance on its own: AWS writes its health in capitals here."""
    return {**member(given), "AutoScalingGroupName": group.name, "HealthStatus": given.health.upper()}


def tags(group: Group) -> list[Shown]:
    return [
        {
            "ResourceId": group.name,
            "ResourceType": "auto-scaling-group",
            "Key": key,
            "Value": tag.value,
            "PropagateAtLaunch": tag.propagate,
        }
        for key, tag in sorted(group.tags.items())
    ]


def group(given: Group, instances: bool = True) -> Shown:
    shown: Shown = {
        **given.stored,
        "AutoScalingGroupName": given.name,
        "AutoScalingGroupARN": given.arn,
        "MinSize": given.least,
        "MaxSize": given.most,
        "DesiredCapacity": given.desired,
        "DefaultCooldown": given.cooldown,
        "AvailabilityZones": given.zones,
        "LoadBalancerNames": list(given.balancers),
        "TargetGroupARNs": list(given.targets),
        "HealthCheckType": given.health_type,
        "HealthCheckGracePeriod": given.grace,
        "CreatedTime": moment(given.created),
        "SuspendedProcesses": [
            {"ProcessName": name, "SuspensionReason": reason} for name, reason in given.suspended.items()
        ],
        "VPCZoneIdentifier": given.zone_identifier,
        "EnabledMetrics": [{"Metric": name, "Granularity": "1Minute"} for name in sorted(given.metrics)],
        "Tags": tags(given),
        "TerminationPolicies": list(given.policies),
        "NewInstancesProtectedFromScaleIn": given.protect_new,
        "ServiceLinkedRoleARN": given.service_role,
        "TrafficSources": [],
    }
    if instances:
        shown["Instances"] = [member(one) for one in given.members.values()]
    if given.deleting:
        shown["Status"] = "Delete in progress"
    if given.placement_group:
        shown["PlacementGroup"] = given.placement_group
    if given.mixed:
        shown["MixedInstancesPolicy"] = dict(given.mixed)
    elif given.template:
        shown["LaunchTemplate"] = spec(given.template)
    if given.configuration:
        shown["LaunchConfigurationName"] = given.configuration
    return shown


def activity(given: Activity, alive: bool = True) -> Shown:
    shown: Shown = {
        "ActivityId": given.id,
        "AutoScalingGroupName": given.group,
        "AutoScalingGroupARN": given.group_arn,
        "Description": given.description,
        "Cause": given.cause,
        "StartTime": moment(given.start),
        "StatusCode": given.status,
        "Progress": given.progress,
        "Details": json.dumps(given.details, separators=(",", ":")),
    }
    if given.end is not None:
        shown["EndTime"] = moment(given.end)
    if given.message is not None:
        shown["StatusMessage"] = given.message
    if not alive:
        shown["AutoScalingGroupState"] = "Deleted"
    return shown


def hook(owner: Group, given: Hook) -> Shown:
    shown: Shown = {
        "LifecycleHookName": given.name,
        "AutoScalingGroupName": owner.name,
        "LifecycleTransition": given.transition,
        "HeartbeatTimeout": given.heartbeat,
        "GlobalTimeout": given.longest,
        "DefaultResult": given.default,
    }
    optional = {
        "NotificationTargetARN": given.target,
        "RoleARN": given.role,
        "NotificationMetadata": given.metadata,
    }
    return shown | {key: value for key, value in optional.items() if value}


def refresh(owner: Group, given: Refresh) -> Shown:
    left = len(given.todo)
    done = 100 if given.status == "Successful" or not given.total else 100 * (given.total - left) // given.total
    shown: Shown = {
        "InstanceRefreshId": given.id,
        "AutoScalingGroupName": owner.name,
        "Status": given.status,
        "StartTime": moment(given.start),
        "PercentageComplete": done,
        "InstancesToUpdate": left,
        "Preferences": dict(given.preferences),
        "Strategy": "Rolling",
    }
    if given.desired:
        shown["DesiredConfiguration"] = dict(given.desired)
    if given.end is not None:
        shown["EndTime"] = moment(given.end)
    if given.reason:
        shown["StatusReason"] = given.reason
    return shown
