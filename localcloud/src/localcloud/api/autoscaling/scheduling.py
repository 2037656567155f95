"""Scheduled actions that are due."""

from __future__ import annotations

from localcloud.api.autoscaling import messages
from localcloud.api.autoscaling.records import Group, ScheduledAction
from localcloud.api.autoscaling.state import Scaling


def run_due(scaling: Scaling, group: Group) -> None:
    """Set the sizes of the actions that are due. An action with an end stays in the list until then, as on AWS."""
    now = scaling.now
    for action in sorted(group.scheduled.values(), key=lambda action: action.start):
        if action.start <= now and not action.has_run and group.allows("ScheduledActions"):
            _run(scaling, group, action)
        if action.start <= now and (action.end is None or action.end <= now):
            del group.scheduled[action.name]


def _run(scaling: Scaling, group: Group, action: ScheduledAction) -> None:
    action.has_run = True
    before = group.desired
    group.min_size = action.sizes.get("MinSize", group.min_size)
    group.max_size = action.sizes.get("MaxSize", group.max_size)
    desired = action.sizes.get("DesiredCapacity", group.desired)
    group.desired = min(max(desired, group.min_size), group.max_size)
    if group.desired != before:
        sentence = messages.updated(group.min_size, group.max_size, group.desired, before, by="scheduled action")
        group.reasons.append(messages.at(scaling.now, sentence))
    group.reset_backoff()
