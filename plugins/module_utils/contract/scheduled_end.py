# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The scheduled actions of Auto Scaling that end a cluster's machines."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from .names import Names

HOUR = 3600
_ONE_DATE = re.compile(r"\d+ \d+ \d+ \d+ \*")

RECURS_SECONDS = 600

TTL, IDLE, SETUP = "ttl", "idle", "setup"
"""What an action is for, and the end of its name: cluster_ttl_hours, cluster_idle_minutes, and machines of which none
has ever been in service."""
KINDS = (TTL, IDLE, SETUP)


def action_names(cluster: str) -> list[str]:
    return [Names(cluster).of(kind) for kind in KINDS]


def start_of(kind: str, seconds: float) -> int:
    """Return the first minute of a kind that is not before a time. Two actions of a group must not have the same time,
    so each kind has every third minute."""
    offset = 60 * KINDS.index(kind)
    step = 60 * len(KINDS)
    return math.ceil((seconds - offset) / step) * step + offset


def once(kind: str, seconds: float) -> dict[str, Any]:
    """Return the fields of an action that ends a group's machines once, at the first suitable minute.

    It has all fields that an action may have, as AWS does not document for PutScheduledUpdateGroupAction whether one
    that is left out keeps its value.
    """
    start = start_of(kind, seconds)
    moment = time.gmtime(start)
    return {
        "StartTime": datetime.fromtimestamp(start, timezone.utc),
        "EndTime": datetime.fromtimestamp(start + RECURS_SECONDS, timezone.utc),
        "Recurrence": f"{moment.tm_min} {moment.tm_hour} {moment.tm_mday} {moment.tm_mon} *",
        "MinSize": 0,
        "MaxSize": 0,
        "DesiredCapacity": 0,
    }


def scheduled_ends(actions: Iterable[Mapping[str, Any]], cluster: str, now: float) -> dict[str, dict[str, float]]:
    """Return when the groups end, in seconds since the epoch, by kind and group.

    `actions`: as DescribeScheduledActions returns them. One that has run may still be listed.
    """
    groups = Names(cluster).groups.values()
    ends: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
    for action in actions:
        kind = str(action["ScheduledActionName"]).rpartition("-")[2]
        start, group = action["StartTime"].timestamp(), str(action["AutoScalingGroupName"])
        is_over = start <= now or ("EndTime" in action and start >= action["EndTime"].timestamp())
        if group in groups and action["ScheduledActionName"] == Names(cluster).of(kind) and not is_over:
            ends.get(kind, {})[group] = start
    return ends


@dataclass(frozen=True)
class ForeignAction:
    """A scheduled action of one of the cluster's groups that is not the collection's."""

    group: str
    name: str
    sizes: str
    """What it sets the group's sizes to, as text."""
    at: float
    """When it runs next, in seconds since the epoch."""
    ends_soon: bool
    """Whether it ends the group's machines within the hour."""

    @property
    def shown(self) -> str:
        """The name for messages and for `delete_actions`: any other user of the account, or a hostile master, chose it,
        so all but plain characters are encoded as in URLs."""
        return quote(self.name, safe=":@/")

    def __str__(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.at))
        return f"{self.group} has the scheduled action {self.shown}, which is not ours: {self.sizes}, next run {at}"


def foreign_actions(actions: Iterable[Mapping[str, Any]], cluster: str, now: float) -> list[ForeignAction]:
    """Return the actions of the cluster's groups that other people or programs have scheduled, and those with our names
    but other sizes, or that run more than once. One that is over is left out."""
    return sorted(_foreign(actions, cluster, now), key=lambda action: (action.at, action.group, action.name))


def _foreign(actions: Iterable[Mapping[str, Any]], cluster: str, now: float) -> Iterator[ForeignAction]:
    for action in actions:
        name, group = str(action["ScheduledActionName"]), str(action["AutoScalingGroupName"])
        sizes = {key: action[key] for key in ("MinSize", "MaxSize", "DesiredCapacity") if action.get(key) is not None}
        start = action["StartTime"].timestamp()
        end = action["EndTime"].timestamp() if action.get("EndTime") else None
        recurrence = str(action.get("Recurrence") or "")
        # Ours have one date. Their end, soon after it, keeps them from coming again in a year.
        once = not recurrence or (end is not None and end - start < HOUR and bool(_ONE_DATE.fullmatch(recurrence)))
        ours = name in action_names(cluster) and once and set(sizes.values()) == {0}
        is_over = (end is not None and max(now, start) >= end) or (not recurrence and start <= now)
        if group in Names(cluster).groups.values() and not ours and not is_over:
            text = ", ".join(f"{key} {int(value)}" for key, value in sizes.items()) or "no sizes"
            ends = 0 in (sizes.get("MaxSize"), sizes.get("DesiredCapacity"))
            yield ForeignAction(group, name, text, max(start, now), ends and start - now <= HOUR)


def earliest(ends: Mapping[str, Mapping[str, float]], kind: str) -> float | None:
    return min(ends[kind].values(), default=None)
