"""When the machines of a cluster are scheduled to end, and how that is scheduled."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.filter.core import schedule_once
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.scheduled_end import (
    IDLE,
    SETUP,
    TTL,
    action_names,
    earliest,
    foreign_actions,
    scheduled_ends,
)

NOW = 1_800_000_000.0


def action(name: str, seconds: float, group: str = "red-workers", end: float | None = None) -> dict[str, Any]:
    times = {"StartTime": seconds} | ({} if end is None else {"EndTime": end})
    moments = {key: datetime.fromtimestamp(NOW + value, UTC) for key, value in times.items()}
    return {"ScheduledActionName": name, "AutoScalingGroupName": group, **moments}


def test_the_ends_of_the_clusters_groups_are_found_by_their_names() -> None:
    assert action_names("red") == ["red-ttl", "red-idle", "red-setup"]
    listed = [
        action("red-ttl", 60),
        action("red-ttl", 50, group="red-master"),
        action("red-idle", 30),
        action("red-ttl", 10, group="blue-workers"),
        action("blue-ttl", 10),
        action("nightly", 10),
    ]
    ends = scheduled_ends(listed, "red", NOW)
    assert ends == {TTL: {"red-workers": NOW + 60, "red-master": NOW + 50}, IDLE: {"red-workers": NOW + 30}, SETUP: {}}
    assert earliest(ends, TTL) == NOW + 50
    assert earliest(scheduled_ends([], "red", NOW), TTL) is None


@pytest.mark.parametrize(
    "listed", [action("red-ttl", -1), action("red-ttl", -1, end=600), action("red-ttl", 365 * 86400, end=600)], ids=str
)
def test_an_action_that_has_run_ends_nothing_any_more(listed: dict[str, Any]) -> None:
    assert scheduled_ends([listed], "red", NOW) == {TTL: {}, IDLE: {}, SETUP: {}}


SIZES = {"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}
YEARLY = {"Recurrence": "4 5 23 11 *"}
MINUTELY = {"Recurrence": "* * * * *"}


@pytest.mark.parametrize(
    ("listed", "foreign", "soon"),
    [
        # Ours, as site.yml and as the master schedule them.
        (action("red-ttl", 60, end=660) | SIZES | YEARLY, False, False),
        (action("red-idle", 60) | SIZES, False, False),
        (action("red-setup", 60, end=660) | SIZES | YEARLY, False, False),
        (action("zz", 60) | SIZES | MINUTELY, True, True),
        (action("zz", 60, group="red-master") | SIZES, True, True),
        (action("zz", -60) | MINUTELY | SIZES, True, True),
        (action("zz", 60) | MINUTELY | {"DesiredCapacity": 0}, True, True),
        (action("zz", 3601) | MINUTELY | SIZES, True, False),
        (action("zz", 60) | {"MaxSize": 4}, True, False),
        (action("zz", 60), True, False),
        (action("red-ttl", 60) | SIZES | YEARLY, True, True),
        (action("red-ttl", 60, end=7200) | SIZES | YEARLY, True, True),
        (action("red-idle", 60, end=660) | SIZES | MINUTELY, True, True),
        (action("red-idle", 60) | SIZES | {"MaxSize": 1, "DesiredCapacity": 1}, True, False),
        # Over, or another cluster's.
        (action("zz", -60) | SIZES, False, False),
        (action("zz", -60, end=-1) | SIZES | MINUTELY, False, False),
        (action("zz", 60, end=10) | SIZES | MINUTELY, False, False),
        (action("zz", 60, group="blue-workers") | SIZES | MINUTELY, False, False),
    ],
)
def test_what_others_have_scheduled_is_found(listed: dict[str, Any], foreign: bool, soon: bool) -> None:
    actions = foreign_actions([listed], "red", NOW)
    assert [foreign_action.ends_soon for foreign_action in actions] == [soon] * foreign
    for foreign_action in actions:
        assert (foreign_action.group, foreign_action.name) == (
            listed["AutoScalingGroupName"],
            listed["ScheduledActionName"],
        )
        assert foreign_action.at == max(NOW, listed["StartTime"].timestamp())


def test_an_action_of_others_is_named_with_its_sizes_and_its_next_run() -> None:
    (first, second) = foreign_actions([action("zz", 120) | SIZES, action("night ly", 60) | {"MaxSize": 4}], "red", NOW)
    assert str(first) == (
        "red-workers has the scheduled action night%20ly, which is not ours: MaxSize 4, next run 2027-01-15 08:01 UTC"
    )
    assert str(second).endswith(
        "zz, which is not ours: MinSize 0, MaxSize 0, DesiredCapacity 0, next run 2027-01-15 08:02 UTC"
    )


@pytest.mark.parametrize(
    "name", ["{{ lookup('pipe', 'id') }}", "zz; id", "$(id)", "zz\x1b[2J", "zz\u202e", "a,b", "'", "{% x"]
)
def test_the_name_of_another_ones_action_is_plain_text(name: str) -> None:
    (foreign,) = foreign_actions([action(name, 60) | SIZES], "red", NOW)
    assert foreign.name == name and re.fullmatch(r"[\w.~:@/%-]+", foreign.shown, re.ASCII)
    assert name not in str(foreign) and foreign.shown in str(foreign)


@pytest.mark.parametrize(
    ("kind", "at", "start", "recurrence"),
    [
        ("ttl", "2026-11-23T05:03:00Z", "2026-11-23T05:03:00Z", "3 5 23 11 *"),
        ("ttl", "2026-11-23T05:03:01Z", "2026-11-23T05:06:00Z", "6 5 23 11 *"),
        ("ttl", "2026-12-31T23:58:30Z", "2027-01-01T00:00:00Z", "0 0 1 1 *"),
        ("idle", "2026-11-23T05:03:00Z", "2026-11-23T05:04:00Z", "4 5 23 11 *"),
        ("setup", "2026-11-23T05:03:00Z", "2026-11-23T05:05:00Z", "5 5 23 11 *"),
        ("setup", "2026-11-23T05:05:01Z", "2026-11-23T05:08:00Z", "8 5 23 11 *"),
    ],
)
def test_an_action_runs_once_at_a_minute_of_its_kind(kind: str, at: str, start: str, recurrence: str) -> None:
    schedule = schedule_once(datetime.fromisoformat(at).timestamp(), kind)
    assert (schedule["start_time"], schedule["recurrence"]) == (start, recurrence)
    first, end = (datetime.fromisoformat(schedule[key]) for key in ("start_time", "end_time"))
    assert 0 < (end - first).total_seconds() < 3600
