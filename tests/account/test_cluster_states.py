"""plan, status, logs and extend for a cluster that is healthy, degraded and half-destroyed. No machine boots."""

from __future__ import annotations

from typing import Any

import pytest

from tests.account.fleet import wait_until
from tests.account.kit import CLOUD_HALF

MACHINE_STATES = {"Name": "instance-state-name", "Values": ["pending", "running"]}
DENIED = {"code": "UnauthorizedOperation", "message": "No.", "status": 403}


def outputs(account: Any, extend: int) -> dict[str, str]:
    """Return what the playbooks print. `extend`: the exit code of that one."""
    printed = {}
    for playbook, code in (("plan.yml", 0), ("status.yml", 0), ("playbooks/logs.yml", 0)):
        ran = account.play(playbook)
        assert ran.code == code, ran.output
        printed[playbook] = " ".join(ran.output.split())
    ran = account.play("playbooks/extend.yml", hours=4)
    assert ran.code == extend, ran.output
    return printed | {"extend.yml": " ".join(ran.output.split())}


def workers(account: Any) -> list[str]:
    of_group = {"Name": "tag:aws:autoscaling:groupName", "Values": ["red-workers"]}
    listed = account.client("ec2").describe_instances(Filters=[MACHINE_STATES, of_group])["Reservations"]
    return [instance["InstanceId"] for reservation in listed for instance in reservation["Instances"]]


@pytest.mark.long
def test_plan_status_logs_and_extend_work_for_whatever_there_is(account: Any) -> None:
    account.wants("red", cluster_worker_count=2, provision_settle_seconds=1)
    assert account.play(CLOUD_HALF).code == 0
    printed = outputs(account, extend=0)
    assert "Cluster red (us-east-1, account 123456789012) is ready: 3 of 3" in printed["status.yml"]
    assert "The logs of the cluster red: " in printed["playbooks/logs.yml"]
    assert "an hour in all" in printed["plan.yml"] and "machines end" in printed["extend.yml"]

    scaling, ec2 = account.client("autoscaling"), account.client("ec2")
    scaling.suspend_processes(AutoScalingGroupName="red-workers", ScalingProcesses=["Launch"])
    ec2.terminate_instances(InstanceIds=workers(account)[:1])
    wait_until(lambda: len(workers(account)) == 1)
    printed = outputs(account, extend=0)
    assert "2 of 3 machines in service" in printed["status.yml"] and "machines end" in printed["extend.yml"]
    assert "The logs of the cluster red: " in printed["playbooks/logs.yml"] and "an hour in all" in printed["plan.yml"]

    fault = account.cloud.faults.add("error", {"action": "ec2:DeleteSubnet"}, DENIED)
    assert account.play("destroy.yml", destroy="red").code == 2
    account.cloud.faults.remove(fault)
    printed = outputs(account, extend=2)
    assert "there is no group of master and no group of workers yet" in printed["status.yml"]
    assert "The logs of the cluster red: " in printed["playbooks/logs.yml"] and "an hour in all" in printed["plan.yml"]
    no_machines = "The cluster red in us-east-1 (account 123456789012) has no machines whose end could be postponed."
    assert no_machines in printed["extend.yml"]
    assert account.play("destroy.yml", destroy="red", cluster_keep_efs=False).code == 0
