"""EC2 Auto Scaling: groups. What happens in them by itself is in localcloud/autoscaling/."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from localcloud.api import autoscaling_instances as _instances  # noqa: F401 - registers its answers
from localcloud.api import autoscaling_more as _more  # noqa: F401 - registers its answers
from localcloud.api.iam_linked_roles import ensure_service_linked_role
from localcloud.api.registry import Call, Result, answers
from localcloud.autoscaling import checking, ending, shown, words
from localcloud.autoscaling.checking import invalid
from localcloud.autoscaling.engine import Scaling
from localcloud.autoscaling.records import Group, new_id
from localcloud.autoscaling.regions import scaling_in
from localcloud.cloud import arn
from localcloud.errors import AwsError
from localcloud.settings import ACCOUNT

SERVICE = "autoscaling.amazonaws.com"
SERVICE_ROLE = "AWSServiceRoleForAutoScaling"

STORED = (
    "AvailabilityZoneDistribution",
    "AvailabilityZoneImpairmentPolicy",
    "CapacityRebalance",
    "CapacityReservationSpecification",
    "Context",
    "DefaultInstanceWarmup",
    "DeletionProtection",
    "DesiredCapacityType",
    "InstanceLifecyclePolicy",
    "InstanceMaintenancePolicy",
    "MaxInstanceLifetime",
)


@answers("autoscaling", "CreateAutoScalingGroup")
def create(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    name = params["AutoScalingGroupName"]
    if name in scaling.groups:
        raise AwsError(
            "AlreadyExists",
            f"AutoScalingGroup by this name already exists - A group with the name {name} already exists",
        )
    if ":" in name:
        raise invalid("Auto Scaling group names must not contain colons.")
    if params.get("InstanceId"):
        raise invalid("The local cloud makes no group after an instance: give a launch template.")
    least, most = params["MinSize"], params["MaxSize"]
    desired = params.get("DesiredCapacity")
    desired = least if desired is None else desired
    checking.check_sizes(least, most, desired)
    source = checking.read_source(scaling, params)
    if not source:
        raise invalid(checking.NO_SOURCE)
    group = Group(
        name=name,
        arn=arn("autoscaling", call.region, f"autoScalingGroup:{new_id()}:autoScalingGroupName/{name}"),
        created=scaling.now,
        least=least,
        most=most,
        desired=desired,
        places=checking.places_of(scaling, params.get("VPCZoneIdentifier"), params.get("AvailabilityZones") or []),
        zone_identifier=_identifier(params.get("VPCZoneIdentifier")),
        tags=checking.read_tags(params.get("Tags") or []),
        service_role=params.get("ServiceLinkedRoleARN")
        or f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{SERVICE}/{SERVICE_ROLE}",
        balancers=list(params.get("LoadBalancerNames") or []),
        targets=list(params.get("TargetGroupARNs") or []),
        **source,
    )
    for given in params.get("LifecycleHookSpecificationList") or []:
        hook = checking.read_hook(given)
        group.hooks[hook.name] = hook
    _read_settings(group, params)
    checking.check_launchable(scaling, group, call.caller)
    ensure_service_linked_role(call.cloud, SERVICE)
    if desired:
        group.reasons.append(words.at(scaling.now, words.created(desired)))
    scaling.groups[name] = group
    scaling.watch()
    scaling.kick()
    return {}


def _read_settings(group: Group, params: Mapping[str, Any]) -> None:
    """Settings that are the same for new groups and old ones; what is not given stays."""
    fields = {
        "DefaultCooldown": "cooldown",
        "HealthCheckGracePeriod": "grace",
        "HealthCheckType": "health_type",
        "NewInstancesProtectedFromScaleIn": "protect_new",
        "PlacementGroup": "placement_group",
        "ServiceLinkedRoleARN": "service_role",
    }
    for name, attribute in fields.items():
        if params.get(name) is not None:
            setattr(group, attribute, params[name])
    if params.get("TerminationPolicies") is not None:
        group.policies = checking.check_policies(params["TerminationPolicies"])
    group.stored.update({name: params[name] for name in STORED if params.get(name) is not None})


@answers("autoscaling", "UpdateAutoScalingGroup")
def update(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = checking.changeable(scaling, params["AutoScalingGroupName"])
    least = group.least if params.get("MinSize") is None else params["MinSize"]
    most = group.most if params.get("MaxSize") is None else params["MaxSize"]
    desired = params.get("DesiredCapacity")
    if desired is None:
        # A new bound takes the desired capacity along.
        desired = min(max(group.desired, least), most)
    checking.check_sizes(least, most, desired)
    source = checking.read_source(scaling, params)
    places, identifier = group.places, group.zone_identifier
    if params.get("VPCZoneIdentifier") or params.get("AvailabilityZones"):
        subnets = params.get("VPCZoneIdentifier")
        if subnets is None and identifier:
            subnets = identifier if set(params["AvailabilityZones"]) == set(group.zones) else None
        places = checking.places_of(scaling, subnets, params.get("AvailabilityZones") or [])
        identifier = _identifier(subnets)
    if source:
        trial = replace(
            group, places=places, placement_group=params.get("PlacementGroup") or group.placement_group, **source
        )
        checking.check_launchable(scaling, trial, call.caller)
        group.template, group.configuration, group.mixed = trial.template, trial.configuration, trial.mixed
    _read_settings(group, params)
    group.places, group.zone_identifier = places, identifier
    if (least, most, desired) != (group.least, group.most, group.desired):
        if desired != group.desired:
            group.reasons.append(words.at(scaling.now, words.updated(least, most, desired, group.desired)))
        group.least, group.most, group.desired = least, most, desired
    group.try_at_once()
    scaling.kick()
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
    if group.stored.get("DeletionProtection") in ("prevent-all-deletion", "prevent-force-deletion" if force else "-"):
        raise AwsError("ResourceInUse", f"AutoScalingGroup '{name}' is protected from deletion.")
    if group.deleting:
        return {}
    if not force:
        if any(not member.state.startswith("Terminating") for member in group.members.values()):
            raise AwsError(
                "ResourceInUse",
                "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) "
                "still in the group.",
            )
        if group.members or group.launches:
            raise AwsError(
                "ScalingActivityInProgress",
                "You cannot delete an AutoScalingGroup while there are scaling activities in progress for that group.",
            )
    _begin_deletion(scaling, group)
    return {}


def _begin_deletion(scaling: Scaling, group: Group) -> None:
    """Its instances end at once, whatever hooks say; it is gone when the last of them is."""
    now, before = scaling.now, group.desired
    group.deleting = True
    group.hooks.clear()
    for launch in group.launches:
        launch.activity.finish("Cancelled", now, "The group was deleted before the instance was launched.")
    group.launches.clear()
    reasons = [words.at(now, words.force_deleted(before))]
    group.least = group.most = group.desired = 0
    for member in list(group.members.values()):
        if member.state.startswith("Terminating"):
            ending.ask_to_end(scaling, member)
            continue
        sentences = (words.shrinks(before, 0), words.selected(member.id))
        ending.end(scaling, group, member, words.cause(reasons, now, *sentences), at_once=True)
    scaling.kick()


@answers("autoscaling", "DescribeAutoScalingGroups")
def describe(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    names = params.get("AutoScalingGroupNames")
    groups = [
        group
        for name, group in sorted(scaling.groups.items())
        if (not names or name in names) and all(_fits(group, wanted) for wanted in params.get("Filters") or [])
    ]
    groups, token = shown.page(groups, lambda group: group.name, params, 50, 100)
    instances = params.get("IncludeInstances") is not False
    return {"AutoScalingGroups": [shown.group(group, instances) for group in groups], **token}


def _fits(group: Group, wanted: Mapping[str, Any]) -> bool:
    """Does it bear such a tag?"""
    name, values = wanted.get("Name", ""), wanted.get("Values") or []
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
    group = checking.changeable(scaling, params["AutoScalingGroupName"])
    desired = params["DesiredCapacity"]
    checking.check_desired(group, desired)
    if params.get("HonorCooldown") and group.scaled_at is not None and scaling.now < group.scaled_at + group.cooldown:
        left = math.ceil(group.scaled_at + group.cooldown - scaling.now)
        raise AwsError(
            "ScalingActivityInProgress", f"The Auto Scaling group is in its cooldown period for another {left} seconds."
        )
    if desired != group.desired:
        group.reasons.append(words.at(scaling.now, words.set_explicitly(group.desired, desired)))
        group.desired = desired
    group.try_at_once()
    scaling.kick()
    return {}


@answers("autoscaling", "DescribeScalingActivities")
def describe_activities(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    alive = {group.arn for group in scaling.groups.values()}
    name, deleted = params.get("AutoScalingGroupName"), bool(params.get("IncludeDeletedGroups"))
    if name and name not in scaling.groups and not deleted:
        raise invalid("AutoScalingGroup name not found - null")
    ids = params.get("ActivityIds")
    found = [
        activity
        for activity in reversed(scaling.activities)
        if (not name or activity.group == name)
        and (not ids or activity.id in ids)
        and (deleted or activity.group_arn in alive)
    ]
    found, token = shown.page(found, lambda activity: activity.id, params, 100, 100)
    return {"Activities": [shown.activity(activity, activity.group_arn in alive) for activity in found], **token}
