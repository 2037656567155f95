"""Waiting for machines that configure themselves: a stand-in reports for each as a booted node would."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.boot import HOOK, HOOK_SECONDS
from ansible_collections.deeplearning.aws.plugins.module_utils.resources.member_policy import MemberAccess, policy_for
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import group_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import (
    ClusterResources,
    Health,
    Resource,
    health_of,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch import capacity
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity import GroupTarget, Policy, WaitRules
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity_watcher import AutoScaling, CapacityWatch
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.elastic_address import ElasticAddress
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.group_history import GroupHistory
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.missing_machines import shortages_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.setup_reports import SetupReports

from tests.account.booting import BROKEN, GIVES_UP, HANGS, SILENT, Nodes
from tests.account.fleet import ACCOUNT, TRUST
from tests.unit.conftest import Account
from tests.unit.plugins.watch.groups_kit import BUCKET, BUNDLE, REGION, Groups

GROUPS = {"c-master": "master", "c-workers": "worker"}
OLD = "0" * 64
MASTER, WORKERS = GroupTarget("c-master", 1, 1, essential=True), GroupTarget("c-workers", 2, 1)


class Booting(Groups):
    """Two groups whose machines configure themselves, in the roles of a cluster's members."""

    def __init__(self, account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(account, monkeypatch)
        iam = account.client("iam")
        for group, role in GROUPS.items():
            name, access = f"c-{REGION}-{role}", MemberAccess("c", REGION, ACCOUNT, BUCKET)
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)
            document = json.dumps(policy_for(role, access))
            iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=document)
            self.make(self.template(group), **{group.removeprefix("c-"): 0})
            self.put_hook(group, HOOK_SECONDS)
        self.nodes = Nodes(account, BUCKET, {group: f"c-{REGION}-{role}" for group, role in GROUPS.items()}, BUNDLE)
        gateway = self.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        vpc = self.ec2.describe_subnets(SubnetIds=[self.subnet])["Subnets"][0]["VpcId"]
        self.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
        self.address = self.ec2.allocate_address(Domain="vpc")["AllocationId"]
        self.boots = False
        """Whether machines do anything while time passes."""

    def put_hook(self, group: str, seconds: int) -> None:
        self.scaling.put_lifecycle_hook(
            AutoScalingGroupName=group,
            LifecycleHookName=HOOK,
            LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING",
            HeartbeatTimeout=seconds,
        )

    def size(self, **sizes: int) -> None:
        for what, size in sizes.items():
            self.scaling.update_auto_scaling_group(AutoScalingGroupName=f"c-{what}", MaxSize=size, DesiredCapacity=size)

    def step(self) -> None:
        if self.boots:
            self.nodes.step()

    def boot_until(self, condition: Callable[[], bool]) -> None:
        """Let machines boot until then."""
        self.boots = True
        self.wait_until(condition)
        self.boots = False

    def configured(
        self, *targets: GroupTarget, policy: Policy = Policy.AT_LEAST, seconds: float = 60, since: float = 5
    ) -> Any:
        """Wait, as the action wait_for_capacity does, while machines boot."""
        aws, now = self.aws(), self.clock.time()
        iam = self.account.client("iam")
        role_ids = {group: iam.get_role(RoleName=name)["Role"]["RoleId"] for group, name in self.nodes.roles.items()}
        rules = WaitRules(policy, now + seconds, settle=3, bundle=BUNDLE)
        reports = SetupReports(aws, BUCKET, ACCOUNT, role_ids)
        addresses = [ElasticAddress(aws, "c-master", self.address)] if MASTER in targets else []
        watch = CapacityWatch(AutoScaling(aws), targets, rules, now - since, self.lines.append, reports, addresses)
        self.boots = True
        result = watch.run()
        self.boots = False
        return result

    def health(self) -> Health:
        """Return the health, as status.yml reads it."""
        aws, iam = self.aws(), self.account.client("iam")
        resources = [group_of({**self.group(group.removeprefix("c-")), "Tags": []}, {}, ()) for group in GROUPS]
        resources += [
            Resource("role", name, name, facts={"id": iam.get_role(RoleName=name)["Role"]["RoleId"]})
            for name in self.nodes.roles.values()
        ]
        owned = ClusterResources("c", ACCOUNT, REGION, [*resources, Resource("bucket", BUCKET)])
        return health_of(owned, shortages_of(aws, owned, GroupHistory(aws)))

    def holder(self) -> str:
        (address,) = self.ec2.describe_addresses(AllocationIds=[self.address])["Addresses"]
        return str(address.get("InstanceId", ""))

    def machines(self, state: str, what: str = "workers") -> set[str]:
        return {
            instance["InstanceId"] for instance in self.group(what)["Instances"] if instance["LifecycleState"] == state
        }


