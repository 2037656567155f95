"""What emr.yml makes in AWS, by plain boto3, up to where its machines are configured: these do not boot."""

from __future__ import annotations

import gzip
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.account.census import KILLED, LIVING, WHOLE_EMR, census
from tests.account.kit import CLOUD_HALF, REGION

pytestmark = pytest.mark.gate

ACCOUNT = "123456789012"
RED = [{"Name": "tag:deeplearning:cluster", "Values": ["red"]}]


@pytest.fixture
def emr_account(account: Any, tmp_path: Path) -> Any:
    account.wants("red", cluster_instance_type="m5.xlarge", cluster_worker_count=2, emr=True, emr_poll_seconds=1)
    for setting in ("cluster_image", "cluster_login_user"):
        del account.settings[setting]
    return account


def living(account: Any) -> list[Any]:
    emr = account.client("emr")
    return [
        emr.describe_cluster(ClusterId=cluster["Id"])["Cluster"]
        for cluster in emr.list_clusters(ClusterStates=LIVING)["Clusters"]
    ]


def groups(account: Any, cluster: Any) -> dict[str, Any]:
    listed = account.client("emr").list_instance_groups(ClusterId=cluster["Id"])["InstanceGroups"]
    return {group["InstanceGroupType"]: group for group in listed}


def play(account: Any, playbook: str, *arguments: str, code: int = 0, **extra: Any) -> Any:
    settings = dict(account.settings)
    if playbook not in (CLOUD_HALF, "plan.yml"):
        del account.settings["emr"]
    try:
        ran = account.play(playbook, *arguments, **extra)
    finally:
        account.settings.clear()
        account.settings.update(settings)
    assert ran.code == code, ran.output[-6000:]
    return ran


def test_a_cluster_is_created_repeated_and_removed(emr_account: Any) -> None:
    account = emr_account
    play(account, CLOUD_HALF)
    (cluster,) = living(account)
    check_cluster(account, cluster)
    check_network(account)

    since = time.time()
    assert play(account, CLOUD_HALF).changed == 0
    assert [call for call in account.writes(since) if call.startswith("elasticmapreduce")] == []
    calls = [call for call in account.cloud.calls.since(since) if call["service"] in ("emr", "elasticmapreduce")]
    # The last one reads when EMR ends the cluster, for the summary.
    assert 0 < len(calls) <= 14, [call["operation"] for call in calls]

    node = account.client("emr").list_instances(ClusterId=cluster["Id"])["Instances"][-1]["Ec2InstanceId"]
    refused = play(account, "playbooks/replace.yml", code=2, node=node)
    assert not account.writes(refused.started[0]), account.writes(refused.started[0])
    reason = "has no Auto Scaling group, which launches another machine: EMR replaces core nodes"
    assert f"node is {node}, and the cluster red in us-east-1" in flat(refused.output), refused.output
    assert reason in flat(refused.output), refused.output

    play(account, "destroy.yml", destroy="red", cluster_keep_efs=False)
    check_gone(account, kept=False)


@pytest.mark.long
def test_a_cluster_is_planned_resized_listed_and_removed_without_its_file_system(emr_account: Any) -> None:
    account = emr_account
    ran = play(account, "emr.yml", "--check")
    assert living(account) == [] and not account.writes(ran.started[0]), account.writes(ran.started[0])

    play(account, CLOUD_HALF)
    (cluster,) = living(account)
    play(account, CLOUD_HALF, cluster_worker_count=3, cluster_emr_idle_minutes=30, cluster_tags={"team": "vision"})
    core = groups(account, cluster)["CORE"]
    assert (core["RequestedInstanceCount"], core["RunningInstanceCount"]) == (3, 3)
    emr = account.client("emr")
    assert emr.get_auto_termination_policy(ClusterId=cluster["Id"])["AutoTerminationPolicy"] == {"IdleTimeout": 1800}

    status = play(account, "status.yml")
    assert "is ready: 4 of 4 machines in service" in status.output, status.output
    assert "EMR cluster j-" in play(account, "playbooks/audit.yml").output

    # site.yml refuses the name.
    site = play(account, "plan.yml", code=2, emr=False)
    assert "an EMR cluster of this name lives" in flat(site.output)

    emr.set_termination_protection(JobFlowIds=[cluster["Id"]], TerminationProtected=True)
    play(account, "destroy.yml", destroy="red")
    check_gone(account, kept=True)
    play(account, "destroy.yml", destroy="red", cluster_keep_efs=False)
    check_gone(account, kept=False)


