"""The action `discover_members`: what it returns and writes, and when it fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.deeplearning.aws.plugins.action import discover_members
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import run_cost
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.membership import (
    Cluster,
    ClusterNode,
    record_of,
)

from tests.account.fleet import host_key
from tests.account.kit import ROOT
from tests.unit.actions import run_action
from tests.unit.cluster_kit import REGION, MadeCluster
from tests.unit.conftest import Account
from tests.unit.plugins.instances_kit import emr_instance, instance

Discover = Callable[..., dict[str, Any]]
GROUPS = ["red-master", "red-workers"]


@pytest.fixture
def red(aws: Account) -> MadeCluster:
    """A cluster of a master and a worker, both of which have reported."""
    made = MadeCluster(aws)
    made.network()
    made.identities()
    made.bucket()
    made.file_system()
    made.machines(master=1, workers=1)
    made.report(made.instances("master")[0], "master", gpus=8, bundle="b" * 64)
    made.report(made.instances("workers")[0], "worker")
    made.rank(made.instances("workers")[0], 2)
    return made


@pytest.fixture
def discover(tmp_path: Path) -> Discover:
    def call(check: bool = False, **options: Any) -> dict[str, Any]:
        own = {"region": REGION, "cluster": "red", "folder": str(tmp_path / "state"), "wait_seconds": 0}
        return run_action("discover_members", check, **{**own, **options})

    return call


def test_members_are_returned_and_files_for_ssh_written_once(
    red: MadeCluster, discover: Discover, tmp_path: Path
) -> None:
    (master,), (worker,) = red.instances("master"), red.instances("workers")
    hosts, config = (tmp_path / "state" / f"red.{kind}" for kind in ("known_hosts", "ssh_config"))
    assert discover(check=True)["changed"] and not hosts.exists()

    discovered = discover(user="ubuntu", private_key_file="key", bastion="gate")
    assert discovered["changed"] and "failed" not in discovered
    assert [(node["name"], node["instance_id"], node["role"], node["rank"]) for node in discovered["members"]] == [
        ("deeplearning-master", master, "master", 1),
        ("deeplearning-worker2", worker, "worker", 2),
    ]
    assert [(node["gpus"], node["bundle"]) for node in discovered["members"]] == [(8, "b" * 64), (1, "")]
    assert all(node["private_address"].startswith("10.0.0.") for node in discovered["members"])
    assert all(re.fullmatch(r"[a-z0-9-]+\.[a-z0-9]+", node["type"]) for node in discovered["members"])
    cluster = discovered["cluster"]
    assert (cluster["cluster_id"], cluster["user"]) == (red.ids["members"], "ubuntu")
    assert (cluster["file_system_id"], cluster["domain"]) == (red.ids["file_system"], "amazonaws.com")
    assert (cluster["bucket"], cluster["vpc_cidrs"]) == (red.names.bucket, ["10.0.0.0/16"])
    assert cluster["master_role_id"] == red.role_id("master")
    assert discovered["data_bucket"] == "123456789012-us-east-1-deeplearning-data"

    assert {file.stat().st_mode & 0o777 for file in (hosts, config)} == {0o600}
    keys = dict(line.split(" ", 1) for line in hosts.read_text().splitlines())
    assert set(keys.values()) == {host_key(master), host_key(worker)}
    (names,) = (names for names in keys if master in names)
    assert "deeplearning-master" in names.split(",")
    text = config.read_text()
    for line in (
        "User ubuntu",
        f'IdentityFile "{Path("key").absolute()}"',
        "ProxyCommand ssh -o ForwardAgent=no -W %h:%p gate",
        f'UserKnownHostsFile "{hosts}"',
        f"ProxyCommand ssh -F {config} -o ForwardAgent=no -W %h:%p deeplearning-master",
    ):
        assert f"    {line}\n" in text

    again = {"user": "ubuntu", "private_key_file": "key", "bastion": "gate"}
    assert not discover(**again)["changed"] and not discover(check=True, **again)["changed"]
    # One of both files is reason enough.
    hosts.unlink()
    assert discover(check=True, **again)["changed"]
    assert discover(**again)["changed"] and hosts.exists()
    assert discover(check=True, user="admin")["changed"]
    other = discover(connection="ssm")
    assert other["changed"] and "--region us-east-1 --target %h" in config.read_text()


def test_the_prices_of_the_machines_are_read_on_request(red: MadeCluster, discover: Discover, aws: Account) -> None:
    discovered = discover()
    assert "prices" not in discovered and "pricing:GetProducts" not in aws.calls()
    types = {node["type"] for node in discovered["members"]}
    prices = discover(with_prices=True)["prices"]
    assert prices.keys() == types and all(amount > 0 for amount in prices.values())
    assert run_cost.prices(prices) == prices
    aws.cloud.faults.add("error", {"action": "pricing:GetProducts"}, "AccessDeniedException")
    denied = discover(with_prices=True)
    assert denied["prices"] == {} and "failed" not in denied


def test_only_the_master_is_reached_at_a_public_address(red: MadeCluster, discover: Discover, tmp_path: Path) -> None:
    (master,) = red.instances("master")
    red.ec2.associate_address(AllocationId=red.address(), InstanceId=master)
    (address,) = red.ec2.describe_addresses()["Addresses"]
    other = red.ec2.allocate_address(Domain="vpc")
    red.ec2.associate_address(AllocationId=other["AllocationId"], InstanceId=red.instances("workers")[0])
    discover()
    text = (tmp_path / "state/red.ssh_config").read_text()
    assert f"    HostName {address['PublicIp']}\n" in text and other["PublicIp"] not in text


def test_a_machine_without_known_keys_is_in_no_file_and_fails_the_task(
    red: MadeCluster, discover: Discover, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (worker,) = red.instances("workers")
    red.report(worker, "worker", instance_id="i-00000000000000000")
    discovered = discover()
    assert discovered["failed"]
    assert discovered["msg"].startswith("The host keys of deeplearning-worker2 are unknown after 0 s: neither a report")
    assert worker not in (tmp_path / "state/red.ssh_config").read_text()
    assert [(node["gpus"], node["bundle"]) for node in discovered["members"]] == [(8, "b" * 64), (None, "")]
    assert f"The report of {worker} in {red.names.bucket} is not in the expected form" in " ".join(
        capsys.readouterr().err.split()
    )
    assert "failed" not in discover(check=True)


def test_a_cluster_without_a_master_is_no_cluster_yet(red: MadeCluster, discover: Discover) -> None:
    red.scaling.update_auto_scaling_group(AutoScalingGroupName="red-master", MinSize=0, DesiredCapacity=0)
    red.wait(30)
    discovered = discover()
    assert discovered["failed"] and discovered["msg"].startswith(
        "The cluster red has no master after 0 s: Auto Scaling should"
    )
    assert discover(check=True)["failed"]


def test_a_folder_that_cannot_be_written_is_named(red: MadeCluster, discover: Discover, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    discovered = discover()
    assert discovered["failed"] and discovered["msg"].endswith("Give another folder.")
    assert str(tmp_path / "state") in discovered["msg"]


def test_without_machines_there_is_nothing_to_discover(aws: Account, discover: Discover) -> None:
    discovered = discover()
    assert discovered["failed"] and discovered["msg"].startswith(
        "There is no cluster red in us-east-1 (account 123456789012), there is none:"
    )
    MadeCluster(aws, "blue").bucket()
    discovered = discover()
    assert discovered["msg"].endswith(
        "there is blue: give the name of one, or create it. Example: -e cluster_name=blue"
    )
    MadeCluster(aws, "green").bucket()
    discovered = discover()
    assert "there are blue, green:" in discovered["msg"] and discovered["msg"].endswith("-e cluster_name=blue")
    MadeCluster(aws).bucket()
    assert discover()["msg"].startswith(
        "The cluster red has no machines in us-east-1 (account 123456789012): ansible-playbook"
    )


@pytest.mark.parametrize(
    ("machine", "option", "user"),
    [
        (emr_instance(1, "MASTER"), "admin", "hadoop"),
        (instance(1, "red-master"), "admin", "admin"),
        (instance(1, "red-master"), "", "ubuntu"),
        (instance(1, "red-master", Tags=[]), "", ""),
    ],
)
def test_the_user_of_emrs_machines_is_fixed(machine: dict[str, Any], option: str, user: str) -> None:
    cluster = Cluster("red", [ClusterNode(record_of(machine), "master", 1)])
    options = {"user": option, "private_key_file": "", "connection": "jump", "region": "", "profile": "", "bastion": ""}
    assert discover_members._login(cluster, options).user == user
    assert discover_members._login(cluster, options).private_key_file == ""


def test_the_end_of_the_setup_is_deleted_where_a_member_is_in_service(
    red: MadeCluster, discover: Discover, aws: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    red.schedule_setup_end()
    discover(check=True)
    assert red.setup_ends() == GROUPS
    fault = red.fail("autoscaling:DeleteScheduledAction", "AccessDenied", status=403)
    assert "failed" not in discover()
    assert "the end of the setup was not deleted" in " ".join(capsys.readouterr().err.split())
    aws.cloud.faults.remove(fault)
    assert discover()["changed"] and red.setup_ends() == []
    assert not discover()["changed"]


def test_the_end_of_the_setup_stays_while_all_machines_are_held(
    red: MadeCluster, discover: Discover, aws: Account
) -> None:
    red.schedule_setup_end()
    hold(aws, "master", "workers")
    discover()
    assert red.setup_ends() == GROUPS


def hold(aws: Account, *roles: str) -> None:
    """Let the launch hook hold the machines of these groups."""
    for role in roles:
        aws.cloud.set_lifecycle_state(f"red-{role}", "Pending:Wait", REGION)


@pytest.mark.parametrize(
    ("state", "stays"), [("failed", ["red-workers"]), ("configuring", [])], ids=["failed", "still booting"]
)
def test_workers_that_failed_keep_their_end_beside_a_healthy_master(
    red: MadeCluster, discover: Discover, aws: Account, state: str, stays: list[str]
) -> None:
    """They would cost for 25 hours. Those that still boot could end under a run."""
    red.schedule_setup_end()
    hold(aws, "workers")
    (worker,) = red.instances("workers")
    red.report(worker, "worker", state=state)
    assert discover()["changed"]
    assert red.setup_ends() == stays
    assert not discover()["changed"]


def test_in_check_mode_the_end_of_the_setup_stays_although_the_files_for_ssh_are_written(
    red: MadeCluster, tmp_path: Path
) -> None:
    """The options are those of the task that all playbooks have, which runs in check mode too."""
    red.schedule_setup_end()
    (task,) = yaml.safe_load((ROOT / "playbooks/tasks/host_keys.yml").read_text(encoding="utf-8"))
    own = {"region": REGION, "cluster": "red", "folder": str(tmp_path / "state"), "wait_seconds": 0}
    for check, groups in ((True, GROUPS), (False, [])):
        template = task["deeplearning.aws.discover_members"]["delete_setup_end"]
        option = Templar(DataLoader(), {"ansible_check_mode": check}).template(trust_as_template(template))
        assert "failed" not in run_action("discover_members", task["check_mode"], **own, delete_setup_end=option)
        assert red.setup_ends() == groups
    assert (tmp_path / "state/red.ssh_config").exists()
