"""Training runs whose machines hang, die, are replaced and are taken away. What it leaves of the cluster is one worker
less: its name is the last of those that share it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

import pytest

from localcloud.testing.booted import wait_for
from tests.integration.healing import ClusterView
from tests.integration.machines import Cluster, localcloud
from tests.integration.runs import MASTER, NODES, Runs

STOP_SECONDS = 120
"""A node that hangs would otherwise keep `stop` waiting for as long as it hangs."""
REPLACED_SECONDS = 120
APPLIED_SECONDS = 120

# What is replaced on a shared file system may be away for a moment: who renames over an open file moves it aside first.
READER = """
import json, os, time
looks, wrong = 0, []
def published():
    for _ in range(20):
        try:
            return open("/efs/.deeplearning/%s/members.json").read()
        except FileNotFoundError:
            time.sleep(0.05)
    return ""
while not os.path.exists("/tmp/enough"):
    looks += 1
    try:
        workers = open("/opt/deeplearning/workers").read()
        hosts = open("/etc/hosts").read()
        listed = json.loads(published())
        names = workers.splitlines()
        assert workers.endswith("\\n") and names == sorted(names) and names[0] == "deeplearning-worker1", workers
        assert hosts.endswith("\\n") and "localhost" in hosts and "deeplearning-master" in hosts, hosts
        assert listed["members"] and listed["signature"], listed
    except Exception as error:
        wrong.append(repr(error))
