# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The scheduled actions of Auto Scaling that end a cluster's machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .names import Names

TTL, IDLE = "ttl", "idle"
"""What an action is for, and the end of its name: cluster_ttl_hours and cluster_idle_minutes."""


def action_names(cluster: str) -> list[str]:
    return [Names(cluster).of(kind) for kind in (TTL, IDLE)]


def scheduled_ends(actions: Iterable[Mapping[str, Any]], cluster: str, now: float) -> dict[str, dict[str, float]]:
    """Return when the groups end, in seconds since the epoch, by kind and group.

    `actions`: as DescribeScheduledActions returns them. One that has run may still be listed.
    """
    groups = Names(cluster).groups.values()
    ends: dict[str, dict[str, float]] = {TTL: {}, IDLE: {}}
    for action in actions:
        kind = str(action["ScheduledActionName"]).rpartition("-")[2]
        start, group = action["StartTime"].timestamp(), str(action["AutoScalingGroupName"])
        is_over = start <= now or ("EndTime" in action and start >= action["EndTime"].timestamp())
        if group in groups and action["ScheduledActionName"] == Names(cluster).of(kind) and not is_over:
            ends.get(kind, {})[group] = start
    return ends


def earliest(ends: Mapping[str, Mapping[str, float]], kind: str) -> float | None:
    return min(ends[kind].values(), default=None)
