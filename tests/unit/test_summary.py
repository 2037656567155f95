"""What a person is told of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils._estate import Estate, Health, Thing
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _arguments as arguments
from ansible_collections.deeplearning.aws.plugins.plugin_utils._inventory import Way
from ansible_collections.deeplearning.aws.plugins.plugin_utils._summary import (
    Given,
    hourly_in_words,
    read,
    repeated,
    summary_of,
    text_of,
    write,
)

INSTANCE = {"public_ip": "198.51.100.99", "public_name": "ec2-198-51-100-7.aws", "private_ip": "10.0.0.4"}
MASTER = Thing("auto_scaling_group", "c-master", "c-master", facts={"most": 1, "in_service": ["i-1"]})
WORKERS = Thing("auto_scaling_group", "c-workers", "c-workers", facts={"most": 2, "in_service": ["i-2"]})
ESTATE = Estate(
    "c",
    "123456789012",
    "us-east-1",
    [
        MASTER,
        WORKERS,
        Thing("instance", "i-1", "c-master", "running", facts=INSTANCE),
        Thing("instance", "i-2", "c-worker", "running", facts={}),
        Thing("address", "eipalloc-1", "c-master", facts={"public_ip": "198.51.100.7", "instance": "i-1"}),
        Thing("nat_gateway", "nat-1", "c-nat", "available"),
        Thing("security_group", "sg-1", "c-ssh"),
        Thing("file_system", "fs-1", "c-efs", "available"),
        Thing("mount_target", "fsmt-1", facts={"file_system": "fs-1"}),
    ],
)
HEALTH = Health("degraded", 3, 2, ["AWS has no capacity for 1 of c-workers."])
GIVEN = Given(user="ubuntu", private_key_file="~/my key", hourly={"amount": 3.018, "currency": "USD", "known": True})


def test_all_that_the_next_command_needs_is_in_the_data() -> None:
    found = summary_of(ESTATE, HEALTH, GIVEN)
    assert found["state"] == "degraded"
    assert found["machines"] == {"asked": 3, "got": 2}
    assert found["groups"]["workers"] == {"name": "c-workers", "asked": 2, "got": 1}
    assert found["master"]["public_ip"] == "198.51.100.7", "the address that stays, not the one of the launch"
    assert found["ssh"] == "ssh -A -i '~/my key' ubuntu@198.51.100.7"
    assert found["ssh_security_group_id"] == "sg-1"
    assert found["efs"] == {"file_system_id": "fs-1", "mount_target_ids": ["fsmt-1"]}
    assert found["destroy"] == "ansible-playbook destroy.yml -e destroy=c"
    json.dumps(found)


def test_who_has_been_met_is_logged_in_to_with_pinned_keys() -> None:
    master = summary_of(ESTATE, HEALTH, GIVEN)["master"]["instance_id"]
    met = replace(GIVEN, way=Way("jump", "/a folder/c.ssh_config", frozenset({master})))
    assert summary_of(ESTATE, HEALTH, met)["ssh"] == "ssh -F '/a folder/c.ssh_config' deeplearning-master"
    old = replace(GIVEN, way=Way("jump", "/c.ssh_config", frozenset({"i-0ff"})))
    assert summary_of(ESTATE, HEALTH, old)["ssh"].startswith("ssh -A")


def test_it_reads_well() -> None:
    lines = text_of(summary_of(ESTATE, HEALTH, GIVEN), ESTATE, "c.json")
    assert lines[0] == (
        "Cluster c (us-east-1, account 123456789012) stands with fewer machines than asked for: "
        "2 of 3 machines in service."
    )
    assert lines[1] == "  AWS has no capacity for 1 of c-workers."
    assert "  costs               3.02 USD an hour with all machines, storage and traffic beside it" in lines
    assert "  groups              c-master (1 of 1), c-workers (1 of 2)" in lines


def test_a_failure_says_what_exists_what_it_costs_and_how_to_end_it() -> None:
    given = Given(failure="No zone has five machines.", again=" -e cluster_name=c")
    found = summary_of(ESTATE, HEALTH, given)
    lines = text_of(found, ESTATE, "")
    assert (found["state"], found["why"]) == ("failed", ["No zone has five machines."])
    assert "  goes on costing  2 instances (by the second), 1 Elastic IP address (by the hour)" in "\n".join(lines)
    assert "  to go on         ansible-playbook site.yml -e cluster_name=c" in lines
    assert "  to remove it     ansible-playbook destroy.yml -e destroy=c -e cluster_name=c" in lines


def test_what_does_not_exist_is_not_removed() -> None:
    empty = Estate("c", "123456789012", "us-east-1")
    lines = text_of(summary_of(empty, Health("absent", 0, 0), Given()), empty, "")
    assert lines[0] == "Cluster c (us-east-1, account 123456789012) does not exist."
    assert not any("destroy" in line for line in lines)


@pytest.mark.parametrize(
    ("hourly", "words"),
    [
        ({}, "AWS's price for the machines is not known here"),
        ({"amount": 2, "known": False}, "at least 2.00 USD an hour with all machines, storage and traffic beside it"),
    ],
)
def test_a_price_is_said_as_far_as_it_is_known(hourly: dict[str, Any], words: str) -> None:
    assert hourly_in_words(hourly) == words


def test_commands_repeat_what_says_which_cluster_is_meant() -> None:
    options = ["cluster_name=red", "@my file.yml", "destroy=red", '{"destroy": "red", "cluster_region": "x"}']
    assert repeated(options) == """ -e cluster_name=red -e '@my file.yml' -e '{"cluster_region": "x"}'"""
    assert repeated(["destroy=red cluster_name=red", '{"destroy": "red"}']) == " -e cluster_name=red"
    assert repeated(['cluster_summary_file="my file.json" x=1']) == """ -e 'cluster_summary_file="my file.json"'"""


@pytest.mark.parametrize("again", [repeated, arguments.repeated])
def test_commands_repeat_no_secrets(again: Callable[[list[str]], str]) -> None:
    options = [
        "ansible_become_password=S3cr3t",
        "cluster_registry_token=S3cr3t cluster_name=red",
        "password='S3cr3t cluster_region=S3cr3t'",
        '{"env": {"API_KEY": "S3cr3t"}, "cluster_zones": ["a"], "ansible_password": "S3cr3t"}',
        "{api_secret: S3cr3t, cluster_worker_count: 2}",
        '{"api_key": "S3cr3t"',
        "password='S3cr3t",
        "- S3cr3t",
    ]
    files = "cluster_public_key_file=~/k.pub cluster_private_key_file=~/k cluster_key_name=mine"
    assert again([*options, files]) == (
        """ -e cluster_name=red -e '{"cluster_zones": ["a"]}' -e '{"cluster_worker_count": 2}'"""
        f" -e '{files}'"
    )


def test_the_file_is_whole_or_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "new" / "c.json"
    assert read(file) == {}
    data = summary_of(ESTATE, HEALTH, GIVEN)
    assert write(file, data)
    assert not write(file, data)
    assert read(file) == data
    assert [path.name for path in file.parent.iterdir()] == ["c.json"]
    file.write_text("{")
    assert read(file) == {}
