"""What callers may ask of a group, and the words in which AWS refuses the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from localcloud.api.auth import Caller
from localcloud.autoscaling import launching
from localcloud.autoscaling.choosing import POLICIES
from localcloud.autoscaling.engine import Scaling
from localcloud.autoscaling.records import LAUNCHING, TERMINATING, Group, Hook, Member, Place, Spec, Tag
from localcloud.errors import AwsError

NO_SOURCE = (
    "Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy "
    "parameter."
)


def invalid(message: str) -> AwsError:
    return AwsError("ValidationError", message)


def check_sizes(least: int, most: int, desired: int) -> None:
    if least < 0 or most < 0:
        raise invalid("MinSize and MaxSize must not be negative.")
    if most < least:
        raise invalid(f"Max bound, {most}, must be greater than or equal to min bound, {least}")
    if not least <= desired <= most:
        raise invalid(f"Desired capacity:{desired} must be between the specified min size:{least} and max size:{most}")


def check_desired(group: Group, desired: int) -> None:
    if desired < group.least:
        raise invalid(
            f"New SetDesiredCapacity value {desired} is below min value {group.least} for the AutoScalingGroup."
        )
    if desired > group.most:
        raise invalid(
            f"New SetDesiredCapacity value {desired} is above max value {group.most} for the AutoScalingGroup."
        )


def check_policies(names: Iterable[str]) -> list[str]:
    wanted = list(names) or ["Default"]
    for name in wanted:
        if name not in POLICIES and not name.startswith("arn:"):
            raise invalid(f"Termination policy {name} is not supported. Valid policies: {', '.join(POLICIES)}")
    return wanted


def group_named(scaling: Scaling, name: str) -> Group:
    group = scaling.groups.get(name)
    if group is None:
        raise invalid("AutoScalingGroup name not found - null")
    return group


def changeable(scaling: Scaling, name: str) -> Group:
    """A group that may still be changed: not one that is being deleted."""
    group = group_named(scaling, name)
    if group.deleting:
        raise AwsError("ScalingActivityInProgress", f"AutoScalingGroup '{name}' is pending delete.")
    return group


def member_with(scaling: Scaling, instance_id: str) -> tuple[Group, Member]:
    found = scaling.find(instance_id)
    if found is None:
        raise invalid(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")
    return found


def members_of(group: Group, ids: Sequence[str], *states: str) -> list[Member]:
    """Members by their ids, all in one of these states."""
    for name in ids:
        if name not in group.members:
            raise invalid(f"The instance {name} is not part of Auto Scaling group {group.name}.")
        if states and group.members[name].state not in states:
            raise invalid(f"The instance {name} is not in {' or '.join(states)}.")
    return [group.members[name] for name in dict.fromkeys(ids)]


def places_of(scaling: Scaling, subnets: str | None, zones: Sequence[str]) -> list[Place]:
    """Where a group with this VPCZoneIdentifier, or else these AvailabilityZones, launches."""
    wanted = [name.strip() for name in (subnets or "").split(",") if name.strip()]
    if wanted:
        try:
            found = scaling.ec2.zones_of(wanted)
        except AwsError as error:
            raise invalid(error.message) from error
        places = [Place(found[name], name) for name in dict.fromkeys(wanted)]
        if zones and set(zones) != {place.zone for place in places}:
            raise invalid("The availability zones of the specified subnets and the Auto Scaling group do not match")
        return places
    if not zones:
        raise invalid("At least one Availability Zone or VPC Subnet is required.")
    known = scaling.ec2.zones()
    unknown = [zone for zone in zones if zone not in known]
    if unknown:
        raise invalid(f"Invalid availability zones: [{', '.join(unknown)}]")
    return [Place(zone) for zone in dict.fromkeys(zones)]


def read_source(scaling: Scaling, params: Mapping[str, Any]) -> dict[str, Any]:
    """What to launch from, as fields of a group; empty where the call says nothing of it."""
    given = [key for key in ("LaunchTemplate", "LaunchConfigurationName", "MixedInstancesPolicy") if params.get(key)]
    if len(given) > 1:
        raise invalid(NO_SOURCE)
    if params.get("LaunchConfigurationName"):
        name = params["LaunchConfigurationName"]
        if name not in scaling.configurations:
            raise invalid(f"Launch configuration name not found - Launch configuration {name} not found")
        return {"template": None, "configuration": name, "mixed": None}
    if params.get("LaunchTemplate"):
        return {"template": read_spec(scaling, params["LaunchTemplate"]), "configuration": None, "mixed": None}
    if params.get("MixedInstancesPolicy"):
        policy = params["MixedInstancesPolicy"]
        spec = read_spec(scaling, policy.get("LaunchTemplate", {}).get("LaunchTemplateSpecification") or {})
        return {"template": spec, "configuration": None, "mixed": _complete(policy, spec)}
    return {}


def _complete(policy: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
    """A mixed instances policy with AWS's defaults."""
    overrides = list(policy["LaunchTemplate"].get("Overrides") or [])
    shown = {"LaunchTemplateId": spec.id, "LaunchTemplateName": spec.name, "Version": spec.version}
    distribution = {
        "OnDemandAllocationStrategy": "prioritized",
        "OnDemandBaseCapacity": 0,
        "OnDemandPercentageAboveBaseCapacity": 100,
        "SpotAllocationStrategy": "lowest-price",
    }
    return {
        "LaunchTemplate": {"LaunchTemplateSpecification": shown, "Overrides": overrides},
        "InstancesDistribution": {**distribution, **(policy.get("InstancesDistribution") or {})},
    }


