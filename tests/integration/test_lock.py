"""site.yml beside train.yml and beside destroy.yml of another operator, on booted machines."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from localcloud.testing.booted import wait_for
from tests.integration import kills
from tests.integration.clusters import operator_in
from tests.integration.machines import Cloud, Cluster
from tests.integration.runs import MASTER, PYTHON, Runs

pytestmark = pytest.mark.long
SITE = "site.yml"


@pytest.fixture
def cluster(cloud_with_machines: Cloud, image: str) -> Iterator[Cluster]:
    name = f"l-{secrets.token_hex(3)}"
    with cloud_with_machines.cluster(name, worker_count=1, image=image, keep_efs=False) as cluster:
        made = cluster.play(SITE)
        assert made.code == 0, made.output[-6000:]
        yield cluster


@pytest.fixture
def colleague(cluster: Cluster, cloud_with_machines: Cloud, tmp_path: Path) -> Cluster:
    """Return the same cluster for another operator, with a project of their own."""
    other = operator_in(tmp_path, cloud_with_machines)
    return Cluster(other, cluster.name, dict(cluster.settings))


def billed(cluster: Cluster) -> dict[str, int]:
    """Return how many resources exist that cost money and that duplicates were made of."""
    ec2 = cluster.cloud.client("ec2")
    ours = [{"Name": "tag:deeplearning:cluster", "Values": [cluster.name]}]
    gateways = ec2.describe_nat_gateways(Filter=ours)["NatGateways"]
    systems = cluster.cloud.client("efs").describe_file_systems()["FileSystems"]
    buckets = cluster.cloud.client("s3").list_buckets()["Buckets"]
    return {
        "VPCs": len(ec2.describe_vpcs(Filters=ours)["Vpcs"]),
        "NAT gateways": len([gateway for gateway in gateways if gateway["State"] != "deleted"]),
        "addresses": len(ec2.describe_addresses(Filters=ours)["Addresses"]),
        "file systems": len([system for system in systems if system.get("Name", "").startswith(f"{cluster.name}-")]),
        "buckets": len([bucket for bucket in buckets if bucket["Name"].startswith(f"{cluster.name}-")]),
        "machines": len(cluster.machines()),
    }


ONE_OF_EACH = {"VPCs": 1, "NAT gateways": 1, "addresses": 2, "file systems": 1, "buckets": 1}


def train(cluster: Cluster, **extra: Any) -> Any:
    options = {"framework": "pytorch", "python": PYTHON, "script": "/efs/scripts/counts.py", "script_args": ["40"]}
    return cluster.play("train.yml", **options, **extra)


def test_a_cluster_grows_is_killed_and_goes_beside_the_work_of_a_colleague(
    cluster: Cluster, colleague: Cluster
) -> None:
    Runs(cluster)  # it copies the scripts
    with ThreadPoolExecutor(2) as pool:
        # A colleague trains while the cluster grows.
        growing = pool.submit(cluster.play, SITE, cluster_worker_count=2)
        training = pool.submit(train, colleague, run_id="beside")
        grown, trained = growing.result(), training.result()
        assert grown.code == 0, grown.output[-6000:]
        assert billed(cluster) == {**ONE_OF_EACH, "machines": 3}
        if trained.code != 0:
            assert "is changing the cluster" in trained.output, trained.output[-6000:]
            trained = train(colleague, run_id="after")
        assert trained.code == 0, trained.output[-6000:]
        shrinking = {"cluster_worker_count": 1, "remove_workers": 1}
        # The master reports some seconds after the end of a run that its nodes are free.
        wait_for(lambda: cluster.play("plan.yml", **shrinking).code == 0, 120, "the nodes are free")

        # The playbook that holds the lock is killed: the next one of this machine does not wait.
        def holds_the_lock(progress: kills.Progress) -> bool:
            return progress.task.endswith("Create the policies")

        with kills.marked(cluster.cloud):
            kills.kill_when(holds_the_lock, cluster, SITE, **shrinking)
        shrunk = colleague.play(SITE, **shrinking)
        assert shrunk.code == 0 and "has ended without releasing the lock" in shrunk.output, shrunk.output[-6000:]
        assert billed(cluster) == {**ONE_OF_EACH, "machines": 2}

        # A colleague removes the cluster while it grows.
        growing = pool.submit(cluster.play, SITE, cluster_worker_count=2)
        removing = pool.submit(colleague.play, "destroy.yml", destroy=cluster.name)
        grown, removed = growing.result(), removing.result()
    outputs = f"{grown.output[-6000:]}\n=== destroy\n{removed.output[-6000:]}"
    assert removed.code == 0, outputs
    if grown.code == 0:
        # It came after the other one.
        assert cluster.says(MASTER, "true") == ""
        assert billed(cluster) == {**ONE_OF_EACH, "machines": 3}, outputs
    gone = colleague.play("destroy.yml", destroy=cluster.name)
    assert gone.code == 0, gone.output[-6000:]
    assert not any(billed(cluster).values()), outputs
