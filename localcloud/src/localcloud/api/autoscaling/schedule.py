"""EC2 Auto Scaling: scheduled actions, on request. `scheduling` runs them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from localcloud.api.autoscaling import responses, validation
from localcloud.api.autoscaling.messages import datetime_of
from localcloud.api.autoscaling.records import Group, ScheduledAction, new_id
from localcloud.api.autoscaling.regions import scaling_in
from localcloud.api.autoscaling.validation import invalid
from localcloud.core.cloud import Call, Result, answers, arn
from localcloud.core.errors import AwsError

MAX_ACTIONS = 125
"""Of one group."""
SIZES = ("MinSize", "MaxSize", "DesiredCapacity")


@answers("autoscaling", "PutScheduledUpdateGroupAction")
def put(call: Call) -> Result:
    """Replace the action of that name. With the fault `keep-fields`, what the request leaves out keeps its value.

    AWS documents the latter for BatchPutScheduledUpdateGroupAction only, so clients must work with both.
    """
    scaling, params = scaling_in(call.cloud, call.region), call.params
    group, name = validation.changeable(scaling, params["AutoScalingGroupName"]), params["ScheduledActionName"]
    if name in group.scheduled and call.cloud.faults.of_kind("keep-fields"):
        params = _fields(group.scheduled[name]) | {key: value for key, value in params.items() if value is not None}
    sizes = {key: int(params[key]) for key in SIZES if params.get(key) is not None}
    if not sizes:
        raise invalid("At least one of MinSize, MaxSize or DesiredCapacity must be specified.")
    _check_sizes(sizes)
    start = _timestamp(params.get("StartTime") or params.get("Time"))
    if start is None:
        raise invalid("The local cloud runs scheduled actions at their StartTime.")
    if start <= scaling.now:
        raise invalid("Given start time is in the past")
    others = [action for action in group.scheduled.values() if action.name != name]
    if any(action.start == start for action in others):
        raise AwsError("AlreadyExists", "A scheduled action with this start time already exists for this group.")
    if len(others) >= MAX_ACTIONS:
        raise AwsError("LimitExceeded", f"You may have at most {MAX_ACTIONS} scheduled actions on a group.")
    recurrence, end = str(params.get("Recurrence") or ""), _timestamp(params.get("EndTime"))
    if end is not None and end <= start:
        raise invalid("Given end time is before the start time")
    _check_recurrence(recurrence, start, end)
    action_arn = arn(
        "autoscaling",
        call.region,
        f"scheduledUpdateGroupAction:{new_id()}:autoScalingGroupName/{group.name}:scheduledActionName/{name}",
    )
    group.scheduled[name] = ScheduledAction(name, action_arn, start, sizes, recurrence, end)
    return {}


def _fields(action: ScheduledAction) -> dict[str, Any]:
    end = None if action.end is None else datetime_of(action.end)
    return {**action.sizes, "StartTime": datetime_of(action.start), "EndTime": end, "Recurrence": action.recurrence}


def _check_sizes(sizes: Mapping[str, int]) -> None:
    low, high = sizes.get("MinSize", 0), sizes.get("MaxSize")
    bound = max(sizes.values()) if high is None else high
    validation.check_sizes(low, bound, sizes.get("DesiredCapacity", low))


def _check_recurrence(recurrence: str, start: float, end: float | None) -> None:
    """Refuse a recurrence that would run again: the local cloud runs each action once."""
    if not recurrence and end is None:
        return
    if not recurrence or end is None or not start < end < start + 360 * 86400:
        raise invalid(
            "The local cloud runs a scheduled action once: a Recurrence needs an EndTime before its second run."
        )
    first = datetime_of(start)
    if recurrence != f"{first.minute} {first.hour} {first.day} {first.month} *":
        raise invalid("The local cloud has recurrences of one date only: that of the StartTime.")


def _timestamp(value: Any) -> float | None:
    if value is None or isinstance(value, datetime):
        return value.timestamp() if value else None
    return datetime.fromisoformat(str(value)).timestamp()


@answers("autoscaling", "DeleteScheduledAction")
def delete(call: Call) -> Result:
    group = validation.group_named(scaling_in(call.cloud, call.region), call.params["AutoScalingGroupName"])
    if group.scheduled.pop(call.params["ScheduledActionName"], None) is None:
        raise invalid("Scheduled action name not found")
    return {}


@answers("autoscaling", "DescribeScheduledActions")
def describe(call: Call) -> Result:
    scaling, params = scaling_in(call.cloud, call.region), call.params
    name, names = params.get("AutoScalingGroupName"), params.get("ScheduledActionNames")
    groups = [validation.group_named(scaling, name)] if name else list(scaling.groups.values())
    pairs: list[tuple[Group, ScheduledAction]] = [
        (group, action)
        for group in groups
        for action in sorted(group.scheduled.values(), key=lambda action: action.start)
        if not names or action.name in names
    ]
    pairs, token = responses.page(pairs, lambda pair: pair[1].arn, params, 50, 100)
    return {"ScheduledUpdateGroupActions": [responses.scheduled_action(*pair) for pair in pairs], **token}
