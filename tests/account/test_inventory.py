"""The inventory and the meeting of members on an account: what ansible-inventory shows, and ssh's configuration."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.account.fleet import Fleet, fleet, host_key, meeting, with_file_system
from tests.account.kit import ROOT, Account

pytestmark = pytest.mark.gate


def listed(account: Account, cluster: str, **options: Any) -> dict[str, Any]:
    """All of the inventory, as `ansible-inventory --list` has it."""
    file = account.folder / "red.deeplearning.yml"
    file.write_text(
        json.dumps({"plugin": "deeplearning.aws.cluster", "cluster": cluster, "folder": str(account.folder), **options})
    )
    command = [str(Path(sys.executable).parent / "ansible-inventory"), "-i", str(file), "--list"]
    ran = subprocess.run(command, cwd=ROOT, env=account.environment, capture_output=True, text=True, check=True)
    # Ansible marks what it will not run as a template.
    listing: dict[str, Any] = json.loads(ran.stdout, object_hook=lambda one: one.get("__ansible_unsafe", one))
    return listing


def meet(account: Account, *arguments: str, code: int = 0, cluster: str = "red", **extra: Any) -> Any:
    ran = account.play(meeting(account.folder), *arguments, cluster_name=cluster, **extra)
    assert ran.code == code, ran.output
    return ran


@pytest.fixture
def red(account: Account) -> Fleet:
    return fleet(account, "red", 2)


def test_members_are_discovered_and_then_reached_by_their_keys(account: Account, red: Fleet) -> None:
    system = with_file_system(red)
    red.report(red.id(1), "master", gpus=4)
    for worker in (2, 3):
        red.report(red.id(worker), "worker")

    # Before anybody has a rank, and in check mode nothing is written.
    checked = meet(account, "--check")
    assert checked.changed > 0
    assert not (account.folder / "red.ssh_config").exists()
    assert meet(account).changed > 0
    joining = listed(account, "red")
    assert joining["joining"]["hosts"] == sorted([red.id(2), red.id(3)])

    red.rank()
    meet(account)
    met = json.loads((account.folder / "met.json").read_text())
    assert met["cluster"] == {
        "cluster_id": red.groups["members"],
        "bucket": red.bucket,
        "vpc_cidrs": ["10.0.0.0/16"],
        "master_role_id": red.role_ids["master"],
        "file_system_id": system,
        "domain": "amazonaws.com",
        "user": "ubuntu",
        "job_flow": "",
    }
    named = {member["name"]: (member["instance_id"], member["rank"], member["gpus"]) for member in met["members"]}
    assert named == {
        "deeplearning-master": (red.id(1), 1, 4),
        "deeplearning-worker2": (red.id(2), 2, 0),
        "deeplearning-worker3": (red.id(3), 3, 0),
    }
    pinned = (account.folder / "red.known_hosts").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in pinned] == [host_key(red.id(number)) for number in (1, 2, 3)]

    inventory = listed(account, "red")
    assert inventory["workers"]["hosts"] == ["deeplearning-worker2", "deeplearning-worker3"]
    worker = inventory["_meta"]["hostvars"]["deeplearning-worker2"]
    assert worker["ansible_ssh_common_args"] == f"-o ForwardAgent=no -F {account.folder / 'red.ssh_config'}"
    assert (worker["ansible_user"], worker["deeplearning_gpus"], worker["deeplearning_type"]) == (
        "ubuntu",
        1,
        "g5.xlarge",
    )
    # Nothing has changed since.
    meet(account)
    assert json.loads((account.folder / "met.json").read_text())["changed"] is False

    # A machine that reports another key is believed, and known by it alone.
    red.report(red.id(2), "worker", host_keys=[host_key("another")])
    meet(account)
    (line,) = [line for line in (account.folder / "red.known_hosts").read_text().splitlines() if red.id(2) in line]
    assert line.endswith(host_key("another"))


def test_who_is_not_known_is_not_connected_to(account: Account, red: Fleet) -> None:
    """One has reported nonsense, one has not reported and shows nothing on its console."""
    with_file_system(red)
    red.report(red.id(1), "master")
    red.report(red.id(2), "worker", host_keys=["* ssh-ed25519 AAAA"])
    # A report that another machine wrote in its place does not count.
    red.report(red.id(3), "master", instance_id=red.id(3))
    ran = meet(account, code=2)
    ids = ", ".join(sorted([red.id(2), red.id(3)]))
    message = " ".join(ran.output.split())
    assert f"The host keys of {ids} are unknown after 0 s" in message
    assert f"The report of {red.id(2)} in {red.bucket} is not in the expected form" in message
    config = (account.folder / "red.ssh_config").read_text()
    assert red.id(1) in config
    assert red.id(2) not in config and red.id(3) not in config


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "There is no cluster green in us-east-1 (account 123456789012), there is none: give the name of one"),
        (("red",), "There is no cluster green in us-east-1 (account 123456789012), there is red: give the name of one"),
        (("blue", "red"), "there are blue, red: give the name of one, or create it. Example: -e cluster_name=blue"),
        (("green",), "The cluster green has no machines in us-east-1 (account 123456789012): ansible-playbook "),
    ],
)
def test_a_cluster_that_is_not_there(account: Account, names: tuple[str, ...], message: str) -> None:
    for name in names:
        tags = [{"Key": "deeplearning:cluster", "Value": name}]
        specification = [{"ResourceType": "vpc", "Tags": tags}]
        account.client("ec2").create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=specification)
    assert message in " ".join(meet(account, cluster="green", code=2).output.split())


def test_a_tag_is_never_run(account: Account, red: Fleet) -> None:
    """As Ansible itself uses the variable, in a playbook on the host."""
    evil = "{{ lookup('pipe', 'touch " + str(account.folder / "run") + "') }}"
    master = red.id(1)
    for key in ("deeplearning:user", "deeplearning:rank", "Name"):
        red.ec2.create_tags(Resources=[master], Tags=[{"Key": key, "Value": evil}])
    red.ec2.create_tags(Resources=[red.id(2)], Tags=[{"Key": "deeplearning:rank", "Value": evil}])
    listing = listed(account, "red", compose={"composed": "deeplearning_instance_id ~ deeplearning_rank"})
    assert listing["master"]["hosts"] == ["deeplearning-master"]
    assert "ansible_user" not in listing["_meta"]["hostvars"]["deeplearning-master"]
    assert listing["_meta"]["hostvars"]["deeplearning-master"]["composed"] == f"{master}1"
    assert not (account.folder / "run").exists()


SSH = """\
#!/bin/sh
# The login to the master is the only command without Ansible's options.
case "$*" in *ansible*|*ControlMaster*) echo "no machine is there" >&2; exit 255;; esac
"""


def test_configure_works_on_the_machines_of_its_limit(account: Account, red: Fleet) -> None:
    """No machine can be reached, so Ansible names those that the playbook has tried to configure."""
    with_file_system(red)
    red.report(red.id(1), "master")
    for worker in (2, 3):
        red.report(red.id(worker), "worker")
    red.rank()
    ssh = account.folder / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    account.environment["PATH"] = f"{ssh.parent}:{account.environment['PATH']}"
    file = account.folder / "red.deeplearning.yml"
    file.write_text(json.dumps({"plugin": "deeplearning.aws.cluster", "cluster": "red", "folder": str(account.folder)}))

    ran = account.play("playbooks/configure.yml", "-i", str(file), "--limit", "deeplearning-worker2")
    # Ansible's code for unreachable hosts.
    assert ran.code == 4
    assert "fatal: [deeplearning-worker2]: UNREACHABLE!" in ran.output
    assert "fatal: [deeplearning-worker3]" not in ran.output and "fatal: [deeplearning-master]" not in ran.output

    ran = account.play("playbooks/configure.yml", "-i", str(file), "--limit", "deeplearning-worker9,localhost")
    assert ran.code == 2
    assert "--limit deeplearning-worker9,localhost selects no machine of the cluster" in " ".join(ran.output.split())
