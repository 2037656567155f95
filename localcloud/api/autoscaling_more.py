"""EC2 Auto Scaling: processes, tags, instance refresh, launch configurations, and what is only kept and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from localcloud.api.registry import Call, Result, answers
from localcloud.autoscaling import checking, refreshing, shown
from localcloud.autoscaling.checking import invalid
from localcloud.autoscaling.choosing import POLICIES
from localcloud.autoscaling.engine import Scaling
from localcloud.autoscaling.records import PROCESSES, Group, Refresh, new_id
from localcloud.autoscaling.regions import scaling_in
from localcloud.autoscaling.words import moment
from localcloud.cloud import arn
from localcloud.errors import AwsError

METRICS = (
    "GroupMinSize",
    "GroupMaxSize",
    "GroupDesiredCapacity",
    "GroupInServiceInstances",
    "GroupPendingInstances",
    "GroupStandbyInstances",
    "GroupTerminatingInstances",
    "GroupTotalInstances",
)

NOTIFICATIONS = (
    "autoscaling:EC2_INSTANCE_LAUNCH",
    "autoscaling:EC2_INSTANCE_LAUNCH_ERROR",
    "autoscaling:EC2_INSTANCE_TERMINATE",
    "autoscaling:EC2_INSTANCE_TERMINATE_ERROR",
    "autoscaling:TEST_NOTIFICATION",
)


def _changed_group(call: Call) -> tuple[Scaling, Group]:
    scaling = scaling_in(call.cloud, call.region)
    return scaling, checking.changeable(scaling, call.params["AutoScalingGroupName"])


# Processes


@answers("autoscaling", "SuspendProcesses", "ResumeProcesses")
def suspend_or_resume(call: Call) -> Result:
    scaling, group = _changed_group(call)
    names = call.params.get("ScalingProcesses") or list(PROCESSES)
    for name in names:
        if name not in PROCESSES:
            raise invalid(f"{name} is not a valid process: use {', '.join(PROCESSES)}.")
    for name in names:
        if call.operation == "ResumeProcesses":
            group.suspended.pop(name, None)
        elif name not in group.suspended:
            group.suspended[name] = f"User suspended at {moment(scaling.now):%Y-%m-%dT%H:%M:%SZ}"
    if call.operation == "ResumeProcesses":
        group.try_at_once()
    scaling.kick()
    return {}


@answers("autoscaling", "DescribeScalingProcessTypes")
def describe_processes(call: Call) -> Result:
    return {"Processes": [{"ProcessName": name} for name in sorted(PROCESSES)]}


# Tags


@answers("autoscaling", "CreateOrUpdateTags")
def put_tags(call: Call) -> Result:
    scaling = scaling_in(call.cloud, call.region)
    given = [(_tagged(scaling, tag), tag) for tag in call.params["Tags"]]
    checking.read_tags(tag for _, tag in given)
    for group, tag in given:
        group.tags.update(checking.read_tags([tag]))
    return {}


@answers("autoscaling", "DeleteTags")
def delete_tags(call: Call) -> Result:
    """With a value, the tag is removed only if it has that value."""
    scaling = scaling_in(call.cloud, call.region)
    for group, tag in [(_tagged(scaling, tag), tag) for tag in call.params["Tags"]]:
        held = group.tags.get(tag["Key"])
        if held is not None and tag.get("Value") in (None, held.value):
            del group.tags[tag["Key"]]
    return {}


def _tagged(scaling: Scaling, tag: Mapping[str, Any]) -> Group:
    if tag.get("ResourceType", "auto-scaling-group") != "auto-scaling-group" or not tag.get("ResourceId"):
        raise invalid("Tags need a ResourceId and the ResourceType auto-scaling-group.")
    return checking.group_named(scaling, tag["ResourceId"])


@answers("autoscaling", "DescribeTags")
def describe_tags(call: Call) -> Result:
    scaling = scaling_in(call.cloud, call.region)
    fields: dict[str, Callable[[dict[str, Any]], str]] = {
        "auto-scaling-group": lambda tag: tag["ResourceId"],
        "key": lambda tag: tag["Key"],
        "value": lambda tag: tag["Value"],
        "propagate-at-launch": lambda tag: str(tag["PropagateAtLaunch"]).lower(),
    }
    tags = [tag for _, group in sorted(scaling.groups.items()) for tag in shown.tags(group)]
    for wanted in call.params.get("Filters") or []:
        field = fields.get(wanted.get("Name", ""))
        if field is None:
            raise invalid(
                f"Filter type {wanted.get('Name')} is not correct. Allowed Filter types are: {', '.join(fields)}"
            )
        tags = [
            tag
            for tag in tags
            if field(tag)
            in [value.lower() if value in ("True", "False") else value for value in wanted.get("Values") or []]
        ]
    tags, token = shown.page(tags, lambda tag: f"{tag['ResourceId']}:{tag['Key']}", call.params, 50, 100)
    return {"Tags": tags, **token}


# Instance refresh


@answers("autoscaling", "StartInstanceRefresh")
def start_refresh(call: Call) -> Result:
    scaling, group = _changed_group(call)
    params = call.params
    if params.get("Strategy", "Rolling") != "Rolling":
        raise invalid("The local cloud knows the refresh strategy Rolling only.")
    if group.refresh is not None:
        raise AwsError(
            "InstanceRefreshInProgress",
            "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh.",
        )
    given = params.get("Preferences") or {}
    warmup = group.stored.get("DefaultInstanceWarmup", group.grace)
    preferences = {
        "MinHealthyPercentage": 90,
        "MaxHealthyPercentage": 100,
        "InstanceWarmup": warmup if warmup >= 0 else group.grace,
        "SkipMatching": False,
        "AutoRollback": False,
        "ScaleInProtectedInstances": "Ignore",
        "StandbyInstances": "Ignore",
        **given,
    }
    if not 0 <= preferences["MinHealthyPercentage"] <= 100:
        raise invalid("MinHealthyPercentage must be between 0 and 100.")
    desired = params.get("DesiredConfiguration")
    if desired:
        trial = replace(group, **checking.read_source(scaling, desired))
        checking.check_launchable(scaling, trial, call.caller)
        group.template, group.configuration, group.mixed = trial.template, trial.configuration, trial.mixed
    scaling.templates.clear()
    refresh = Refresh(new_id(), scaling.now, preferences, desired)
    refreshing.begin(scaling, group, refresh)
    scaling.kick()
    return {"InstanceRefreshId": refresh.id}


@answers("autoscaling", "CancelInstanceRefresh")
def cancel_refresh(call: Call) -> Result:
    scaling, group = _changed_group(call)
    refresh = group.refresh
    if refresh is None:
        raise AwsError(
            "ActiveInstanceRefreshNotFound",
            f"No in progress or pending Instance Refresh found for Auto Scaling group {group.name}",
        )
    refresh.status = "Cancelling"
    scaling.kick()
    return {"InstanceRefreshId": refresh.id}


@answers("autoscaling", "DescribeInstanceRefreshes")
def describe_refreshes(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = checking.group_named(scaling, params["AutoScalingGroupName"])
    ids = params.get("InstanceRefreshIds")
    found = [refresh for refresh in reversed(group.refreshes) if not ids or refresh.id in ids]
    found, token = shown.page(found, lambda refresh: refresh.id, params, 50, 100)
    return {"InstanceRefreshes": [shown.refresh(group, refresh) for refresh in found], **token}


# Launch configurations: AWS has given them up, old tools have not


@answers("autoscaling", "CreateLaunchConfiguration")
def create_configuration(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    name = params["LaunchConfigurationName"]
    if name in scaling.configurations:
        raise AwsError(
            "AlreadyExists",
            "Launch Configuration by this name already exists - "
            f"A launch configuration already exists with the name {name}",
        )
    if params.get("InstanceId") or not params.get("ImageId") or not params.get("InstanceType"):
        raise invalid("Valid requests must contain ImageId and InstanceType.")
    empty = {"KeyName": "", "SecurityGroups": [], "UserData": "", "KernelId": "", "RamdiskId": ""}
    scaling.configurations[name] = {
        **empty,
        "BlockDeviceMappings": [],
        "ClassicLinkVPCSecurityGroups": [],
        "InstanceMonitoring": {"Enabled": True},
        "EbsOptimized": False,
        **params,
        "LaunchConfigurationARN": arn(
            "autoscaling", call.region, f"launchConfiguration:{new_id()}:launchConfigurationName/{name}"
        ),
        "CreatedTime": moment(scaling.now),
    }
    return {}


@answers("autoscaling", "DescribeLaunchConfigurations")
def describe_configurations(call: Call) -> Result:
    scaling, names = scaling_in(call.cloud, call.region), call.params.get("LaunchConfigurationNames")
    found = [one for name, one in sorted(scaling.configurations.items()) if not names or name in names]
    found, token = shown.page(found, lambda one: str(one["LaunchConfigurationName"]), call.params, 50, 100)
    return {"LaunchConfigurations": found, **token}


@answers("autoscaling", "DeleteLaunchConfiguration")
def delete_configuration(call: Call) -> Result:
    scaling, name = scaling_in(call.cloud, call.region), call.params["LaunchConfigurationName"]
    if name not in scaling.configurations:
        raise invalid(f"Launch configuration name not found - Launch configuration {name} not found")
    for group in scaling.groups.values():
        if group.configuration == name:
            raise AwsError(
                "ResourceInUse",
                f"Cannot delete launch configuration {name} because it is attached to AutoScalingGroup {group.name}",
            )
    del scaling.configurations[name]
    return {}


# Kept and shown, without any effect


@answers("autoscaling", "PutNotificationConfiguration")
def put_notification(call: Call) -> Result:
    _, group = _changed_group(call)
    kinds = call.params["NotificationTypes"]
    if unknown := [kind for kind in kinds if kind not in NOTIFICATIONS]:
        raise invalid(f'"{unknown[0]}" is not a valid Notification Type.')
    group.notifications[call.params["TopicARN"]] = list(kinds)
    return {}


@answers("autoscaling", "DeleteNotificationConfiguration")
def delete_notification(call: Call) -> Result:
    _, group = _changed_group(call)
    group.notifications.pop(call.params["TopicARN"], None)
    return {}


@answers("autoscaling", "DescribeNotificationConfigurations")
def describe_notifications(call: Call) -> Result:
    scaling, names = scaling_in(call.cloud, call.region), call.params.get("AutoScalingGroupNames")
    found = [
        {"AutoScalingGroupName": name, "TopicARN": topic, "NotificationType": kind}
        for name, group in sorted(scaling.groups.items())
        if not names or name in names
        for topic, kinds in sorted(group.notifications.items())
        for kind in kinds
    ]
    found, token = shown.page(found, lambda one: ":".join(one.values()), call.params, 50, 100)
    return {"NotificationConfigurations": found, **token}


@answers("autoscaling", "EnableMetricsCollection", "DisableMetricsCollection")
def collect_metrics(call: Call) -> Result:
    _, group = _changed_group(call)
    names = set(call.params.get("Metrics") or METRICS)
    group.metrics = group.metrics | names if call.operation.startswith("Enable") else group.metrics - names
    return {}


@answers("autoscaling", "AttachLoadBalancers", "DetachLoadBalancers")
def balance(call: Call) -> Result:
    _, group = _changed_group(call)
    group.balancers = _with_or_without(group.balancers, call.params["LoadBalancerNames"], call.operation)
    return {}


@answers("autoscaling", "AttachLoadBalancerTargetGroups", "DetachLoadBalancerTargetGroups")
def target(call: Call) -> Result:
    _, group = _changed_group(call)
    group.targets = _with_or_without(group.targets, call.params["TargetGroupARNs"], call.operation)
    return {}


def _with_or_without(held: list[str], names: list[str], operation: str) -> list[str]:
    rest = [name for name in held if name not in names]
    return rest + list(names) if operation.startswith("Attach") else rest


@answers("autoscaling", "DescribeLoadBalancers")
def describe_balancers(call: Call) -> Result:
    _, group = _changed_group(call)
    return {"LoadBalancers": [{"LoadBalancerName": name, "State": "InService"} for name in group.balancers]}


@answers("autoscaling", "DescribeLoadBalancerTargetGroups")
def describe_targets(call: Call) -> Result:
    _, group = _changed_group(call)
    return {
        "LoadBalancerTargetGroups": [
            {"LoadBalancerTargetGroupARN": name, "State": "InService"} for name in group.targets
        ]
    }


# Lists that never change


@answers("autoscaling", "DescribeTerminationPolicyTypes")
def describe_policies(call: Call) -> Result:
    return {"TerminationPolicyTypes": list(POLICIES)}


@answers("autoscaling", "DescribeAdjustmentTypes")
def describe_adjustments(call: Call) -> Result:
    names = ("ChangeInCapacity", "ExactCapacity", "PercentChangeInCapacity")
    return {"AdjustmentTypes": [{"AdjustmentType": name} for name in names]}


@answers("autoscaling", "DescribeAutoScalingNotificationTypes")
def describe_notification_types(call: Call) -> Result:
    return {"AutoScalingNotificationTypes": list(NOTIFICATIONS)}


@answers("autoscaling", "DescribeMetricCollectionTypes")
def describe_metrics(call: Call) -> Result:
    return {"Metrics": [{"Metric": name} for name in METRICS], "Granularities": [{"Granularity": "1Minute"}]}


@answers("autoscaling", "DescribeAccountLimits")
def describe_limits(call: Call) -> Result:
    scaling = scaling_in(call.cloud, call.region)
    return {
        "MaxNumberOfAutoScalingGroups": 500,
        "MaxNumberOfLaunchConfigurations": 200,
        "NumberOfAutoScalingGroups": len(scaling.groups),
        "NumberOfLaunchConfigurations": len(scaling.configurations),
    }


# What nothing here acts on is refused, so that nobody relies on it. Asked for what there is of it: nothing.


@answers(
    "autoscaling",
    "AttachTrafficSources",
    "BatchDeleteScheduledAction",
    "BatchPutScheduledUpdateGroupAction",
    "DeletePolicy",
    "DeleteScheduledAction",
    "DeleteWarmPool",
    "DescribeAccountSettings",
    "DetachTrafficSources",
    "ExecutePolicy",
    "GetPredictiveScalingForecast",
    "PutAccountSetting",
    "PutScalingPolicy",
    "PutScheduledUpdateGroupAction",
    "PutWarmPool",
    "RollbackInstanceRefresh",
)
def refuse(call: Call) -> Result:
    raise AwsError("UnsupportedOperation", f"The local cloud does not have {call.operation}.")


@answers("autoscaling", "DescribePolicies")
def describe_no_policies(call: Call) -> Result:
    return {"ScalingPolicies": []}


@answers("autoscaling", "DescribeScheduledActions")
def describe_no_actions(call: Call) -> Result:
    return {"ScheduledUpdateGroupActions": []}


@answers("autoscaling", "DescribeTrafficSources")
def describe_no_sources(call: Call) -> Result:
    return {"TrafficSources": []}


@answers("autoscaling", "DescribeWarmPool")
def describe_no_pool(call: Call) -> Result:
    return {"Instances": []}
