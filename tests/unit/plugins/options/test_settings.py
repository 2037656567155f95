"""Settings: each that is wrong is a sentence, all at once; each that is right has its type."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.option import Option
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.setting_rules import check, complete
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.settings import SECTIONS, TABLE

from tools.settings_docs import FILES, ROOT

PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUcT1wCbRiVCPCfbeNIHUj8T5lgzgwCz9Pj1uYkTzxN me@here"
ECDSA = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTY="

GOOD = {"cluster_ssh_allowed_cidrs": ["198.51.100.1/32"], "cluster_key_name": "my-key"}


def problems(**options: Any) -> list[str]:
    return check({**GOOD, **{f"cluster_{name}": value for name, value in options.items()}}).problems


def settled(**options: Any) -> dict[str, Any]:
    checked = check({**GOOD, **{f"cluster_{name}": value for name, value in options.items()}})
    assert checked.problems == []
    return complete(checked.values)


def test_the_required_settings() -> None:
    cluster = settled()
    assert cluster["ssh_allowed_cidrs"] == ["198.51.100.1/32"]
    assert cluster["worker_count"] == 1
    assert {f"cluster_{name}" for name in cluster} - set(TABLE) == {"cluster_public_key"}


def test_what_is_required_is_asked_for_at_once() -> None:
    message = "\n".join(check({}).problems)
    assert len(check({}).problems) == 2
    assert "cluster_ssh_allowed_cidrs is not given" in message
    assert """Example: -e '{"cluster_ssh_allowed_cidrs": ["198.51.100.1/32"]}'""" in message
    assert "cluster_key_name and cluster_public_key_file are both not given" in message


def test_an_existing_cluster_needs_less() -> None:
    assert check({}, provisioning=False).problems == []


def test_all_problems_have_the_form_of_every_message() -> None:
    assert problems(worker_count=-1, availability_zones="us-west-2a") == [
        "cluster_worker_count is -1: give a whole number from 0 to 255, because runs were measured with up to 256 "
        "nodes, the master included. Example: -e cluster_worker_count=4",
        "cluster_availability_zones names us-west-2a: give zones of us-east-1, the cluster's region. Example: "
        """-e '{"cluster_availability_zones": ["us-east-1a"]}'""",
    ]


@pytest.mark.parametrize("setting", TABLE.values(), ids=lambda setting: setting.name)
def test_the_example_of_each_message_is_right(setting: Option) -> None:
    assert setting.form(setting.example) is not None
    if isinstance(setting.example, bool | int):
        assert setting.form(str(setting.example)) == setting.form(setting.example)
    if setting.default not in (None, "", [], {}):
        text = json.dumps(setting.default) if isinstance(setting.default, list) else str(setting.default)
        assert setting.form(setting.default) == setting.form(text)


@pytest.mark.parametrize(
    ("name", "options", "read"),
    [
        ("worker_count", "4", 4),
        ("worker_count", " 0 ", 0),
        ("ttl_hours", "0.05", 0.05),
        ("ttl_hours", 8, 8.0),
        ("spot", "true", True),
        ("spot", "no", False),
        ("placement_group", "True", "true"),
        ("placement_group", False, "false"),
        ("efa", "auto", "auto"),
        ("availability_zones", '["us-east-1a", "us-east-1b"]', ["us-east-1a", "us-east-1b"]),
        ("availability_zones", "us-east-1a,us-east-1b", ["us-east-1a", "us-east-1b"]),
        ("availability_zones", "us-east-1a", ["us-east-1a"]),
        ("availability_zones", "", []),
        ("ssh_allowed_cidrs", "198.51.100.7", ["198.51.100.7/32"]),
        ("ssh_allowed_cidrs", ["198.51.100.0/24", "198.51.100.0/24"], ["198.51.100.0/24"]),
        ("tags", '{"team": "vision", "cost": 7, "on": true}', {"team": "vision", "cost": "7", "on": "true"}),
        ("efs_mount", "efs", "/efs"),
        ("efs_mount", "/mnt/shared/", "/mnt/shared"),
        ("s3_read", ["s3://data/imagenet/", "other"], ["data/imagenet", "other"]),
        ("image", "/aws/service/deeplearning/ami/x86_64/some-family/latest/ami-id", "some-family"),
        ("image", "ami-0123456789abcdef0", "ami-0123456789abcdef0"),
        ("efs_id", "fs-01234567", "fs-01234567"),
        ("worker_min", "", 1),
    ],
)
def test_what_is_right_gets_its_type_once(name: str, options: Any, read: Any) -> None:
    assert settled(**{name: options})[name] == read


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "worker_count",
            "four",
            "is four: give a whole number from 0 to 255, because runs were measured with up to 256",
        ),
        ("worker_count", True, "is true: give a whole number"),
        ("worker_count", 2.5, "is 2.5: give a whole number"),
        ("worker_count", 256, "is 256: give a whole number from 0 to 255, because runs were measured"),
        ("worker_min", 256, "is 256: give a whole number from 0 to 255, because runs were measured"),
        ("root_volume_gib", 0, "is 0: give a whole number from 8 to 16384."),
        ("ttl_hours", "8h", "is 8h: give a number from 0 to 8760."),
        ("ttl_hours", -1, "is -1: give a number from 0 to 8760."),
        ("ttl_hours", [8], "give a number"),
        ("spot", "maybe", "is maybe: give true or false."),
        ("capacity_policy", "some", "is some: give one of at_least, all_or_nothing, best_effort."),
        ("placement_group", "perhaps", "give one of auto, true, false"),
        ("name", "Red", "give lower-case letters"),
        ("name", "red_1", "give lower-case letters"),
        ("name", "1red", "give lower-case letters"),
        ("name", "red--1", "give lower-case letters"),
        ("name", "", 'is "": it may not be empty.'),
        ("name", "xn--red", "give lower-case"),
        ("name", "sg-red", "AWS reserves names that begin with sg-"),
        ("name", "r" * 60, "it has 60 characters"),
        ("region", "Virginia", "give the name of a region"),
        ("role_arn", "operator", "give the ARN of an IAM role"),
        ("permissions_boundary", "arn:aws:iam::123456789012:role/x", "give the ARN of an IAM policy"),
        ("instance_type", "g5", "give the name of an EC2 instance type"),
        ("image", "ami-123", "give an id, ami- with 17"),
        ("image", "a family", "give the id of an AMI or a family"),
        ("login_user", "root", "give the name of the image's ordinary user"),
        ("vpc_cidr", "10.0.0.0/8", "give a smaller network"),
        ("vpc_cidr", "10.0.0.0/28", "two subnets of at least /28 must fit in"),
        ("vpc_cidr", "10.0.0.1/16", "write it as a network"),
        ("vpc_cidr", "10.0.0.0", "write it as a network"),
        ("vpc_cidr", "127.0.0.0/16", "have a meaning of their own"),
        ("vpc_cidr", "2001:db8::/56", "give an IPv4 network"),
        ("vpc_cidr", "10.0/16", "give an IPv4 network"),
        (
            "ssh_allowed_cidrs",
            ["198.51.100.1/24"],
            "write 198.51.100.0/24 for the network or 198.51.100.1/32 for the one",
        ),
        ("ssh_allowed_cidrs", ["here"], "of here, give an address or a network"),
        ("ssh_allowed_cidrs", ["2001:db8::1"], "give IPv4"),
        ("ssh_allowed_cidrs", "0.0.0.0/0", "that lets the whole world try"),
        ("ssh_allowed_cidrs", ["0.0.0.0/1", "128.0.0.0/1"], "that lets the whole world try"),
        ("ssh_allowed_cidrs", [], "is not given"),
        ("availability_zones", "[us-east-1a]", "it is no list in JSON (quotes may have been lost on the way)"),
        ("availability_zones", {"a": 1}, "give a list"),
        ("availability_zones", ["use1-az1"], "of use1-az1, give the name of an availability zone"),
        ("vpc_id", "vpc-1", "give an id, vpc- with 17"),
        ("efs_mount", "/", "the system uses this folder"),
        ("efs_mount", "/etc/efs", "the system uses this folder"),
        ("efs_mount", "/opt/deeplearning", "the system uses this folder"),
        ("efs_mount", "/a/../etc", "give a folder"),
        ("efs_mount", "/my efs", "give a folder"),
        ("s3_read", ["Data"], "of Data, give the name of a bucket"),
        ("s3_read", ["data/*"], "no wildcards"),
        ("s3_write", ["arn:aws:s3:::data"], "give the name of a bucket"),
        ("s3_kms_keys", ["alias/data"], "give the ARN of a KMS key, not of an alias"),
        ("tags", "team=vision", "it is no map in JSON"),
        ("tags", {"Name": "x"}, "of Name, take another name"),
        ("tags", {"deeplearning:cluster": "x"}, "take another name"),
        ("tags", {"aws:x": "x"}, "take another name"),
        ("tags", {"x": ["y"]}, "of x, give a text"),
        ("tags", {f"k{number}": "" for number in range(41)}, "give 40 at most"),
        ("profile", ["a"], "give a text"),
        ("default_framework", "caffe", "give one of tensorflow, mxnet, pytorch, tensorpack"),
    ],
)
def test_what_is_wrong_by_itself(name: str, options: Any, message: str) -> None:
    (problem,) = problems(**{name: options})
    assert problem.startswith(f"cluster_{name} ")
    assert message in problem
    assert f"cluster_{name}" in problem.partition("Example: -e ")[2]


SUBNETS = {"public_subnet_ids": ["subnet-0123456789abcdef0"], "private_subnet_ids": ["subnet-0123456789abcdef1"]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"root_volume_type": "gp2", "root_volume_throughput": 500}, "only gp3 has a throughput to set"),
        ({"worker_min": 3, "worker_count": 2}, "cluster_worker_min is 3 and cluster_worker_count 2"),
        ({"worker_min": 1, "worker_count": 2, "capacity_policy": "all_or_nothing"}, "which has no effect with"),
        ({"vpc_id": "vpc-01234567", **SUBNETS, "vpc_cidr": "10.9.0.0/16"}, "give a network of its own or"),
        ({"vpc_id": "vpc-01234567", "public_subnet_ids": ["subnet-01234567"]}, "private_subnet_ids is not given"),
        ({"public_subnet_ids": ["subnet-01234567"]}, "without the VPC that they belong to"),
        ({"vpc_id": "vpc-01234567", **SUBNETS, "public": False}, "no machine is in one: leave it out"),
        ({"vpc_id": "vpc-01234567", "public": False}, "needs its private subnets named"),
        (
            {"vpc_id": "vpc-01234567", **SUBNETS, "private_subnet_ids": SUBNETS["public_subnet_ids"]},
            "as a public and as a private subnet",
        ),
        ({"public_key_file": "/key.pub"}, "cluster_key_name is my-key and cluster_public_key_file /key.pub: give one"),
        ({"private_key_file": "/no/such/key"}, "cluster_private_key_file is /no/such/key: there is no such file."),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], message: str) -> None:
    (problem,) = problems(**options)
    assert message in problem


def test_consent_to_the_whole_world() -> None:
    assert settled(ssh_allowed_cidrs="0.0.0.0/0", ssh_allow_world="true")["ssh_allowed_cidrs"] == ["0.0.0.0/0"]
    assert settled(ssh_allowed_cidrs=[], ssh_allow_world=True)["ssh_allowed_cidrs"] == ["0.0.0.0/0"]


@pytest.mark.parametrize(
    ("policy", "count", "least"),
    [("at_least", 5, 1), ("at_least", 0, 0), ("all_or_nothing", 5, 5), ("best_effort", 5, 0)],
)
def test_the_least_follows_from_the_policy(policy: str, count: int, least: int) -> None:
    assert settled(capacity_policy=policy, worker_count=count)["worker_min"] == least


def test_an_existing_network_replaces_the_usual_one() -> None:
    assert settled(vpc_id="vpc-01234567", **SUBNETS)["vpc_cidr"] == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such file"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\n", "that is a private key"),
        ("hello world", "that is no public key"),
        ("ssh-ed25519 AAAA", "that is no public key"),
        (ECDSA, "EC2 takes RSA and Ed25519 keys only"),
        (f"{PUBLIC}\n{PUBLIC}", "that is no public key of one line"),
    ],
)
def test_public_key_files(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "key.pub"
    if content is not None:
        file.write_text(content)
    (problem,) = problems(key_name="", public_key_file=str(file))
    assert problem.startswith(f"cluster_public_key_file is {file}: {message}")


def test_the_private_key_next_to_the_public_one_is_used(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text(PUBLIC + "\n")
    (tmp_path / "key").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    cluster = settled(key_name="", public_key_file=str(tmp_path / "key.pub"))
    assert cluster["public_key"] == PUBLIC
    assert cluster["private_key_file"] == str(tmp_path / "key")
    (problem,) = problems(key_name="", public_key_file=str(tmp_path / "key.pub"), private_key_file=tmp_path / "key.pub")
    assert "that is no private key" in problem


def test_a_user_folder_is_written_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert settled(summary_file="~/red.json")["summary_file"] == str(tmp_path / "red.json")


@pytest.mark.parametrize("name", FILES)
def test_what_is_made_from_the_table_is_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text() == FILES[name](), "run .venv/bin/python tools/settings_docs.py"


def test_the_files_of_the_inventory_show_each_default_and_set_only_which_cluster_it_is() -> None:
    which = yaml.safe_load((ROOT / "inventory/aws.deeplearning.yml").read_text())
    text = (ROOT / "inventory/group_vars/all.yml").read_text()
    assert yaml.safe_load(text) is None
    what = yaml.safe_load(re.sub("^# (cluster_[a-z0-9_]+:)", r"\1", text, flags=re.MULTILINE))
    selecting = {option.name for option in SECTIONS[0][2]}
    expected = {name: setting.default for name, setting in TABLE.items() if name not in selecting}
    expected["cluster_ssh_allowed_cidrs"] = TABLE["cluster_ssh_allowed_cidrs"].example
    assert what == expected
    defaults = {name.removeprefix("cluster_"): TABLE[name].default for name in selecting}
    defaults["cluster"] = defaults.pop("name")
    assert {name: value for name, value in which.items() if name != "plugin"} == defaults
