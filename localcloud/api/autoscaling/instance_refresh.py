"""Instance refresh: replace the instances of a group step by step."""

from __future__ import annotations

import math

from localcloud.api.autoscaling import launching, messages, termination
from localcloud.api.autoscaling.records import Group, Member, Refresh
from localcloud.api.autoscaling.state import Scaling
from localcloud.core.errors import AwsError


def begin(scaling: Scaling, group: Group, refresh: Refresh) -> None:
    """Select the instances to replace: all, or those that do not match what the group now launches."""
    members = list(group.in_service)
    refresh.initial_members = frozenset(group.members)
    if refresh.preferences["SkipMatching"]:
        members = [member for member in members if not _matches(scaling, group, member)]
    refresh.remaining = [member.id for member in members if not member.protected or _takes_protected(refresh)]
    refresh.total = len(refresh.remaining)
    group.refreshes.append(refresh)


def _takes_protected(refresh: Refresh) -> bool:
    return refresh.preferences.get("ScaleInProtectedInstances") == "Refresh"


def _matches(scaling: Scaling, group: Group, member: Member) -> bool:
    try:
        return member.template == launching.resolve(scaling, launching.template_reference(group.template)).specification
    except AwsError:
        return False


def step(scaling: Scaling, group: Group) -> None:
    refresh = group.refresh
    if refresh is None:
        return
    refresh.remaining = [name for name in refresh.remaining if name in group.members and group.members[name].counts]
    if refresh.status == "Cancelling":
        finish(refresh, "Cancelled", scaling.now, "Cancelled due to user request.")
        return
    if not (group.allows("InstanceRefresh") and group.allows("Launch") and group.allows("Terminate")):
        return
    refresh.status = "InProgress"
    ready = [member for member in group.in_service if _is_warm(refresh, member, scaling.now)]
    if not refresh.remaining and len(ready) >= group.desired == group.counted:
        finish(refresh, "Successful", scaling.now)
        return
    minimum = math.ceil(group.desired * refresh.preferences["MinHealthyPercentage"] / 100)
    spare = len(ready) - minimum
    if spare <= 0 and len(ready) >= group.desired and group.counted == group.desired:
        # The percentage allows none of so few to be missing: replace one at a time, or the refresh would never end.
        spare = 1
    for name in refresh.remaining[: max(0, spare)]:
        termination.end(scaling, group, group.members[name], messages.cause((), scaling.now, messages.REFRESHES))
    refresh.remaining = [name for name in refresh.remaining if group.members[name].counts]


def _is_warm(refresh: Refresh, member: Member, now: float) -> bool:
    """Return whether an instance counts as healthy: one of the refresh does only after its warm-up."""
    if member.health != "Healthy" or member.since is None:
        return False
    return member.id in refresh.initial_members or now >= member.since + refresh.preferences["InstanceWarmup"]


def finish(refresh: Refresh, status: str, now: float, reason: str | None = None) -> None:
    refresh.status, refresh.end, refresh.reason = status, now, reason
