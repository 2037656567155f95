"""A member, an operator and a file system out of reach, and a cluster on the file system of a former one."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from localcloud.testing.booted import wait_for
from tests.integration.machines import Cloud, Cluster, localcloud
from tests.integration.runs import MASTER, NODES, Runs

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(cloud_with_machines: Cloud) -> Iterator[Cluster]:
    """Of these tests alone, as they take away what a cluster stands on."""
    with cloud_with_machines.cluster(f"u-{secrets.token_hex(3)}", worker_count=2) as cluster:
        made = cluster.play("site.yml")
        assert made.code == 0, made.output[-6000:]
        yield cluster


def status(cluster: Cluster) -> dict[str, Any]:
    """What status.yml shows, as data."""
    ran = cluster.play("status.yml")
    assert ran.code == 0, ran.output
    print(ran.output)
    summary: dict[str, Any] = json.loads((cluster.cloud.folder / f".deeplearning/{cluster.name}.json").read_text())
    return summary


def test_the_screen_shows_the_load_of_members_and_a_master_that_ssh_cannot_reach(cluster: Cluster) -> None:
    count = f"sudo ls /efs/.deeplearning/{cluster.name}/load | wc -l"
    wait_for(lambda: int(cluster.says(MASTER, count)) >= 3, 150, "all members have written their load")
    summary = status(cluster)
    assert {member["health"] for member in summary["members"]} == {"ready"} and len(summary["members"]) == 3
    assert all(0 < member["load"]["memory_percent"] < 100 for member in summary["members"])
    assert summary["master_problem"] == "" and summary["efs"]["bytes"] is not None

    # A terminal is a login, and the sessions of Ansible and of this test are none.
    terminal = subprocess.Popen(
        [*cluster.ssh_words(NODES[1], "-tt"), "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    load = "sudo deeplearning members load --json"
    try:
        wait_for(lambda: json.loads(cluster.says(NODES[1], load))["logins"] == 1, 120, "one login")
    finally:
        terminal.kill()
        terminal.wait()

    ec2 = cluster.cloud.client("ec2")
    filters = [{"Name": "tag:Name", "Values": [f"{cluster.name}-ssh"]}]
    (group,) = ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
    rules = {"GroupId": group["GroupId"], "IpPermissions": group["IpPermissions"]}
    ec2.revoke_security_group_ingress(**rules)
    try:
        summary = status(cluster)
    finally:
        ec2.authorize_security_group_ingress(**rules)
    assert {member["health"] for member in summary["members"]} == {"in service"}
    assert summary["problems"][0].startswith("The master does not answer. ")


def test_a_member_that_cannot_be_reached_is_named_and_the_others_go_on(cluster: Cluster) -> None:
    lost = cluster.members()["members"][2]["instance_id"]
    assert localcloud("fault", "cut", lost).returncode == 0
    try:
        ran = cluster.play("playbooks/configure.yml", ansible_timeout=5)
    finally:
        assert localcloud("fault", "mend", lost).returncode == 0
    assert ran.code != 0
    assert f"{NODES[2]} could not be configured" in ran.output
    assert "The others are members, 2 of them" in ran.output


def test_an_operator_from_elsewhere_is_told_why_ssh_fails(cluster: Cluster) -> None:
    ec2 = cluster.cloud.client("ec2")
    groups = ec2.describe_security_groups(Filters=[{"Name": "tag:Name", "Values": [f"{cluster.name}-ssh"]}])
    (group,) = groups["SecurityGroups"]
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "198.51.100.1/32"}]}
    ec2.revoke_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[rule])
    try:
        ran = cluster.play("playbooks/configure.yml")
    finally:
        ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[rule])
    assert ran.code != 0
    assert "It lets 198.51.100.1/32 in (cluster_ssh_allowed_cidrs)" in ran.output and "checkip" in ran.output


def test_a_file_system_that_cannot_be_reached_is_explained(cluster: Cluster) -> None:
    ec2, efs = cluster.cloud.client("ec2"), cluster.cloud.client("efs")
    (file_system,) = [
        system for system in efs.describe_file_systems()["FileSystems"] if system.get("Name") == f"{cluster.name}-efs"
    ]
    vpc = next(iter(cluster.machines().values()))["VpcId"]

    def cause() -> str:
        ran = cluster.play("playbooks/configure.yml", efs_mount_wait_seconds=3)
        assert ran.code != 0
        return " ".join(ran.output.split())

    # The file system stalls: processes that use it wait, and continue when it is back.
    assert localcloud("fault", "stall", file_system["FileSystemId"]).returncode == 0
    try:
        message = cause()
    finally:
        assert localcloud("fault", "resume", file_system["FileSystemId"]).returncode == 0
    for node in NODES:
        assert f"{node}, after 3 s: {file_system['FileSystemId']}" in message
    assert "is mounted at /efs and does not answer" in message
    again = cluster.play("playbooks/configure.yml")
    assert (again.code, again.changed) == (0, 0), again.output[-6000:]

    groups = ec2.describe_security_groups(Filters=[{"Name": "tag:Name", "Values": [f"{cluster.name}-efs"]}])
    (group,) = groups["SecurityGroups"]
    ec2.revoke_security_group_ingress(GroupId=group["GroupId"], IpPermissions=group["IpPermissions"])
    assert "does not answer on port 2049" in cause()
    ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=group["IpPermissions"])

    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsSupport={"Value": False})
    assert "DNS is what is wrong" in cause()
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsSupport={"Value": True})

    # Of its own mount target the operator's side knows by itself; of one in another zone only the machine.
    asking = {
        "name": f"{file_system['FileSystemId']}.efs.us-east-1.amazonaws.com",
        "own_name": cluster.says(MASTER, "hostname -f"),
        "path": "/efs",
        "source": f"{file_system['FileSystemId']}.efs.us-east-1.amazonaws.com:/",
        "mark": "none",
        "node": MASTER,
        "timeout": 2,
    }
    for target in efs.describe_mount_targets(FileSystemId=file_system["FileSystemId"])["MountTargets"]:
        efs.delete_mount_target(MountTargetId=target["MountTargetId"])
    asked = cluster.ask(MASTER, "deeplearning.aws.wait_for_nfs", **asking)
    assert asked.code != 0 and "no mount target in this machine's zone" in asked.output, asked.output
    assert "has no mount target" in cause()


def test_a_new_cluster_on_the_kept_file_system_does_not_go_by_the_old_list(cluster: Cluster) -> None:
    old = cluster.members()
    runs = Runs(cluster)
    run_id = runs.start("counts.py", "4")
    assert runs.wait(run_id) == 0
    (detached,) = (member["instance_id"] for member in old["members"] if member["rank"] == 3)
    cluster.cloud.client("autoscaling").detach_instances(
        InstanceIds=[detached], AutoScalingGroupName=f"{cluster.name}-workers", ShouldDecrementDesiredCapacity=True
    )
    ended = cluster.play("destroy.yml", destroy=cluster.name)
    assert ended.code == 0, ended.output[-6000:]
    assert not cluster.machines(), "the machine that was taken from its group is the cluster's still"
    made = cluster.play("site.yml", cluster_worker_count=0)
    assert made.code == 0, made.output[-6000:]
    new = cluster.members()
    assert new["cluster_id"] != old["cluster_id"]
    assert [member["rank"] for member in new["members"]] == [1]
    assert not {member["instance_id"] for member in new["members"]} & {
        member["instance_id"] for member in old["members"]
    }
    assert cluster.says(MASTER, "cat /opt/deeplearning/workers") == "deeplearning-worker1"
    # The training continues from its checkpoint.
    resumed = cluster.play("train.yml", resume=run_id, script_args=["8"])
    assert resumed.code == 0, resumed.output[-3000:]
    assert runs.counted(run_id) == [(0, 3), (4, 1)]
