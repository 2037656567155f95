"""Machines that configure themselves: no playbook and no person is needed, neither at first nor for a replacement."""

from __future__ import annotations

import json
import secrets

import pytest

from localcloud.testing import booted
from localcloud.testing.booted import wait_for
from tests.account.kit import REGION
from tests.integration.healing import ClusterView, start_training
from tests.integration.machines import Cloud, Cluster, localcloud
from tests.integration.runs import NODES, Runs

HEALED_SECONDS = 240
"""Auto Scaling's detection of the loss, the boot, the configuration and the next member list, on a busy machine."""
MASTER_NAME, WORKER_NAME = "deeplearning-worker1", "deeplearning-worker2"
FIRST_LOGIN = "journalctl -q -u ssh -o short-unix --grep 'Accepted' | head -n 1 | cut -d. -f1"
CONFIGURED = "stat -c %Y /var/lib/deeplearning/configured"


@pytest.mark.gate
def test_workers_are_members_before_anybody_logs_in(training_cluster: Cluster) -> None:
    for node in NODES[1:]:
        assert_nobody_logged_in_before_it_was_configured(training_cluster, node)


def assert_nobody_logged_in_before_it_was_configured(cluster: Cluster, node: str) -> None:
    first_login, configured = (int(cluster.says(node, f"sudo sh -c {line!r}")) for line in (FIRST_LOGIN, CONFIGURED))
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
    statements = [statement for statement in policy["PolicyDocument"]["Statement"] if statement["Effect"] == "Allow"]
    listed = [statement["Action"] for statement in statements]
    return {action for value in listed for action in ([value] if isinstance(value, str) else value)}


@pytest.mark.gate
def test_members_need_all_that_their_policies_allow(training_cluster: Cluster) -> None:
    runs = Runs(training_cluster)
    run_id = runs.start("counts.py", "100000")
    wait_for(training_cluster.used, 120, "the run's nodes are tagged")
    assert runs.ask("stop", run_id).returncode == 0
    # What a machine does that stages a data set from a bucket: here it finds none.
    bucket = json.loads(training_cluster.says(NODES[0], "cat /etc/deeplearning/cluster.json"))["bucket"]
    for node in NODES:
        staged = training_cluster.ssh(node, f"deeplearning data stage s3://{bucket}/none --on node")
        assert "holds nothing" in staged.stderr, staged.stderr
    for role in ("master", "worker"):
        allowed = allowed_actions(training_cluster, role)
        assert allowed, role
        assert allowed - needed_actions(training_cluster, role) == set(), role


@pytest.mark.long
def test_thirteen_machines_configure_themselves_and_are_destroyed(cloud_with_machines: Cloud) -> None:
    with cloud_with_machines.cluster(f"w-{secrets.token_hex(3)}", worker_count=12) as cluster:
        created = cluster.play("site.yml")
        assert created.code == 0, created.output[-6000:]
        published = ClusterView(cluster).published()
        assert [member["rank"] for member in published["members"]] == list(range(1, 14))
        for member in published["members"][1:]:
            assert_nobody_logged_in_before_it_was_configured(cluster, member["aliases"][0])
        destroyed = cluster.play("destroy.yml", destroy=cluster.name, cluster_keep_efs=False)
        assert destroyed.code == 0, destroyed.output[-6000:]
        assert not cluster.machines()


@pytest.mark.long
@pytest.mark.parametrize("names", [[WORKER_NAME], [MASTER_NAME], [MASTER_NAME, WORKER_NAME]], ids="-".join)
def test_a_training_outlives_its_master_and_a_worker_with_nobody_involved(
    training_cluster: Cluster, names: list[str]
) -> None:
    runs, view = Runs(training_cluster), ClusterView(training_cluster)
    run_id = start_training(runs, "--max-steps", "400", "--checkpoint-steps", "20")
    checkpoints = view.run_file(run_id, "checkpoints")
    wait_for(lambda: len(list(checkpoints.glob("epoch-*"))) > 1, 120, f"{run_id} has checkpoints")
    before = view.instances()
    lost = {before[name] for name in names}
    for instance in lost:
        assert localcloud("fault", "kill", instance).returncode == 0
    # From here on there is no login and no playbook.
    wait_for(lambda: not lost & set(view.instances().values()) and view.is_complete(), HEALED_SECONDS, "it is healed")
    after = view.instances()
    assert {name for name in before if before[name] != after[name]} == set(names)
    result = wait_for(lambda: view.run_record(run_id, "result.json"), HEALED_SECONDS, f"{run_id} ends")
    assert (result["state"], [attempt["cause"] for attempt in result["attempts"]]) == ("finished", ["lost", "finished"])
    assert (result["final"]["step"], result["final"]["ranks"]) == (400, 3)
    assert result["final"]["val_accuracy"] > 0.8
    # New machines have other host keys: the ssh configuration learns them.
    assert training_cluster.play("status.yml").code == 0
    assert "resumes from epoch-" in runs.log(run_id, "worker0")


def log_of(instance: str) -> str:
    """Return what a machine has written while it configures itself; nothing while it boots."""
    return localcloud("exec", instance, "--", "cat", "/var/log/deeplearning-boot.log").stdout


@pytest.mark.long
def test_a_machine_configures_itself_in_spite_of_bad_luck(training_cluster: Cluster) -> None:
    """Its clock is wrong, the file system is not there yet, Auto Scaling throttles its answers, and it reboots."""
    view, ec2 = ClusterView(training_cluster), training_cluster.cloud.client("ec2")
    before = view.instances()
    filters = [{"Name": "tag:Name", "Values": [f"{training_cluster.name}-efs"]}]
    (group,) = ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
    permissions = {"GroupId": group["GroupId"], "IpPermissions": group["IpPermissions"]}
    ec2.revoke_security_group_ingress(**permissions)
    lifecycle = {"action": "autoscaling:*Lifecycle*"}
    throttled = booted.add_fault("throttle", lifecycle, 0.5, seed=1)
    skewed = booted.add_fault("skew", {}, 7200.0)
    try:
        assert localcloud("fault", "kill", before[WORKER_NAME]).returncode == 0
        (instance,) = wait_for(lambda: set(view.machines()) - set(before.values()), 120, "another machine")
        wait_for(lambda: " efs_mount\n" in log_of(instance), 120, f"{instance} waits for the file system")
        assert "RequestTimeTooSkewed" in log_of(instance)
        booted.clear_fault(skewed)
        ec2.reboot_instances(InstanceIds=[instance])
        wait_for(lambda: log_of(instance).count(" efs_mount\n") == 2, 120, f"{instance} has begun again")
        ec2.authorize_security_group_ingress(**permissions)
        wait_for(lambda: instance in view.instances().values() and view.is_complete(), HEALED_SECONDS, "it is healed")
        assert {**before, WORKER_NAME: instance} == view.instances()
    finally:
        for fault in (skewed, throttled):
            localcloud("fault", "clear", fault)


@pytest.mark.long
def test_a_split_network_and_a_deleted_list_change_no_member(training_cluster: Cluster) -> None:
    view = ClusterView(training_cluster)
    before = view.published()
    workers = [instance for name, instance in view.instances().items() if name != MASTER_NAME]
    for instance in workers:
        assert localcloud("fault", "cut", instance).returncode == 0
    path = view.published_path
    path.unlink()
    wait_for(path.exists, 120, "the master publishes it again, alone")
    assert [localcloud("fault", "mend", instance).returncode for instance in workers] == [0, 0]
    wait_for(view.is_complete, 120, "the workers use the new list")
    after = view.published()
    assert (after["members"], after["generation"] > before["generation"]) == (before["members"], True)