def test_a_failing_bootstrap_action_shows_its_own_stderr_and_nothing_keeps_running(
    emr_account: Any,
) -> None:
    """On one of three nodes, as EMR would do it."""
    account = emr_account
    failing: list[str] = []

    def store_log(cluster: str, machine: str) -> None:
        key = f"emr-logs/{cluster}/node/{machine}/bootstrap-actions/1/stderr.gz"
        body = gzip.compress(b"step efs_mount\nthe mount target does not answer\n")
        account.client("s3").put_object(Bucket=f"red-{ACCOUNT}-{REGION}", Key=key, Body=body)

    def failing_action(machine: str, settings: Any) -> int:
        if failing or settings["instance_info"]["isMaster"]:
            return 0
        failing.append(machine)
        threading.Thread(target=store_log, args=(settings["cluster"], machine)).start()
        return 1

    account.cloud.fail_bootstrap_actions(failing_action)
    ran = play(account, CLOUD_HALF, code=2)
    assert f"On 1 slave instances (including {failing[0]}), bootstrap action 1 returned" in flat(ran.output)
    assert "Nothing keeps running." in flat(ran.output) and "the mount target does not answer" in flat(ran.output)
    assert living(account) == []
    running = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    assert account.client("ec2").describe_instances(Filters=RED + running)["Reservations"] == []


def flat(output: str) -> str:
    """Ansible's output without its breaks of lines."""
    return " ".join(output.split())


def check_cluster(account: Any, cluster: Any) -> None:
    assert (cluster["Status"]["State"], cluster["Name"], cluster["ReleaseLabel"]) == ("WAITING", "red", "emr-7.14.0")
    assert {tag["Key"]: tag["Value"] for tag in cluster["Tags"]} == {
        "Name": "red",
        "deeplearning:cluster": "red",
        "deeplearning:user": "hadoop",
    }
    assert [application["Name"] for application in cluster["Applications"]] == ["Hadoop"]
    assert cluster["LogUri"].rstrip("/").endswith(f"://red-{ACCOUNT}-{REGION}/emr-logs")
    assert not cluster["TerminationProtected"] and cluster["UnhealthyNodeReplacement"]
    counts = {
        role: (group["InstanceType"], group["RunningInstanceCount"]) for role, group in groups(account, cluster).items()
    }
    assert counts == {"MASTER": ("m5.xlarge", 1), "CORE": ("m5.xlarge", 2)}
    (configuration,) = cluster["Configurations"]
    assert configuration["Properties"]["yarn.nodemanager.resource.memory-mb"] == "4096"
    emr = account.client("emr")
    (action,) = emr.list_bootstrap_actions(ClusterId=cluster["Id"])["BootstrapActions"]
    stored = account.client("s3").get_object(
        Bucket=f"red-{ACCOUNT}-{REGION}", Key=action["ScriptPath"].split("/", 3)[3]
    )
    assert stored["ContentLength"] > 0
    assert emr.get_auto_termination_policy(ClusterId=cluster["Id"])["AutoTerminationPolicy"] == {"IdleTimeout": 3600}


