"""Machines that configure themselves: no playbook and no person is needed, neither at first nor for a replacement."""

from __future__ import annotations

import json

import pytest

from tests.account.kit import REGION
from tests.integration.machines import Cluster, localcloud, wait_for
from tests.integration.runs import MASTER, NODES, Runs

REPLACED_SECONDS = 240
"""Auto Scaling's detection of the loss, the boot, the configuration and the next member list, on a busy machine."""
FIRST_LOGIN = "journalctl -q -u ssh -o short-unix --grep 'Accepted' | head -n 1 | cut -d. -f1"
CONFIGURED = "stat -c %Y /var/lib/deeplearning/configured"


def instance_ids(cluster: Cluster) -> dict[str, str]:
    return {member["aliases"][0]: member["instance_id"] for member in cluster.members()["members"]}


def kill(*instances: str) -> None:
    for instance in instances:
        assert localcloud("fault", "kill", instance).returncode == 0


def wait_for_replacements(cluster: Cluster, lost: set[str]) -> dict[str, str]:
    """Wait until the cluster is complete without these instances. Return its instances by name."""

    def complete() -> dict[str, str]:
        # New machines have other host keys. This describes the cluster, and repairs nothing.
        cluster.play("status.yml")
        done = cluster.ssh(MASTER, "sudo deeplearning members wait --count 3 --timeout 5")
        ids = instance_ids(cluster) if done.returncode == 0 else {}
        return ids if not lost & set(ids.values()) else {}

    return wait_for(complete, REPLACED_SECONDS, "replacements are members")


def test_workers_are_members_before_anybody_logs_in(training_cluster: Cluster) -> None:
    for node in NODES[1:]:
        first_login, configured = (
            int(training_cluster.says(node, f"sudo sh -c {line!r}")) for line in (FIRST_LOGIN, CONFIGURED)
        )
        assert first_login >= configured, (node, first_login, configured)


def needed_actions(cluster: Cluster, role: str) -> set[str]:
    """The actions that members of this role were allowed, by the log of all calls."""
    session = f":assumed-role/{cluster.name}-{REGION}-{role}/i-"
    calls = [json.loads(line) for line in localcloud("calls", "--json").stdout.splitlines()]
    by_role = [call for call in calls if session in call["caller"] and call["result"] == "ok"]
    return {need["action"] for call in by_role for need in call["required"]}


def allowed_actions(cluster: Cluster, role: str) -> set[str]:
    policy = cluster.cloud.client("iam").get_role_policy(
        RoleName=f"{cluster.name}-{REGION}-{role}", PolicyName="deeplearning"
    )
    statements = [one for one in policy["PolicyDocument"]["Statement"] if one["Effect"] == "Allow"]
    listed = [one["Action"] for one in statements]
    return {action for value in listed for action in ([value] if isinstance(value, str) else value)}


def test_members_need_all_that_their_policies_allow(training_cluster: Cluster) -> None:
    runs = Runs(training_cluster)
    run_id = runs.start("counts.py", "100000")
    wait_for(training_cluster.protected, 60, "the run's nodes are protected from scale-in")
    assert runs.ask("stop", run_id).returncode == 0
    # What a machine does that installs Horovod: here it finds no wheel.
    for node in NODES:
        assert json.loads(training_cluster.says(node, "sudo deeplearning wheels pull /tmp/wheels")) == {"wheels": {}}
    for role in ("master", "worker"):
        allowed = allowed_actions(training_cluster, role)
        assert allowed, role
        assert allowed - needed_actions(training_cluster, role) == set(), role


@pytest.mark.long
@pytest.mark.parametrize("names", [["deeplearning-worker1"], ["deeplearning-worker1", "deeplearning-worker2"]])
def test_a_run_outlives_its_master_and_a_worker_with_nobody_involved(
    training_cluster: Cluster, names: list[str]
) -> None:
    runs = Runs(training_cluster)
    run_id = runs.start("counts.py", "100000")
    runs.counting(run_id)
    before = instance_ids(training_cluster)
    lost = {before[name] for name in names}
    kill(*lost)
    after = wait_for_replacements(training_cluster, lost)
    # The others keep their names and their instances.
    assert {name: id_ for name, id_ in after.items() if name not in names} == {
        name: id_ for name, id_ in before.items() if name not in names
    }
    runs.counting(run_id, starts=2)
    assert runs.ask("stop", run_id).returncode == 0
    begun = [start for start, _processes in runs.counted(run_id)]
    assert begun[0] == 0 < begun[-1]
