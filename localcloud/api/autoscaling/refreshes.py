"""EC2 Auto Scaling: instance refresh, on request."""

from __future__ import annotations

from dataclasses import replace

from localcloud.api.autoscaling import instance_refresh, responses, validation
from localcloud.api.autoscaling.records import Group, Refresh, new_id
from localcloud.api.autoscaling.regions import scaling_in
from localcloud.api.autoscaling.state import Scaling
from localcloud.api.autoscaling.validation import invalid
from localcloud.core.cloud import Call, Result, answers
from localcloud.core.errors import AwsError


def _changed_group(call: Call) -> tuple[Scaling, Group]:
    scaling = scaling_in(call.cloud, call.region)
    return scaling, validation.changeable(scaling, call.params["AutoScalingGroupName"])


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
    requested = params.get("Preferences") or {}
    warmup = group.stored.get("DefaultInstanceWarmup", group.grace_period)
    preferences = {
        "MinHealthyPercentage": 90,
        "MaxHealthyPercentage": 100,
        "InstanceWarmup": warmup if warmup >= 0 else group.grace_period,
        "SkipMatching": False,
        "AutoRollback": False,
        "ScaleInProtectedInstances": "Ignore",
        **requested,
    }
    if not 0 <= preferences["MinHealthyPercentage"] <= 100:
        raise invalid("MinHealthyPercentage must be between 0 and 100.")
    desired = params.get("DesiredConfiguration")
    if desired:
        trial = replace(group, **validation.read_source(scaling, desired))
        validation.check_launchable(scaling, trial, call.caller)
        group.template = trial.template
    scaling.templates.clear()
    refresh = Refresh(new_id(), scaling.now, preferences, desired)
    instance_refresh.begin(scaling, group, refresh)
    scaling.schedule_step()
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
    scaling.schedule_step()
    return {"InstanceRefreshId": refresh.id}


@answers("autoscaling", "DescribeInstanceRefreshes")
def describe_refreshes(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group = validation.group_named(scaling, params["AutoScalingGroupName"])
    ids = params.get("InstanceRefreshIds")
    refreshes = [refresh for refresh in reversed(group.refreshes) if not ids or refresh.id in ids]
    refreshes, token = responses.page(refreshes, lambda refresh: refresh.id, params, 50, 100)
    return {"InstanceRefreshes": [responses.refresh(group, refresh) for refresh in refreshes], **token}
