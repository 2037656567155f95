"""Records as boto3 shows them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from localcloud.api.autoscaling.messages import datetime_of
from localcloud.api.autoscaling.records import (
    LAUNCHING,
    Activity,
    Group,
    Hook,
    LaunchTemplateSpecification,
    Member,
    ScheduledAction,
)
from localcloud.core.errors import AwsError

T = TypeVar("T")
Response = dict[str, Any]


def page(
    items: Sequence[T], key: Callable[[T], str], params: Mapping[str, Any], default: int, maximum: int
) -> tuple[list[T], Response]:
    """Return a page of a list, and the token of the next one: the last item of the page."""
    size = params.get("MaxRecords") or default
    if not 1 <= size <= maximum:
        raise AwsError("ValidationError", f"The specified MaxRecords value {size} is out of range (1 - {maximum}).")
    start = 0
    token = params.get("NextToken")
    if token:
        start = next((number for number, item in enumerate(items, 1) if key(item) == token), -1)
        if start < 0:
            raise AwsError("InvalidNextToken", f"The token '{token}' is invalid.")
    response = list(items[start : start + size])
    more = start + size < len(items)
    return response, {"NextToken": key(response[-1])} if more else {}


def specification(record: LaunchTemplateSpecification) -> Response:
    return {"LaunchTemplateId": record.id, "LaunchTemplateName": record.name, "Version": record.version}


def member(record: Member) -> Response:
    response: Response = {
        "InstanceId": record.id,
        "InstanceType": record.type,
        "AvailabilityZone": record.subnet.zone,
        "LifecycleState": record.state,
        "HealthStatus": record.health,
        "ProtectedFromScaleIn": False,
        "LaunchTemplate": specification(record.template),
    }
    return response


def instance(group: Group, record: Member) -> Response:
    """Return an instance without its group: AWS writes its health in capitals here."""
    return {**member(record), "AutoScalingGroupName": group.name, "HealthStatus": record.health.upper()}


def tags(group: Group) -> list[Response]:
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


def group(record: Group, instances: bool = True) -> Response:
    response: Response = {
        **record.stored,
        "AutoScalingGroupName": record.name,
        "AutoScalingGroupARN": record.arn,
        "MinSize": record.min_size,
        "MaxSize": record.max_size,
        "DesiredCapacity": record.desired,
        "DefaultCooldown": record.cooldown,
        "AvailabilityZones": record.zones,
        "LoadBalancerNames": [],
        "TargetGroupARNs": [],
        "HealthCheckType": record.health_type,
        "HealthCheckGracePeriod": record.grace_period,
        "CreatedTime": datetime_of(record.created),
        "SuspendedProcesses": [
            {"ProcessName": name, "SuspensionReason": reason} for name, reason in record.suspended.items()
        ],
        "VPCZoneIdentifier": record.zone_identifier,
        "EnabledMetrics": [],
        "Tags": tags(record),
        "TerminationPolicies": ["Default"],
        "NewInstancesProtectedFromScaleIn": False,
        "ServiceLinkedRoleARN": record.service_role,
        "TrafficSources": [],
    }
    if instances:
        response["Instances"] = [member(instance) for instance in record.members.values()]
    if record.deleting:
        response["Status"] = "Delete in progress"
    if record.placement_group:
        response["PlacementGroup"] = record.placement_group
    response["LaunchTemplate"] = specification(record.template)
    return response


def activity(record: Activity, alive: bool = True) -> Response:
    response: Response = {
        "ActivityId": record.id,
        "AutoScalingGroupName": record.group,
        "AutoScalingGroupARN": record.group_arn,
        "Description": record.description,
        "Cause": record.cause,
        "StartTime": datetime_of(record.start),
        "StatusCode": record.status,
        "Progress": record.progress,
        "Details": json.dumps(record.details, separators=(",", ":")),
    }
    if record.end is not None:
        response["EndTime"] = datetime_of(record.end)
    if record.message is not None:
        response["StatusMessage"] = record.message
    if not alive:
        response["AutoScalingGroupState"] = "Deleted"
    return response


def hook(owner: Group, record: Hook) -> Response:
    return {
        "LifecycleHookName": record.name,
        "AutoScalingGroupName": owner.name,
        "LifecycleTransition": LAUNCHING,
        "HeartbeatTimeout": record.heartbeat,
        "GlobalTimeout": record.longest,
        "DefaultResult": record.default,
    }


def scheduled_action(owner: Group, record: ScheduledAction) -> Response:
    response: Response = {
        "AutoScalingGroupName": owner.name,
        "ScheduledActionName": record.name,
        "ScheduledActionARN": record.arn,
        # The older name of the same.
        "Time": datetime_of(record.start),
        "StartTime": datetime_of(record.start),
        **record.sizes,
    }
    if record.recurrence:
        response["Recurrence"] = record.recurrence
    if record.end is not None:
        response["EndTime"] = datetime_of(record.end)
    return response