@pytest.fixture
def booting(aws: Account, monkeypatch: pytest.MonkeyPatch) -> Booting:
    monkeypatch.setattr(capacity, "STUCK_SECONDS", 3.0)
    return Booting(aws, monkeypatch)


def test_all_configure_themselves_and_the_master_has_its_address_before_that(booting: Booting) -> None:
    def before_ready(machine: str) -> bool:
        """The master waits for its address, and workers until the progress has named them."""
        if machine in booting.machines("Pending:Wait", "master"):
            return booting.holder() == machine
        return any("workers 0/2 ready, 2 configuring (efs_mount, 0:" in line for line in booting.lines)

    booting.nodes.before_ready = before_ready
    booting.size(master=1, workers=2)
    result = booting.configured(MASTER, WORKERS)
    assert (result["outcome"], result["in_service"], result["missing"]) == ("full", 3, []), booting.lines
    assert {booting.holder()} == booting.machines("InService", "master")

    before = booting.writes()
    result = booting.configured(MASTER, WORKERS)
    assert (result["outcome"], result["changed"], booting.writes()) == ("full", False, before)


def test_a_configuration_error_ends_the_wait_with_its_log_and_no_machine_is_left(booting: Booting) -> None:
    booting.nodes.will("c-workers", *[BROKEN] * 20)
    booting.size(master=1, workers=2)
    started = booting.clock.time()
    result = booting.configured(MASTER, WORKERS, seconds=600)
    assert (result["outcome"], result["failed"], result["elsewhere"]) == ("failed", True, False)
    assert booting.clock.time() - started < 120
    assert [(shortage["why"], shortage["count"]) for shortage in result["missing"]] == [("setup", 2)]
    assert "2 of c-workers could not configure themselves: correct the cause" in result["msg"]
    assert "mount.nfs4: No route to host" in result["msg"]
    assert booting.running() == 0
    assert [booting.group(what)["DesiredCapacity"] for what in ("master", "workers")] == [0, 0]
    # Three were replaced, one or two kept their places: no machine was bought in a loop.
    launched = booting.ec2.describe_instances()["Reservations"]
    assert len(launched) <= 1 + 2 + 3


def test_a_machine_that_keeps_its_place_counts_as_missing(booting: Booting) -> None:
    booting.nodes.will("c-workers", GIVES_UP)
    booting.size(master=1, workers=2)
    result = booting.configured(MASTER, WORKERS)
    assert (result["outcome"], result["in_service"], booting.running()) == ("degraded", 2, 2), booting.lines
    assert [(shortage["why"], shortage["count"]) for shortage in result["missing"]] == [("setup", 1)]
    assert any("1 of c-workers could not configure" in line and "efs_mount" in line for line in booting.lines)
    group = booting.group("workers")
    assert (group["DesiredCapacity"], group["SuspendedProcesses"]) == (1, [])


def test_status_names_machines_that_keep_their_places_and_those_that_configure_themselves(booting: Booting) -> None:
    booting.nodes.will("c-workers", GIVES_UP)
    booting.size(master=1, workers=1)
    booting.boot_until(lambda: booting.machines("InService", "master"))
    booting.boot_until(lambda: booting.health().state == "degraded")
    (held,) = booting.machines("Pending:Wait")
    health = booting.health()
    failed = [
        "1 of c-workers could not configure themselves: correct the cause that their logs show, and run "
        "deeplearning.aws.site again",
        f"{held}: efs_mount",
        "    TASK [efs_mount : Mount the file system]",
        "    mount.nfs4: No route to host",
    ]
    assert (health.in_service, health.most, list(health.why)) == (1, 2, failed)

    booting.nodes.before_ready = lambda _machine: False
    booting.size(workers=2)
    booting.boot_until(lambda: any("configuring" in line for line in booting.health().why))
    health = booting.health()
    assert health.state == "creating" and health.why[0] == "2 of 3 machines are not in service yet"
    assert health.why[1].startswith("c-workers 0/2 ready, 1 configuring (efs_mount")
    assert list(health.why[2:]) == failed


