"""status.yml with booted machines: what they report about themselves, and a master that ssh cannot reach."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest

from tests.integration.machines import Cluster, wait_for


def described(cluster: Cluster) -> dict[str, Any]:
    started = time.monotonic()
    ran = cluster.play("status.yml")
    assert ran.code == 0 and time.monotonic() - started < 120, ran.output
    print(ran.output)
    file = cluster.cloud.folder / ".deeplearning" / f"{cluster.name}.json"
    summary: dict[str, Any] = json.loads(file.read_text())
    return summary


@pytest.mark.long
def test_members_report_their_load_and_a_closed_port_is_named(training_cluster: Cluster) -> None:
    names = {"deeplearning-master", "deeplearning-worker2", "deeplearning-worker3"}
    folder = f"/efs/.deeplearning/{training_cluster.name}/load"
    count = f"sudo ls {folder} | wc -l"
    wait_for(lambda: int(training_cluster.says("deeplearning-master", count)) >= 3, 150, "all members write their load")
    summary = described(training_cluster)
    assert {member["name"]: member["health"] for member in summary["members"]} == dict.fromkeys(names, "ready")
    assert all(0 < member["load"]["memory_percent"] < 100 for member in summary["members"])
    assert summary["master_problem"] == "" and summary["efs"]["bytes"] is not None

    # A terminal is a login, and Ansible's own sessions are none.
    words = training_cluster.ssh_words("deeplearning-worker2", "-tt")
    terminal = subprocess.Popen([*words, "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        logins = "sudo deeplearning members load --json"
        wait_for(
            lambda: json.loads(training_cluster.says("deeplearning-worker2", logins))["logins"] == 1, 30, "one login"
        )
    finally:
        terminal.kill()
        terminal.wait()

    ec2 = training_cluster.cloud.client("ec2")
    filters = [{"Name": "tag:Name", "Values": [f"{training_cluster.name}-ssh"]}]
    (group,) = ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
    rules = {"GroupId": group["GroupId"], "IpPermissions": group["IpPermissions"]}
    ec2.revoke_security_group_ingress(**rules)
    try:
        summary = described(training_cluster)
    finally:
        ec2.authorize_security_group_ingress(**rules)
    assert {member["health"] for member in summary["members"]} == {"in service"}
    assert summary["problems"][0].startswith("The master does not answer. ")
