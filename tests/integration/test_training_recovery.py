"""Training runs whose machines hang, die, are replaced and are taken away. What it leaves of the cluster is one worker
less: its name is the last of those that share it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.integration.machines import Cluster, localcloud, wait_for
from tests.integration.runs import NODES, Runs

STOP_SECONDS = 15
REPLACED_SECONDS = 120


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


def test_a_run_goes_on_with_a_machine_in_a_killed_ones_place_and_then_without_one_that_is_taken_away(
    runs: Runs,
) -> None:
    cluster = runs.cluster
    run_id = runs.start("counts.py", "100000")
    runs.counting(run_id)
    killed = instance_of(runs, NODES[1])
    assert localcloud("fault", "kill", killed).returncode == 0
    wait_for(lambda: len(ids := cluster.in_service("workers")) == 2 and killed not in ids, REPLACED_SECONDS, "another")
    # It configures itself.
    wait_for(lambda: runs.show(run_id)["attempt"] == 1, 60, "it starts again")
    runs.counting(run_id, starts=2)
    assert {process["node"] for process in runs.show(run_id)["processes"]} == {"deeplearning-worker1", *NODES[1:]}

    # It is not part of the desired capacity any more, so the run does not wait for another.
    cluster.cloud.client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=instance_of(runs, NODES[2]), ShouldDecrementDesiredCapacity=True
    )
    wait_for(lambda: runs.show(run_id)["attempt"] == 2, 60, "it starts once more")
    runs.counting(run_id, starts=3)
    assert runs.ask("stop", run_id).returncode == 0
    assert runs.causes(run_id) == ["lost", "lost", "stopped"]
    begun, ranks = zip(*runs.counted(run_id), strict=True)
    assert ranks == (3, 3, 2)
    assert begun[0] == 0 < begun[1] < begun[2]


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
