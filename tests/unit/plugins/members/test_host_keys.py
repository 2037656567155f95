"""Host keys as machines tell them, and the files that ssh trusts: nothing but keys, addresses and names gets in."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import schema
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.report import key_of
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members import host_keys
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members.host_keys import (
    DIRECT,
    JUMP,
    SSM,
    Login,
    NodeReport,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.members.recorded_place import recorded_places
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.membership import ClusterNode

from tests.unit.plugins.instances_kit import BLOCK, ECDSA, ED, RSA

MASTER_ID, WORKER_ID = "i-00000000000000001", "i-00000000000000002"


@pytest.mark.parametrize(
    ("console", "keys"),
    [
        (f"booting\n{BLOCK}login:", [ECDSA, ED]),
        (BLOCK.replace("\n", "\r\n"), [ECDSA, ED]),
        ("".join(f"[   12.3] cloud-init[900]: {line}\n" for line in BLOCK.splitlines()), [ECDSA, ED]),
        # The latest counts, as far as it is whole.
        (BLOCK + BLOCK.replace(ED, RSA), [ECDSA, RSA]),
        (BLOCK + BLOCK.replace(ED, RSA)[:300], [ECDSA, ED]),
        # Nothing, rather than something that might be no key.
        ("", []),
        (f"{ED} root@x", []),
        (BLOCK.split("\n", 1)[1], []),
        (BLOCK[:200], []),
        (BLOCK.replace(ED, ED[:60]).replace(ECDSA, ""), []),
        (BLOCK.replace(ED, ED.replace("ssh-ed25519", "ssh-rsa")), [ECDSA]),
        (BLOCK.replace(ED, f"{ED}!"), [ECDSA]),
    ],
)
def test_keys_of_a_console(console: str, keys: list[str]) -> None:
    assert host_keys.parse_console(console) == keys


def report(**other: Any) -> str:
    record = {"schema": 1, "instance_id": MASTER_ID, "host_keys": [ED], "gpus": 4, "state": "ready"}
    record |= {"bundle": "", "step": "", "log": [], "reported_at": "2026-11-21T10:00:00Z"}
    return json.dumps({**record, **other})


def report_of(text: str) -> host_keys.NodeReport | None:
    return host_keys.parse_report(text, key_of(f"AROAMASTER:{MASTER_ID}"), "red-1")


def test_a_report() -> None:
    assert report_of(report()) == host_keys.NodeReport([ED], 4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        report(schema=2),
        report(instance_id=WORKER_ID),
        report(host_keys=[]),
        report(host_keys=None),
        report(host_keys="x"),
        report(host_keys=["* ssh-ed25519 AAAA", 3, {}]),
    ],
)
def test_what_is_no_report(text: str) -> None:
    assert report_of(text) is None


def test_both_sides_believe_in_the_same_number_of_gpus() -> None:
    assert report_of(report(state="held")) == host_keys.NodeReport([ED], 4, is_held=True)
    assert report_of(report(gpus=schema.MAX_GPUS)) == host_keys.NodeReport([ED], schema.MAX_GPUS)


@pytest.mark.parametrize("gpus", ["4", -1, True, 65, 10**9, [4], 0.5])
def test_a_number_of_gpus_that_is_none(gpus: Any) -> None:
    assert report_of(report(gpus=gpus)) is None


def test_a_key_brings_no_second_line() -> None:
    assert report_of(report(host_keys=[f"{ED}\n* {RSA} root@x"])) is None


def master(**other: Any) -> ClusterNode:
    record: dict[str, Any] = {
        "id": MASTER_ID,
        "public_address": "198.51.100.9",
        "private_address": "10.0.0.5",
        "private_name": "ip-10-0-0-5.ec2.internal",
    }
    return ClusterNode({**record, **other}, "master", 1)


MASTER = master()
WORKER = ClusterNode(
    {
        "id": WORKER_ID,
        # Users' own subnets may give workers addresses too.
        "public_address": "198.51.100.10",
        "private_address": "10.0.128.5",
        "private_name": "ip-10-0-128-5.ec2.internal",
    },
    "worker",
    2,
)


def test_every_name_of_a_machine_is_pinned() -> None:
    names = f"deeplearning-worker2,{WORKER_ID},ip-10-0-128-5.ec2.internal,10.0.128.5"
    reports = {MASTER_ID: NodeReport([ED, RSA]), WORKER_ID: NodeReport([ECDSA])}
    assert host_keys.known_hosts([MASTER, WORKER], reports).splitlines()[2] == f"{names} {ECDSA}"


def effective(tmp_path: Path, host: str, *machines: ClusterNode, **login: Any) -> dict[str, str]:
    """What ssh itself makes of the file."""
    hosts, config = host_keys.ssh_files(tmp_path, "red")
    values = {"user": "ubuntu", "private_key_file": str(tmp_path / "a key"), **login}
    config.write_text(host_keys.ssh_config("red", machines, Login(**values), str(hosts), str(config)))
    return settings(["ssh", "-F", str(config), host])


def settings(command: list[str]) -> dict[str, str]:
    """What an ssh command would go by."""
    shown = subprocess.run([command[0], "-G", *command[1:]], capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in shown.splitlines() if " " in line)


def test_the_configuration_names_the_region_of_its_cluster(tmp_path: Path) -> None:
    effective(tmp_path, "deeplearning-master", MASTER, region="eu-west-1")
    (recorded,) = recorded_places(Aws("us-east-1"), tmp_path, "red")
    assert (recorded.region, recorded.account) == ("eu-west-1", "")


@pytest.mark.parametrize("host", ["deeplearning-worker2", WORKER_ID, "10.0.128.5", "ip-10-0-128-5.ec2.internal"])
def test_a_worker_is_reached_through_the_master(tmp_path: Path, host: str) -> None:
    effective_settings = effective(tmp_path, host, MASTER, WORKER)
    assert (effective_settings["hostname"], effective_settings["user"]) == ("10.0.128.5", "ubuntu")
    jump = shlex.split(
        effective_settings["proxycommand"].replace("%h", effective_settings["hostname"]).replace("%p", "22")
    )
    assert jump[-3:] == ["-W", "10.0.128.5:22", "deeplearning-master"]
    # Its server could open a channel to the agent of any ssh that allows one, and this ssh only passes bytes on.
    through = settings([*jump[:-3], jump[-1]])
    assert (through["hostname"], through["forwardagent"], through["stricthostkeychecking"]) == (
        "198.51.100.9",
        "no",
        "true",
    )
    assert effective_settings["identityfile"] == str(tmp_path / "a key")
    assert effective_settings["userknownhostsfile"] == str(tmp_path / "red.known_hosts")
    assert (effective_settings["stricthostkeychecking"], effective_settings["forwardagent"]) == ("true", "yes")


@pytest.mark.parametrize("host", ["deeplearning-master", "deeplearning-worker1", "198.51.100.9", "10.0.0.5"])
def test_the_master_is_reached_from_outside(tmp_path: Path, host: str) -> None:
    effective_settings = effective(tmp_path, host, MASTER, WORKER)
    assert effective_settings["hostname"] == "198.51.100.9"
    assert "proxycommand" not in effective_settings


def test_a_private_master_is_reached_at_its_private_address_and_leads_to_the_workers(tmp_path: Path) -> None:
    private = master(public_address="")
    assert effective(tmp_path, "deeplearning-master", private, WORKER)["hostname"] == "10.0.0.5"
    assert "proxycommand" not in effective(tmp_path, "deeplearning-master", private, WORKER)
    assert effective(tmp_path, "deeplearning-worker2", private, WORKER)["proxycommand"].endswith("deeplearning-master")


def test_a_bastion_leads_to_the_master_alone_and_without_the_agent(tmp_path: Path) -> None:
    machines, bastion = (master(public_address=""), WORKER), "me@bastion"
    through = effective(tmp_path, "deeplearning-master", *machines, bastion=bastion)["proxycommand"]
    assert through == "ssh -o ForwardAgent=no -W %h:%p me@bastion"
    assert bastion not in effective(tmp_path, "deeplearning-worker2", *machines, bastion=bastion)["proxycommand"]


def test_agents_are_forwarded_to_members_alone(tmp_path: Path) -> None:
    assert effective(tmp_path, "example.org", MASTER, WORKER)["forwardagent"] == "no"


def test_from_within_the_vpc_ssh_does_not_jump(tmp_path: Path) -> None:
    for host, address in (("deeplearning-master", "10.0.0.5"), ("deeplearning-worker2", "10.0.128.5")):
        effective_settings = effective(tmp_path, host, MASTER, WORKER, connection=DIRECT)
        assert effective_settings["hostname"] == address
        assert "proxycommand" not in effective_settings


def test_through_systems_manager_by_the_instance_id(tmp_path: Path) -> None:
    effective_settings = effective(
        tmp_path, "deeplearning-worker2", MASTER, WORKER, connection=SSM, region="eu-west-1", profile="research"
    )
    assert effective_settings["hostname"] == WORKER_ID
    assert effective_settings["proxycommand"].startswith(
        "aws ssm start-session --region eu-west-1 --profile research --target %h "
    )


def test_without_a_known_master_ssh_does_not_jump(tmp_path: Path) -> None:
    assert "proxycommand" not in effective(tmp_path, "deeplearning-worker2", WORKER)


def test_without_machines_the_file_is_good_for_nothing_and_right(tmp_path: Path) -> None:
    assert effective(tmp_path, "deeplearning-worker2")["hostname"] == "deeplearning-worker2"


def test_folders_with_percent_signs(tmp_path: Path) -> None:
    folder = tmp_path / "100%h"
    folder.mkdir()
    assert effective(folder, "deeplearning-master", MASTER)["userknownhostsfile"] == str(folder / "red.known_hosts")


@pytest.mark.parametrize("evil", ["x\n    ProxyCommand id", "* !x", "-oProxyCommand=id", "", "a b"])
def test_nothing_but_names_and_addresses_gets_in(evil: str) -> None:
    machine = master(private_name=evil, public_address=evil, private_address=evil)
    text = host_keys.ssh_config("red", [machine], Login(connection=JUMP), "/h", "/c")
    assert "ProxyCommand" not in text
    patterns = f"Host deeplearning-master deeplearning-worker1 {MASTER_ID}\n"
    assert text.count(patterns) == text.count("Host ") == 2


@pytest.mark.parametrize(
    ("kind", "blob", "expected"),
    [
        ("ssh-ed25519", ED.split()[1], True),
        ("ssh-rsa", ED.split()[1], False),
        ("ssh-ed25519", ED.split()[1] + "!", False),
        ("ssh-ed25519", "AAAA*" + ED.split()[1][4:], False),
        ("ssh-ed25519", "", False),
    ],
)
def test_a_key_is_base64_that_begins_with_its_kind(kind: str, blob: str, expected: bool) -> None:
    assert host_keys.is_key(kind, blob) is expected