def check_network(account: Any) -> None:
    """All machines have public addresses, so there is no NAT gateway. ssh is for the primary node alone."""
    ec2 = account.client("ec2")
    assert ec2.describe_nat_gateways(Filter=RED)["NatGateways"] == []
    assert ec2.describe_addresses(Filters=RED)["Addresses"] == []
    named = {
        group["GroupName"]: group["GroupId"] for group in ec2.describe_security_groups(Filters=RED)["SecurityGroups"]
    }
    instances = [
        instance for item in ec2.describe_instances(Filters=RED)["Reservations"] for instance in item["Instances"]
    ]
    assert len(instances) == 3 and all(instance.get("PublicIpAddress") for instance in instances)
    for instance in instances:
        tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
        is_primary = tags["aws:elasticmapreduce:instance-group-role"] == "MASTER"
        own = {"red-emr-master", "red-ssh"} if is_primary else {"red-emr-core"}
        attached = {group["GroupId"] for group in instance["SecurityGroups"]}
        assert attached == {named[name] for name in own | {"red-members"}}
    (target,) = [
        target
        for system in account.client("efs").describe_file_systems()["FileSystems"]
        for target in account.client("efs").describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]
    ]
    assert target["LifeCycleState"] == "available"


def check_gone(account: Any, kept: bool) -> None:
    ec2, iam = account.client("ec2"), account.client("iam")
    assert living(account) == []
    # AWS shows these for some time after their end. The VPC, which they were in, is gone.
    ended = ("instance", "natgateway")
    left = [tag for tag in ec2.describe_tags(Filters=RED_TAGS)["Tags"] if tag["ResourceType"] not in ended]
    assert left == []
    assert [role["RoleName"] for role in iam.list_roles()["Roles"] if role["RoleName"].startswith("red-")] == []
    assert len(account.client("efs").describe_file_systems()["FileSystems"]) == int(kept)


RED_TAGS = [{"Name": "key", "Values": ["deeplearning:cluster"]}, {"Name": "value", "Values": ["red"]}]


@pytest.mark.long
def test_killed_and_run_again_there_is_one_cluster_and_then_nothing(emr_account: Any) -> None:
    """In the places that matter most: AWS has carried out the call, and the playbook has not heard of it."""
    account, empty = emr_account, census(emr_account)
    ran = account.play(CLOUD_HALF, kill_at_write="RunJobFlow")
    assert ran.code == KILLED, ran.output[-6000:]
    play(account, CLOUD_HALF)
    assert len(account.client("emr").list_clusters()["Clusters"]) == 1
    assert census(account) - empty == WHOLE_EMR

    consent = {"destroy": "red", "cluster_keep_efs": False}
    for place in ("TerminateJobFlows", 3):
        play(account, "destroy.yml", code=KILLED, kill_at_write=place, **consent)
    play(account, "destroy.yml", **consent)
    assert census(account) == empty
    assert play(account, "destroy.yml", **consent).changed == 0


@pytest.mark.long
def test_without_public_addresses_all_machines_are_in_the_private_subnet(emr_account: Any) -> None:
    account = emr_account
    account.settings |= {"cluster_public": False, "cluster_ssh_allowed_cidrs": ["10.8.0.0/16"]}
    play(account, CLOUD_HALF)
    (cluster,) = living(account)
    network, ec2 = cluster["Ec2InstanceAttributes"], account.client("ec2")
    instances = [
        instance for item in ec2.describe_instances(Filters=RED)["Reservations"] for instance in item["Instances"]
    ]
    assert len(instances) == 3 and not any(instance.get("PublicIpAddress") for instance in instances)
    assert {instance["SubnetId"] for instance in instances} == {network["Ec2SubnetId"]}
    names = {
        group["GroupId"]: group["GroupName"] for group in ec2.describe_security_groups(Filters=RED)["SecurityGroups"]
    }
    assert names[network["ServiceAccessSecurityGroup"]] == "red-emr-service"
    (gateway,) = ec2.describe_nat_gateways(Filter=RED)["NatGateways"]
    assert gateway["State"] == "available"

    since = time.time()
    assert play(account, CLOUD_HALF).changed == 0
    assert account.writes(since) == []
    play(account, "destroy.yml", destroy="red", cluster_keep_efs=False)
    check_gone(account, kept=False)
