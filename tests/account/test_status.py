"""status.yml for clusters that are well, degraded and half-destroyed. ssh is a stand-in for it: no machine boots."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.account.fleet import Fleet, fleet, wait_until, with_file_system
from tests.account.kit import Account

SSH = """\
#!/bin/sh
echo "$@" > {folder}/asked
cat {folder}/answer && exit
echo "ssh: connect to host 198.51.100.1 port 22: Connection timed out" >&2
exit 255
"""
RUN = {
    "run_id": "lenet-1",
    "state": "running",
    "framework": "pytorch",
    "distribution": "ddp",
    "nodes": ["deeplearning-worker1"],
    "progress": {"epoch": 3, "loss": 0.25, "samples_per_second": 812.4},
    "asked_by": "anna",
    "asked_at": "2026-11-23T03:00:00Z",
    "sentence": "",
}


@pytest.fixture
def red(account: Account) -> Fleet:
    """Three machines of a cluster, all of which have reported themselves."""
    (account.folder / "bin").mkdir()
    program = account.folder / "bin/ssh"
    program.write_text(SSH.format(folder=account.folder))
    program.chmod(0o755)
    account.environment["PATH"] = f"{program.parent}:{account.environment['PATH']}"
    account.settings["cluster_name"] = "red"
    inventory = account.folder / "red.deeplearning.yml"
    inventory.write_text(json.dumps({"plugin": "deeplearning.aws.cluster", "cluster": "red", "folder": str(account.folder)}))
    account.environment["ANSIBLE_INVENTORY"] = str(inventory)
    red = fleet(account, "red", 2)
    with_file_system(red)
    red.rank()
    for number in (1, 2, 3):
        red.report(red.id(number), "master" if number == 1 else "worker")
    return red


def load(instance: str, **fields: Any) -> dict[str, Any]:
    gpu = {"busy_percent": 97, "memory_percent": 60}
    common = {"at": int(time.time()), "load": 3.21, "processors": 4, "memory_percent": 41, "disk_percent": 22}
    return {"instance_id": instance, **common, "gpus": [gpu], "logins": 0, "errors": [], **fields}


def answer(red: Fleet, **fields: Any) -> None:
    """Let the master answer."""
    ids = [red.id(number) for number in (1, 2, 3)]
    members = [{"instance_id": id_, "rank": rank, "state": "ready"} for rank, id_ in enumerate(ids, 1)]
    content = {"schema": 1, "members": members, "loads": [load(id_) for id_ in ids], "runs": [RUN], "problems": []}
    (red.account.folder / "answer").write_text(json.dumps(content | fields))


def status(red: Fleet, **extra: Any) -> tuple[str, dict[str, Any]]:
    started = time.time()
    ran = red.account.play("status.yml", **extra)
    assert ran.code == 0 and time.time() - started < 60, ran.output
    return ran.output, json.loads((red.account.folder / "red.json").read_text())


def health(described: dict[str, Any]) -> dict[str, str]:
    return {member["name"]: member["health"] for member in described["members"]}


def test_a_cluster_that_is_well_is_one_screen(red: Fleet) -> None:
    answer(red)
    output, described = status(red)
    print(output)
    assert described["state"] == "ready"
    assert set(health(described).values()) == {"ready"} and described["warnings"] == []


def test_a_degraded_one(red: Fleet) -> None:
    answer(red)
    output, described = status(red)
    red.ec2.terminate_instances(InstanceIds=[red.id(3)])
    wait_until(lambda: any(a["StatusCode"]== "Successful" and a["Description"].startswith("Terminating") for a in red.account.client("autoscaling").describe_scaling_activities(AutoScalingGroupName="red-workers")["Activities"]))
    output, described = status(red)
    print(output)
    (red.account.folder / "answer").unlink()
    output, described = status(red)
    print(output)
    assert 0
