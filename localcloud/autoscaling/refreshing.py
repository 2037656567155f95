"""Instance refresh: the instances of a group are replaced little by little."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from localcloud.autoscaling import ending, launching, words
from localcloud.autoscaling.records import Group, Member, Refresh
from localcloud.errors import AwsError

if TYPE_CHECKING:
    from localcloud.autoscaling.engine import Scaling


def begin(scaling: Scaling, group: Group, refresh: Refresh) -> None:
    """Which instances shall go: all, or those that do not match what the group now launches."""
    members = list(group.in_service)
    refresh.found = frozenset(group.members)
    if refresh.preferences["SkipMatching"]:
        members = [member for member in members if not _matches(scaling, group, member)]
    refresh.todo = [member.id for member in members if not member.protected or _takes_protected(refresh)]
    refresh.total = len(refresh.todo)
    group.refreshes.append(refresh)


def _takes_protected(refresh: Refresh) -> bool:
    return refresh.preferences.get("ScaleInProtectedInstances") == "Refresh"


def _matches(scaling: Scaling, group: Group, member: Member) -> bool:
    if group.template is None:
        return member.configuration == group.configuration
    try:
        return member.template == launching.resolve(scaling, launching.as_given(group.template)).spec
    except AwsError:
        return False


def step(scaling: Scaling, group: Group) -> None:
    refresh = group.refresh
    if refresh is None:
        return
    refresh.todo = [name for name in refresh.todo if name in group.members and group.members[name].counts]
    if refresh.status == "Cancelling":
        finish(refresh, "Cancelled", scaling.now, "Cancelled due to user request.")
        return
    if not (group.may("InstanceRefresh") and group.may("Launch") and group.may("Terminate")):
        return
    refresh.status = "InProgress"
    ready = [member for member in group.in_service if _is_warm(refresh, member, scaling.now)]
    if not refresh.todo and len(ready) >= group.desired == group.counted:
        finish(refresh, "Successful", scaling.now)
        return
    least = math.ceil(group.desired * refresh.preferences["MinHealthyPercentage"] / 100)
    spare = len(ready) - least
    if spare <= 0 and len(ready) >= group.desired and group.counted == group.desired:
        # No share of so few may be missing: one at a time, or it would never end.
        spare = 1
    for name in refresh.todo[: max(0, spare)]:
        ending.end(scaling, group, group.members[name], words.cause((), scaling.now, words.REFRESHES))
    refresh.todo = [name for name in refresh.todo if group.members[name].counts]


def _is_warm(refresh: Refresh, member: Member, now: float) -> bool:
    """An instance that the refresh brought counts as healthy only after its warm-up."""
    if member.health != "Healthy" or member.since is None:
        return False
    return member.id in refresh.found or now >= member.since + refresh.preferences["InstanceWarmup"]


def finish(refresh: Refresh, status: str, now: float, reason: str | None = None) -> None:
    refresh.status, refresh.end, refresh.reason = status, now, reason
