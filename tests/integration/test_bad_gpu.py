"""A GPU fails in a run on booted machines, and its node is held. The GPUs are made up, and so is the kernel's log."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import pytest

from localcloud.testing.booted import wait_for
from tests.debian import installed_program
from tests.integration.machines import Cloud, Cluster
from tests.integration.runs import MASTER, Runs

WORKER = "deeplearning-worker2"
XID = "4,100,5000000,-;NVRM: Xid (PCI:0000:00:10): 79, pid=1, name=python3, GPU has fallen off the bus."
HELD = f"{WORKER} is held: GPU 0 fell off the bus (Xid 79)"


@pytest.fixture(scope="module")
def cluster(cloud_with_machines: Cloud) -> Iterator[Cluster]:
    """Yield a master and a worker with a GPU each, and without a framework: the runs are plain Python."""
    installed_program("cc", "gcc", "libc6-dev")
    name = f"b-{secrets.token_hex(3)}"
    with cloud_with_machines.cluster(name, worker_count=1, instance_type="g5.xlarge") as cluster:
        made = cluster.play("site.yml")
        assert made.code == 0, made.output[-6000:]
        yield cluster


def state_of(cluster: Cluster) -> str:
    return next(str(member["state"]) for member in cluster.members()["members"] if WORKER in member["aliases"])


@pytest.mark.long
def test_a_node_whose_gpu_fails_is_held_until_it_boots_and_the_run_goes_on_with_it(cluster: Cluster) -> None:
    runs = Runs(cluster)
    # A program that ends by itself, on a node whose GPU is well, ends its run.
    failed = runs.start("fails.py")
    assert runs.wait(failed) == 7 and runs.causes(failed) == ["failed"]

    run_id = runs.start("counts.py", "100000")
    runs.counting(run_id)
    # The machine is a container without that device, so a file takes its place until it boots.
    cluster.says(WORKER, f"echo '{XID}' | sudo tee /dev/kmsg && sudo pkill -f '[c]ounts.py'")
    wait_for(lambda: "1 more node must be ready" in runs.show(run_id)["reason"], 120, "the run waits for an operator")
    assert HELD in runs.show(run_id)["reason"]
    wait_for(lambda: state_of(cluster) == "held", 120, "the member list names the node as held")
    status = " ".join(cluster.play("status.yml").output.split())
    (instance,) = cluster.in_service("workers")
    cure = (
        f"Problem: {re.escape(HELD)}; replace it: ansible-playbook deeplearning.aws.replace -e .* -e node={instance}\\."
    )
    assert re.search(cure, status), status
    assert runs.show(run_id)["attempt"] == 0

    cluster.cloud.client("ec2").reboot_instances(InstanceIds=[instance])
    runs.counting(run_id, starts=2)
    assert state_of(cluster) == "ready"
    assert runs.ask("stop", run_id).returncode == 0
    assert runs.causes(run_id) == ["held", "stopped"]
    (begun, ranks), (gone_on, ranks_again) = runs.counted(run_id)
    assert (begun, ranks, ranks_again) == (0, 2, 2) and gone_on > 0
    assert not cluster.says(MASTER, "cat /run/deeplearning/held || true")
