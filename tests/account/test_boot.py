"""Machines that configure themselves: a stand-in reports for each as a booted node would."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.account.booting import nodes_of
from tests.account.kit import CLOUD_HALF


@pytest.mark.long
def test_machines_of_a_cluster_configure_themselves(account: Any) -> None:
    """provision.yml, from nothing to members, and again."""
    account.wants("red", cluster_worker_count=2)
    nodes = nodes_of(account, "red")
    ec2 = account.client("ec2")

    def before_ready(machine: str) -> bool:
        (address,) = ec2.describe_addresses(Filters=[{"Name": "tag:Name", "Values": ["red-master"]}])["Addresses"]
        return bool(address.get("InstanceId"))

    nodes.before_ready = before_ready
    with nodes.boot():
        ran = account.play(CLOUD_HALF)
    assert ran.code == 0, ran.output[-6000:]
    groups = account.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    states = [instance["LifecycleState"] for group in groups for instance in group["Instances"]]
    assert states == ["InService"] * 3, ran.output[-6000:]
    assert "gives up after" in ran.output

    started = time.time()
    ran = account.play(CLOUD_HALF)
    assert (ran.code, account.writes(started)) == (0, []), ran.output[-6000:]
