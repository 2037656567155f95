"""EC2 Auto Scaling. Describe… calls have no resource types; all others are checked on the group.

For a group with a launch template, Auto Scaling makes a dry run of ec2:RunInstances on the caller's behalf, so the
caller needs all permissions of a launch, iam:PassRole and ec2:CreateTags included. The page says so of
CreateAutoScalingGroup and UpdateAutoScalingGroup. An update without a template is checked
with the group's own.

Auto Scaling's own role adds the tags that a group propagates to its instances.

https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-launch-template-permissions.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..patterns import Value
from ..rules import Call, Need, Service, pass_role, passed, service_linked_role, text_of
from .ec2 import launch_needs


def arn(call: Call, kind: str, name: str) -> str:
    """Return a group's ARN. The World knows the id in it; that of a new group is `*`."""
    if name.startswith("arn:"):
        return name
    existing = call.lookup("auto-scaling-group", name) if name != "*" else None
    return existing or call.arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{name}")


autoscaling = Service("autoscaling", "autoscaling", arn, ("aws:ResourceTag/", "autoscaling:ResourceTag/"))
on = autoscaling.on

_SIZES = "autoscaling:MinSize=MinSize autoscaling:MaxSize=MaxSize"
_CONFIGURED = "autoscaling:LaunchConfigurationName=LaunchConfigurationName"
_BALANCED = """
    autoscaling:LoadBalancerNames=LoadBalancerNames autoscaling:TargetGroupARNs=TargetGroupARNs
    autoscaling:TrafficSourceIdentifiers=TrafficSources.Identifier
"""


def change_group(call: Call) -> Iterator[Need]:
    """Need the action itself, with the keys that describe the requested group."""
    requested: dict[str, Value] = {}
    if templates := templates_of(call.params):
        numbered = all(str(template.get("Version") or "$Default").isdecimal() for template in templates)
        requested["autoscaling:LaunchTemplateVersionSpecified"] = text_of(numbered)
    if zones := call.value("VPCZoneIdentifier"):
        requested["autoscaling:VPCZoneIdentifiers"] = [zone.strip() for zone in zones.split(",")]
    creating = on(f"group=new:AutoScalingGroupName {_SIZES} {_CONFIGURED} {_BALANCED}")
    updating = on(f"group=AutoScalingGroupName {_SIZES} {_CONFIGURED}")
    for need in (creating if call.operation == "CreateAutoScalingGroup" else updating)(call):
        yield Need(need.action, need.resource, {**need.context, **requested})


def templates_of(params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the launch templates that a request or a group names."""
    mixed = (params.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}
    several = [mixed, *(mixed.get("Overrides") or [])]
    named = [params.get("LaunchTemplate"), *(override.get("LaunchTemplateSpecification") for override in several)]
    return [template for template in named if template]


def dry_run(call: Call) -> Iterator[Need]:
    group = call.world.auto_scaling_group(call.value("AutoScalingGroupName"), call.region) or {}
    zones = str(call.params.get("VPCZoneIdentifier") or group.get("VPCZoneIdentifier") or "")
    for template in templates_of(call.params) or templates_of(group):
        name = template.get("LaunchTemplateId") or template.get("LaunchTemplateName")
        for subnet in [zone.strip() for zone in zones.split(",")]:
            request = {"LaunchTemplate": template} | ({"SubnetId": subnet} if subnet else {})
            yield from launch_needs(call, request, reason=f"launch template {name}")


def creates_linked_role(call: Call) -> Iterator[Need]:
    own = call.value("ServiceLinkedRoleARN")
    if own:  # a role with a suffix instead of the default one: it is passed like any other role
        yield pass_role(call, own, "autoscaling.amazonaws.com")
    elif call.operation == "CreateAutoScalingGroup":
        yield from service_linked_role(call, "autoscaling.amazonaws.com")


ROWS = autoscaling.rows(
    change_group=change_group,
    dry_run=dry_run,
    creates_linked_role=creates_linked_role,
    passes_hook_role=passed("RoleARN", "autoscaling.amazonaws.com"),
    passes_hook_roles=passed("LifecycleHookSpecificationList.RoleARN", "autoscaling.amazonaws.com"),
)