def read_spec(scaling: Scaling, given: Mapping[str, Any]) -> Spec:
    """A template that exists, with id and name, and the version as it was given."""
    if not given.get("LaunchTemplateId") and not given.get("LaunchTemplateName"):
        raise invalid("Valid requests must contain either launchTemplateId or LaunchTemplateName")
    if given.get("LaunchTemplateId") and given.get("LaunchTemplateName"):
        raise invalid("Valid requests must contain either launchTemplateId or LaunchTemplateName")
    try:
        found = scaling.ec2.template(given).spec
    except AwsError as error:
        raise invalid(f"You must use a valid fully-formed launch template. {error.message}") from error
    return Spec(found.id, found.name, str(given.get("Version") or "$Default"))


def check_launchable(scaling: Scaling, group: Group, caller: Caller) -> None:
    """AWS tries the template out when a group is given one, with the caller's own rights."""
    if group.template is None:
        return
    scaling.templates.clear()
    try:
        scaling.ec2.try_out(next(launching.orders_of(scaling, group, group.places[0])), caller)
    except AwsError as error:
        if error.code == "UnauthorizedOperation":
            raise AwsError(
                "AccessDenied", f"You are not authorized to use launch template: {group.template.id}", 403
            ) from error
        raise invalid(f"You must use a valid fully-formed launch template. {error.message}") from error


def read_hook(given: Mapping[str, Any], before: Hook | None = None) -> Hook:
    """A lifecycle hook; what is not given stays as it was."""
    transition = given.get("LifecycleTransition") or (before.transition if before else "")
    if transition not in (LAUNCHING, TERMINATING):
        raise invalid(f"Lifecycle hook transition {transition} is not valid: use {LAUNCHING} or {TERMINATING}.")
    heartbeat = int(given.get("HeartbeatTimeout") or (before.heartbeat if before else 3600))
    if not 30 <= heartbeat <= 7200:
        raise invalid(f"Heartbeat Timeout must be between 30 and 7200 seconds: {heartbeat}")
    default = given.get("DefaultResult") or (before.default if before else "ABANDON")
    if default not in ("CONTINUE", "ABANDON"):
        raise invalid(f"Default result {default} is not valid: use CONTINUE or ABANDON.")
    return Hook(
        name=given["LifecycleHookName"],
        transition=transition,
        heartbeat=heartbeat,
        default=default,
        target=given.get("NotificationTargetARN", before.target if before else None),
        role=given.get("RoleARN", before.role if before else None),
        metadata=given.get("NotificationMetadata", before.metadata if before else None),
    )


def read_tags(given: Iterable[Mapping[str, Any]]) -> dict[str, Tag]:
    tags: dict[str, Tag] = {}
    for one in given:
        key = one.get("Key") or ""
        if not key or len(key) > 128:
            raise invalid("Tag keys must have 1 to 128 characters.")
        if key.lower().startswith("aws:"):
            raise invalid(f"Tag key {key} is not valid: aws: prefixed tag key names are not allowed for external use.")
        # botocore's model has no default here; AWS's is false.
        tags[key] = Tag(str(one.get("Value") or ""), bool(one.get("PropagateAtLaunch", False)))
    if len(tags) > 50:
        raise AwsError("LimitExceeded", "You may have at most 50 tags on an Auto Scaling group.")
    return tags
