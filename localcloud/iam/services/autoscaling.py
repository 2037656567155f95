"""EC2 Auto Scaling. Describe… calls know no resources; all others are checked on the group.

A group with a launch template is where most refusals come from: Auto Scaling makes a dry run of ec2:RunInstances in
the caller's name, so the caller needs everything that launching needs, iam:PassRole and ec2:CreateTags included.
The page says so of CreateAutoScalingGroup, UpdateAutoScalingGroup and StartInstanceRefresh, whoever named the
template: so an update that names none is checked against the group's own.

Tags that a group hands on to its instances are made by Auto Scaling's own role.

https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-launch-template-permissions.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..patterns import Value
from ..rules import Call, Need, Service, pass_role, passed, service_linked_role, tags_of, text_of
from .ec2 import launch_needs


def arn(call: Call, kind: str, name: str) -> str:
    """A group's ARN has an id that only the World knows; before there is one, it is `*`."""
    if name.startswith("arn:"):
        return name
    found = call.lookup("auto-scaling-group", name) if name != "*" else None
    return found or call.arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{name}")


def tags(call: Call, kind: str) -> Mapping[str, str]:
    return tags_of(call.params.get("Tags"))


autoscaling = Service("autoscaling", "autoscaling", arn, ("aws:ResourceTag/", "autoscaling:ResourceTag/"), tags)
on = autoscaling.on

ANY = on("*")
GROUP = on("group=AutoScalingGroupName")
INSTANCE = on("group=InstanceId<auto-scaling-instance")

_SIZES = "autoscaling:MinSize=MinSize autoscaling:MaxSize=MaxSize"
_BALANCED = "autoscaling:LoadBalancerNames=LoadBalancerNames autoscaling:TargetGroupARNs=TargetGroupARNs"


def change_group(call: Call) -> Iterator[Need]:
    """The action itself, with the keys that describe the group as the request wants it."""
    about: dict[str, Value] = {}
    if template := template_of(call.params):
        numbered = str(template.get("Version") or "$Default").isdecimal()
        about["autoscaling:LaunchTemplateVersionSpecified"] = text_of(numbered)
    if zones := call.value("VPCZoneIdentifier"):
        about["autoscaling:VPCZoneIdentifiers"] = [zone.strip() for zone in zones.split(",")]
    creating = on("group=new:AutoScalingGroupName", keys=f"{_SIZES} {_BALANCED}")
    updating = on("group=AutoScalingGroupName", keys=_SIZES)
    for need in (creating if call.operation == "CreateAutoScalingGroup" else updating)(call):
        yield Need(need.action, need.resource, {**need.context, **about})


def template_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The launch template that a request or a group names."""
    return params.get("LaunchTemplate") or {}


def tries_template(call: Call) -> Iterator[Need]:
    group = call.world.auto_scaling_group(call.value("AutoScalingGroupName"), call.region) or {}
    wanted = call.params.get("DesiredConfiguration") or {}
    template = template_of(call.params) or template_of(wanted) or template_of(group)
    if not template:
        return
    name = template.get("LaunchTemplateId") or template.get("LaunchTemplateName")
    zones = str(call.params.get("VPCZoneIdentifier") or group.get("VPCZoneIdentifier") or "")
    for subnet in [zone.strip() for zone in zones.split(",")]:
        asked = {"LaunchTemplate": template} | ({"SubnetId": subnet} if subnet else {})
        yield from launch_needs(call, asked, reason=f"launch template {name}")


def makes_role(call: Call) -> Iterator[Need]:
    own = call.value("ServiceLinkedRoleARN")
    if own:  # one with a suffix, for a group that does not use the default: it is passed like any other role
        yield pass_role(call, own, "autoscaling.amazonaws.com")
    elif call.operation == "CreateAutoScalingGroup":
        yield from service_linked_role(call, "autoscaling.amazonaws.com", "AWSServiceRoleForAutoScaling")


# fmt: off
ROWS = autoscaling.rows({
    # Groups
    "CreateAutoScalingGroup": (
        change_group,
        on("group=new:AutoScalingGroupName", action="CreateOrUpdateTags", given="Tags.Key",
           reason="the group is tagged"),
        tries_template, makes_role,
        passed("LifecycleHookSpecificationList.RoleARN", "autoscaling.amazonaws.com")),
    "UpdateAutoScalingGroup": (change_group, tries_template, makes_role),
    "DeleteAutoScalingGroup": on("group=AutoScalingGroupName", keys="autoscaling:ForceDelete=ForceDelete"),
    "DescribeAutoScalingGroups": ANY,
    "SetDesiredCapacity": GROUP,
    "SuspendProcesses": GROUP,
    "ResumeProcesses": GROUP,
    "DisableMetricsCollection": GROUP,
    "CreateOrUpdateTags": on("group=Tags.ResourceId", tagging=True),
    "DeleteTags": on("group=Tags.ResourceId", tagging=True),
    "DescribeTags": ANY,

    # Instances
    "DetachInstances": GROUP,
    "SetInstanceProtection": GROUP,
    "TerminateInstanceInAutoScalingGroup": INSTANCE,
    "DescribeAutoScalingInstances": ANY,

    # Hooks, activities, notifications
    "PutLifecycleHook": (GROUP, passed("RoleARN", "autoscaling.amazonaws.com")),
    "DeleteLifecycleHook": GROUP,
    "CompleteLifecycleAction": GROUP,
    "RecordLifecycleActionHeartbeat": GROUP,
    "DescribeLifecycleHooks": ANY,
    "DescribeScalingActivities": ANY,

    # Refreshes and warm pools
    "StartInstanceRefresh": (GROUP, tries_template),
    "CancelInstanceRefresh": GROUP,
    "DescribeInstanceRefreshes": ANY,

    # Launch configurations
})
# fmt: on
