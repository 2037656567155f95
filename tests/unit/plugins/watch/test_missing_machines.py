"""Why a cluster has fewer machines than it may have: AWS's reasons, and what the machines report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.boot import FAILURE_SECONDS, HOOK
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import ResourceReader
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import (
    ClusterResources,
    Resource,
    Shortage,
    health_of,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity_watcher import AutoScaling
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.group_history import GroupHistory
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.missing_machines import reports_of, shortages_of

from tests.unit.cluster_kit import REGION, TYPE, ZONE, MadeCluster
from tests.unit.conftest import Account


@pytest.fixture
def red(aws: Account, monkeypatch: pytest.MonkeyPatch) -> MadeCluster:
    monkeypatch.setattr(AutoScaling, "now", lambda _self: aws.cloud.clock.time())
    made = MadeCluster(aws)
    made.network()
    return made


def read() -> tuple[ClusterResources, Mapping[str, Shortage]]:
    aws = Aws(REGION)
    owned = ResourceReader(aws, "red").read()
    return owned, shortages_of(aws, owned, GroupHistory(aws))


def test_awss_reason_is_the_groups_and_full_groups_are_not_read(red: MadeCluster) -> None:
    red.aws.cloud.faults.add("capacity", {"type": TYPE, "zone": ZONE}, value=2)
    red.machines(master=1)
    assert read()[1] == {}
    assert "autoscaling:DescribeScalingActivities" not in red.aws.calls()
    red.machines(workers=3)
    owned, shortages = read()
    assert list(shortages) == ["red-workers"]
    (reason,) = shortages["red-workers"].reasons
    assert reason.startswith("AWS has no capacity for 2 of red-workers: ask for fewer")
    assert "We currently do not have sufficient g5.xlarge capacity" in reason
    assert (shortages["red-workers"].failed, list(shortages["red-workers"].configuring)) == (0, [])
    assert health_of(owned, shortages).state == "degraded"


def test_a_group_that_was_told_to_be_smaller_has_no_reason(red: MadeCluster) -> None:
    red.machines(workers=3, desired=1)
    assert read()[1] == {"red-workers": Shortage([], 0, [])}


def hold(red: MadeCluster) -> str:
    """Let the only worker wait for its launch hook, and return its id."""
    red.machines(workers=2, desired=0)
    red.scaling.put_lifecycle_hook(
        AutoScalingGroupName="red-workers",
        LifecycleHookName=HOOK,
        LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING",
        HeartbeatTimeout=7200,
        DefaultResult="ABANDON",
    )
    red.scaling.set_desired_capacity(AutoScalingGroupName="red-workers", DesiredCapacity=1)
    red.wait()
    (machine,) = red.instances("workers")
    return machine


def test_a_machine_that_configures_itself_shows_its_step(red: MadeCluster) -> None:
    machine = hold(red)
    # Without the bucket and the roles there are no reports.
    assert read()[1]["red-workers"] == Shortage([], 0, [])
    red.identities()
    red.bucket()
    red.report(machine, "worker", state="configuring", step="efs_mount")
    shortage = read()[1]["red-workers"]
    (progress,) = shortage.configuring
    assert progress.startswith("red-workers 0/2 ready, 1 configuring (efs_mount, 0:")
    assert (list(shortage.reasons), shortage.failed) == ([], 0)


def test_a_machine_that_failed_and_keeps_its_place_is_a_reason(red: MadeCluster) -> None:
    machine = hold(red)
    red.identities()
    red.bucket()
    red.report(machine, "worker", state="failed", step="efs_mount", log=["no route"])
    _owned, shortages = read()
    shortage = shortages["red-workers"]
    explained = "2 of red-workers could not configure themselves: correct the cause that their logs show, and run "
    assert list(shortage.reasons) == [
        f"{explained}deeplearning.aws.site again",
        f"{machine}: efs_mount",
        "    no route",
    ]
    assert shortage.failed == 1
    assert list(shortage.configuring)[0].startswith("red-workers 0/2 ready, 1 failed: efs_mount")
    assert list(shortage.configuring)[1:] == list(shortage.reasons)


def test_machines_that_were_given_up_long_ago_are_no_reason(red: MadeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = hold(red)
    red.scaling.complete_lifecycle_action(
        AutoScalingGroupName="red-workers",
        LifecycleHookName=HOOK,
        InstanceId=machine,
        LifecycleActionResult="ABANDON",
    )
    red.scaling.set_desired_capacity(AutoScalingGroupName="red-workers", DesiredCapacity=0)
    red.wait(30)
    (reason,) = read()[1]["red-workers"].reasons
    assert reason.startswith("2 of red-workers could not configure themselves")
    now = red.aws.cloud.clock.time() + FAILURE_SECONDS
    monkeypatch.setattr(AutoScaling, "now", lambda _self: now)
    assert list(read()[1]["red-workers"].reasons) == []


ROLES = [
    Resource("role", f"c-us-east-1-{role}", f"c-us-east-1-{role}", facts={"id": role}) for role in ("master", "worker")
]
BUCKET = Resource("bucket", "c-123456789012-us-east-1")
NODE = Resource("role", "c-us-east-1-node", "c-us-east-1-node", facts={"id": "node"})


@pytest.mark.parametrize(
    ("resources", "role_ids"),
    [
        ([BUCKET, *ROLES], {"c-master": "master", "c-workers": "worker"}),
        ([BUCKET, *ROLES[:1]], None),
        (ROLES, None),
        ([BUCKET, NODE, Resource("emr_cluster", "j-1")], {"j-1": "node"}),
        ([BUCKET, *ROLES, Resource("emr_cluster", "j-1")], None),
    ],
)
def test_reports_need_the_bucket_and_the_roles_of_all_machines(resources: list[Resource], role_ids: Any) -> None:
    aws: Any = object()
    reports = reports_of(aws, ClusterResources("c", "123456789012", "us-east-1", resources))
    assert (reports and (reports.bucket, reports.account, reports.role_ids)) == (
        role_ids and ("c-123456789012-us-east-1", "123456789012", role_ids)
    )
