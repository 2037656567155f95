"""Scheduled actions: what they do at their time, and which are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError
from localcloud.testing.clock import ManualClock
from localcloud_kits.autoscaling_kit import Kit, kit_for

NOTHING = {"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}


@pytest.fixture
def kit(cloud: Cloud, clock: ManualClock) -> Kit:
    return kit_for(cloud, clock)


def put(kit: Kit, name: str, seconds: float, **params: Any) -> None:
    start = datetime.fromtimestamp(kit.clock.time() + seconds, UTC)
    kit.on("PutScheduledUpdateGroupAction", ScheduledActionName=name, StartTime=start, **{**NOTHING, **params})


def scheduled(kit: Kit) -> list[str]:
    actions = kit.on("DescribeScheduledActions")["ScheduledUpdateGroupActions"]
    return [action["ScheduledActionName"] for action in actions]


def test_the_machines_end_at_the_time_of_the_action_and_not_before(kit: Kit) -> None:
    kit.create(2)
    put(kit, "end", 60)
    kit.wait(58)
    assert len(kit.ids) == 2 and scheduled(kit) == ["end"]
    kit.wait(5)
    group = kit.group
    assert (group["MinSize"], group["MaxSize"], group["DesiredCapacity"]) == (0, 0, 0)
    assert not kit.ids and not scheduled(kit)
    cause = "a scheduled action update of AutoScalingGroup constraints to min: 0, max: 0, desired: 0"
    assert cause in kit.activities[0]["Cause"]


def test_an_action_is_moved_by_its_name_and_deleted(kit: Kit) -> None:
    kit.create(1)
    put(kit, "end", 30)
    put(kit, "end", 90)
    kit.wait(60)
    assert kit.ids and scheduled(kit) == ["end"]
    kit.on("DeleteScheduledAction", ScheduledActionName="end")
    kit.wait(60)
    assert kit.ids and not scheduled(kit)
    with pytest.raises(AwsError, match="not found"):
        kit.on("DeleteScheduledAction", ScheduledActionName="end")


def test_the_group_works_again_after_its_sizes_are_raised(kit: Kit) -> None:
    kit.create(1)
    put(kit, "end", 30)
    kit.wait(40)
    kit.on("UpdateAutoScalingGroup", MaxSize=2, DesiredCapacity=2)
    kit.wait(60)
    assert len(kit.ids) == 2


def test_a_recurrence_of_one_date_runs_once_and_is_listed_until_its_end(kit: Kit) -> None:
    kit.create(1)
    now = kit.clock.time()
    start = datetime.fromtimestamp((now // 60 + 2) * 60, UTC)
    once = {
        "Recurrence": f"{start.minute} {start.hour} {start.day} {start.month} *",
        "EndTime": datetime.fromtimestamp(start.timestamp() + 600, UTC),
    }
    put(kit, "end", start.timestamp() - now, **once)
    kit.wait(200)
    assert not kit.ids and scheduled(kit) == ["end"]
    kit.on("UpdateAutoScalingGroup", MaxSize=1, DesiredCapacity=1)
    kit.wait(700)
    assert kit.ids and not scheduled(kit)


@pytest.mark.parametrize(
    ("seconds", "params", "message"),
    [
        (-5, {}, "in the past"),
        (60, {"DesiredCapacity": 3}, "must be between the specified min size:0 and max size:0"),
        (60, {"Recurrence": "0 * * * *"}, "runs a scheduled action once"),
        (90, {}, "start time already exists"),
    ],
    ids=str,
)
def test_what_is_refused(kit: Kit, seconds: float, params: dict[str, Any], message: str) -> None:
    kit.create(1)
    put(kit, "other", 90)
    with pytest.raises(AwsError, match=message):
        put(kit, "end", seconds, **params)
    assert scheduled(kit) == ["other"]


def test_the_actions_of_a_group_go_with_it(kit: Kit) -> None:
    kit.create(1)
    put(kit, "end", 60)
    kit.on("DeleteAutoScalingGroup", ForceDelete=True)
    kit.wait(5)
    assert kit.ask("DescribeScheduledActions")["ScheduledUpdateGroupActions"] == []


@pytest.mark.parametrize("keeps", [False, True])
def test_what_a_request_leaves_out_is_replaced_or_stays(kit: Kit, cloud: Cloud, keeps: bool) -> None:
    if keeps:
        cloud.faults.add("keep-fields", {})
    kit.create(1)
    start = datetime.fromtimestamp((kit.clock.time() // 60 + 2) * 60, UTC)
    end = datetime.fromtimestamp(start.timestamp() + 600, UTC)
    once = {"Recurrence": f"{start.minute} {start.hour} {start.day} {start.month} *", "EndTime": end}
    put(kit, "end", start.timestamp() - kit.clock.time(), **once)
    if keeps:
        with pytest.raises(AwsError, match="end time"):
            put(kit, "end", 7200)
    else:
        put(kit, "end", 7200)
        (action,) = kit.on("DescribeScheduledActions")["ScheduledUpdateGroupActions"]
        assert "EndTime" not in action