def test_growing_a_running_cluster_costs_it_no_old_machine(booting: Booting) -> None:
    booting.size(workers=2)
    assert booting.configured(GroupTarget("c-workers", 2, 2))["outcome"] == "full"
    old = booting.machines("InService")
    booting.nodes.will("c-workers", GIVES_UP, SILENT)
    booting.size(workers=5)
    result = booting.configured(GroupTarget("c-workers", 5, 5), policy=Policy.ALL_OR_NOTHING, since=-2)
    assert (result["outcome"], result["in_service"]) == ("failed", 2), booting.lines
    group = booting.group("workers")
    assert ({instance["InstanceId"] for instance in group["Instances"]}, group["DesiredCapacity"]) == (old, 2)
    assert group["SuspendedProcesses"] == []
    assert booting.running() == 2


def test_a_machine_that_failed_with_another_bundle_is_replaced(booting: Booting) -> None:
    booting.nodes.bundle = OLD
    booting.nodes.will("c-workers", GIVES_UP)
    booting.size(workers=2)
    booting.boot_until(lambda: len(booting.machines("InService")) == 1)
    (held,) = booting.machines("Pending:Wait")
    booting.nodes.bundle = BUNDLE
    result = booting.configured(GroupTarget("c-workers", 2, 2), policy=Policy.ALL_OR_NOTHING)
    assert (result["outcome"], result["changed"]) == ("full", True), booting.lines
    assert held not in {instance["InstanceId"] for instance in booting.group("workers")["Instances"]}

    # With the same bundle it would fail again: this is reported at once, and the old one stays.
    booting.nodes.will("c-workers", GIVES_UP)
    booting.size(workers=3)
    booting.boot_until(lambda: len(booting.machines("Pending:Wait")) == 1)
    ready = booting.machines("InService")
    result = booting.configured(GroupTarget("c-workers", 3, 3), since=-2)
    assert (result["outcome"], result["missing"][0]["why"]) == ("failed", "setup")
    assert booting.machines("InService") == ready


def test_a_machine_that_never_reports_is_late_and_its_console_is_shown(booting: Booting) -> None:
    booting.nodes.will("c-workers", SILENT)
    booting.size(workers=2)
    result = booting.configured(GroupTarget("c-workers", 2, 1), seconds=15)
    assert (result["outcome"], result["in_service"]) == ("degraded", 1)
    assert [(shortage["why"], shortage["count"]) for shortage in result["missing"]] == [("late", 1)]
    assert "has not reported. The end of its console:" in result["msg"]
    assert booting.group("workers")["DesiredCapacity"] == 1


def test_a_machine_that_hangs_is_replaced_when_its_hook_ends(booting: Booting) -> None:
    booting.put_hook("c-workers", 30)
    booting.nodes.will("c-workers", HANGS)
    booting.size(workers=2)
    booting.boot_until(lambda: len(booting.machines("InService")) == 1)
    (hanging,) = booting.machines("Pending:Wait")
    result = booting.configured(GroupTarget("c-workers", 2, 2), seconds=90)
    assert (result["outcome"], result["in_service"], booting.running()) == ("full", 2, 2), booting.lines
    assert hanging not in booting.machines("InService")


def test_machines_answer_their_hook_though_auto_scaling_throttles(booting: Booting) -> None:
    booting.account.cloud.faults.seed(3)
    booting.account.cloud.faults.add("throttle", {"action": "autoscaling:*"}, value=0.3)
    booting.size(master=1, workers=2)
    result = booting.configured(MASTER, WORKERS)
    assert (result["outcome"], result["in_service"], booting.running()) == ("full", 3, 3), booting.lines