print(json.dumps([looks, wrong]))
"""


@pytest.fixture(scope="module")
def runs(training_cluster: Cluster) -> Runs:
    return Runs(training_cluster)


def instance_of(runs: Runs, node: str) -> str:
    listed = runs.cluster.members()["members"]
    return next(str(member["instance_id"]) for member in listed if node in member["aliases"])


@contextlib.contextmanager
def frozen(instance: str) -> Iterator[None]:
    assert localcloud("fault", "freeze", instance).returncode == 0
    try:
        yield
    finally:
        # Auto Scaling may have replaced it meanwhile.
        localcloud("fault", "thaw", instance)


@pytest.mark.gate
def test_machines_are_replaced_while_others_read_and_train_and_an_old_master_does_not_publish(runs: Runs) -> None:
    cluster, view, reader_node = runs.cluster, ClusterView(runs.cluster), NODES[2]
    before = cluster.members(reader_node)
    old = {member["rank"]: member["instance_id"] for member in before["members"]}
    # A unit of its own: the connection to it goes through the master.
    cluster.ssh(reader_node, "cat > /tmp/reader.py", input=READER % cluster.name)
    cluster.says(reader_node, "sudo systemd-run --quiet sh -c 'python3 /tmp/reader.py > /tmp/looked'")
    run_id = runs.start("counts.py", "100000")
    runs.counting(run_id)
    # The worker dies; the master is no longer the group's, so that another one comes, and stands still.
    assert localcloud("fault", "kill", old[2]).returncode == 0
    cluster.cloud.client("autoscaling").detach_instances(
        InstanceIds=[old[1]], AutoScalingGroupName=f"{cluster.name}-master", ShouldDecrementDesiredCapacity=False
    )
    assert localcloud("fault", "freeze", old[1]).returncode == 0
    for group, rank, count in (("master", 1, 1), ("workers", 2, 2)):
        wait_for(
            lambda group=group, rank=rank, count=count: (
                len(new := cluster.in_service(group)) == count and old[rank] not in new
            ),
            REPLACED_SECONDS,
            f"another machine in {group}",
        )
    # They configure themselves.
    replaced = {old[1], old[2]}
    wait_for(
        lambda: not replaced & set(view.instances().values()) and view.is_complete(),
        REPLACED_SECONDS,
        "a complete list",
    )

    # New machines have other host keys: the ssh configuration learns them.
    health = cluster.play("health.yml")
    assert health.code == 0, health.output[-6000:]
    after = cluster.members(reader_node)
    new = {member["rank"]: member["instance_id"] for member in after["members"]}
    assert new[3] == old[3] and not {new[1], new[2]} & set(old.values())
    assert after["generation"] > before["generation"]
    for node in NODES:
        wait_for(lambda node=node: cluster.members(node) == after, APPLIED_SECONDS, f"{node} goes by the new list")
        addresses = cluster.says(node, "getent ahostsv4 deeplearning-worker2 | awk '/STREAM/ {print $1}'")
        assert addresses == cluster.machines()[new[2]]["PrivateIpAddress"]

    cluster.says(reader_node, "touch /tmp/enough")
    looks, wrong = json.loads(wait_for(lambda: cluster.says(reader_node, "cat /tmp/looked"), 120, "the reader ends"))
    assert looks > 100 and not wrong, (looks, wrong[:3])

    # The new master goes on with what the old one has left.
    wait_for(lambda: runs.show(run_id)["attempt"] == 1, APPLIED_SECONDS, "the run starts again")
    runs.counting(run_id, starts=2)
    (begun, ranks), (gone_on, ranks_again) = runs.counted(run_id)
    assert (begun, ranks, ranks_again) == (0, 3, 3) and gone_on > 0
    assert {process["node"] for process in runs.show(run_id)["processes"]} == {"deeplearning-worker1", *NODES[1:]}

    # The former master boots and notices that it is superseded. Its successor has its address.
    ec2 = cluster.cloud.client("ec2")
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    association = ec2.associate_address(InstanceId=old[1], AllocationId=address)["AssociationId"]
    assert localcloud("fault", "thaw", old[1]).returncode == 0
    published = f"/efs/.deeplearning/{cluster.name}/members.json"
    content = cluster.says(MASTER, f"cat {published}")

    def refused() -> bool:
        # One that it had begun before it stood still may have to end first.
        done = localcloud("exec", old[1], "--", "deeplearning", "members", "publish")
        return done.returncode == 2 and "not the master in service" in done.stderr

    wait_for(refused, 120, "the old master finds that it is none")
    assert cluster.says(MASTER, f"cat {published}") == content
    # Its own part of the run ends, and the new master's goes on.
    part = f"deeplearning-run-{run_id}:0.service"
    wait_for(lambda: localcloud("exec", old[1], "--", "systemctl", "is-active", part).returncode, 120, "its part ends")
    assert runs.show(run_id)["state"] == "running"
    assert runs.ask("stop", run_id).returncode == 0
    assert runs.causes(run_id) == ["lost", "stopped"]
    ec2.disassociate_address(AssociationId=association)
    ec2.release_address(AllocationId=address)
    ec2.terminate_instances(InstanceIds=[old[1]])


def test_a_run_goes_on_without_a_machine_that_is_taken_away(runs: Runs) -> None:
    run_id = runs.start("counts.py", "100000")
    runs.counting(run_id)
    # It is not part of the desired capacity any more, so the run does not wait for another.
    runs.cluster.cloud.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=instance_of(runs, NODES[2]), ShouldDecrementDesiredCapacity=True
    )
    wait_for(lambda: runs.show(run_id)["attempt"] == 1, 120, "it starts once more")
    runs.counting(run_id, starts=2)
    assert runs.ask("stop", run_id).returncode == 0
    assert runs.causes(run_id) == ["lost", "stopped"]
    (begun, ranks), (gone_on, ranks_left) = runs.counted(run_id)
    assert (begun, ranks, ranks_left) == (0, 3, 2) and gone_on > 0


@pytest.mark.long
def test_a_hanging_node_does_not_keep_a_run_from_being_stopped(runs: Runs) -> None:
    run_id = runs.start("sleeps.py", nodes=NODES[:2])
    runs.running(run_id)
    with frozen(instance_of(runs, NODES[1])):
        started = time.monotonic()
        stopped = runs.ask("stop", run_id)
        assert time.monotonic() - started < STOP_SECONDS
        assert stopped.returncode == 1 and "deeplearning-worker2 did not answer" in stopped.stderr
        assert runs.left(run_id, NODES[:1]) == []
