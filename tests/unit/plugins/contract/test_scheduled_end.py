"""When the machines of a cluster are scheduled to end, and how that is scheduled."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.filter.schedule_once import schedule_once
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.scheduled_end import (
    IDLE,
    TTL,
    action_names,
    earliest,
    scheduled_ends,
)

NOW = 1_800_000_000.0


def action(name: str, seconds: float, group: str = "red-workers", end: float | None = None) -> dict[str, Any]:
    times = {"StartTime": seconds} | ({} if end is None else {"EndTime": end})
    moments = {key: datetime.fromtimestamp(NOW + value, UTC) for key, value in times.items()}
    return {"ScheduledActionName": name, "AutoScalingGroupName": group, **moments}


def test_the_ends_of_the_clusters_groups_are_found_by_their_names() -> None:
    assert action_names("red") == ["red-ttl", "red-idle"]
    listed = [
        action("red-ttl", 60),
        action("red-ttl", 50, group="red-master"),
        action("red-idle", 30),
        action("red-ttl", 10, group="blue-workers"),
        action("blue-ttl", 10),
        action("nightly", 10),
    ]
    ends = scheduled_ends(listed, "red", NOW)
    assert ends == {TTL: {"red-workers": NOW + 60, "red-master": NOW + 50}, IDLE: {"red-workers": NOW + 30}}
    assert earliest(ends, TTL) == NOW + 50
    assert earliest(scheduled_ends([], "red", NOW), TTL) is None


@pytest.mark.parametrize(
    "listed", [action("red-ttl", -1), action("red-ttl", -1, end=600), action("red-ttl", 365 * 86400, end=600)], ids=str
)
def test_an_action_that_has_run_ends_nothing_any_more(listed: dict[str, Any]) -> None:
    assert scheduled_ends([listed], "red", NOW) == {TTL: {}, IDLE: {}}


@pytest.mark.parametrize(
    ("kind", "at", "start", "recurrence"),
    [
        ("ttl", "2026-11-23T05:04:00Z", "2026-11-23T05:04:00Z", "4 5 23 11 *"),
        ("ttl", "2026-11-23T05:04:01Z", "2026-11-23T05:06:00Z", "6 5 23 11 *"),
        ("ttl", "2026-12-31T23:59:30Z", "2027-01-01T00:00:00Z", "0 0 1 1 *"),
        ("idle", "2026-11-23T05:04:00Z", "2026-11-23T05:05:00Z", "5 5 23 11 *"),
        ("idle", "2026-11-23T05:05:01Z", "2026-11-23T05:07:00Z", "7 5 23 11 *"),
    ],
)
def test_an_action_runs_once_at_a_minute_of_its_kind(kind: str, at: str, start: str, recurrence: str) -> None:
    schedule = schedule_once(datetime.fromisoformat(at).timestamp(), kind)
    assert (schedule["start_time"], schedule["recurrence"]) == (start, recurrence)
    first, end = (datetime.fromisoformat(schedule[key]) for key in ("start_time", "end_time"))
    assert 0 < (end - first).total_seconds() < 3600
