"""Clusters that end by themselves, with the operator's machine gone: nothing is done here meanwhile."""

from __future__ import annotations

import secrets

import pytest

from localcloud.testing.booted import wait_for
from tests.integration.machines import Cloud, Cluster, localcloud
from tests.integration.runs import MASTER, Runs

TWO_MINUTES = 0.034
"""In hours. Each kind of end has minutes of its own, so it comes up to five minutes later."""
END_SECONDS = 330
"""An action runs at an even minute, and machines need some seconds to end."""


def instances(cluster: Cluster) -> list[str]:
    """Return the instances that run or are being started."""
    alive = [
        {"Name": "tag:deeplearning:cluster", "Values": [cluster.name]},
        {"Name": "instance-state-name", "Values": ["pending", "running", "shutting-down"]},
    ]
    reservations = cluster.cloud.client("ec2").describe_instances(Filters=alive)["Reservations"]
    return [instance["InstanceId"] for reservation in reservations for instance in reservation["Instances"]]


def idle_end(cluster: Cluster) -> float:
    """Return when the workers end if nothing works."""
    (action,) = cluster.cloud.client("autoscaling").describe_scheduled_actions(
        AutoScalingGroupName=f"{cluster.name}-workers"
    )["ScheduledUpdateGroupActions"]
    return float(action["StartTime"].timestamp())


def play(cluster: Cluster, playbook: str, **extra: object) -> None:
    ran = cluster.play(playbook, **extra)
    assert ran.code == 0, ran.output[-6000:]


@pytest.mark.long
def test_a_cluster_with_a_ttl_of_two_minutes_ends_and_its_run_resumes_when_it_is_back(
    cloud_with_machines: Cloud,
) -> None:
    with cloud_with_machines.cluster(f"g-{secrets.token_hex(3)}", worker_count=1) as cluster:
        play(cluster, "site.yml")
        runs = Runs(cluster)
        run_id = runs.start("counts.py", "100000")
        runs.counting(run_id)
        play(cluster, "playbooks/provision.yml", cluster_ttl_hours=TWO_MINUTES)

        folder = f"{runs.root}/{run_id}"
        wait_for(lambda: cluster.ssh(MASTER, f"ls {folder}/checkpoint-request.json").returncode == 0, 120, "a request")
        greeting = cluster.ssh(MASTER, "", "-tt", input="exit\n").stdout
        assert "All machines of this cluster end at" in greeting, greeting
        wait_for(lambda: runs.show(run_id)["state"] == "recovering", 500, "the run is stopped before the end")
        assert runs.show(run_id)["result"] is None
        wait_for(lambda: not instances(cluster), END_SECONDS, "no instance runs")

        play(cluster, "site.yml", cluster_ttl_hours=8)
        runs.counting(run_id, starts=2)
        first, again = runs.counted(run_id)
        assert first[0] == 0 and again[0] > 0
        assert "machines end" in cluster.play("status.yml").output


@pytest.mark.long
def test_a_cluster_with_a_frozen_master_ends_after_its_idle_minutes_though_a_run_uses_its_nodes(
    cloud_with_machines: Cloud,
) -> None:
    name = f"g-{secrets.token_hex(3)}"
    with cloud_with_machines.cluster(name, worker_count=1, idle_minutes=2) as cluster:
        play(cluster, "site.yml")
        runs = Runs(cluster)
        runs.counting(runs.start("counts.py", "100000"))
        wait_for(lambda: len(cluster.used()) == 2, 120, "both nodes are in use")
        # While the run works, the master postpones the end.
        first = idle_end(cluster)
        wait_for(lambda: idle_end(cluster) > first, 120, "the end is postponed")
        # Otherwise Auto Scaling could replace the master before.
        scaling = cluster.cloud.client("autoscaling")
        for group in (f"{name}-master", f"{name}-workers"):
            scaling.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["ReplaceUnhealthy"])
        (master,) = cluster.in_service("master")
        assert localcloud("fault", "freeze", master).returncode == 0
        wait_for(lambda: not instances(cluster), END_SECONDS, "no instance runs")
