"""The file of a run: what is added at its end, and what is not in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.smoke import record, recording
from tests.smoke.facts import facts_in
from tests.smoke.session import HOOK

PROGRAM = """
import botocore.client, boto3, sys
from botocore.stub import Stubber
session = boto3.Session("AKIAABCDEFGHIJKLMNOP", "hunter2", region_name="us-east-1")
ec2 = session.client("ec2")
with Stubber(ec2) as stub:
    stub.add_response("create_vpc", {"Vpc": {"VpcId": "vpc-0123456789abcdef0", "State": "pending"}})
    tags = [{"Key": "deeplearning:cluster", "Value": "smoke-1-net"}, {"Key": "owner", "Value": "carol"}]
    ec2.create_vpc(CidrBlock="10.7.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": tags}])
    stub.add_client_error("delete_vpc", "DependencyViolation", "The vpc 'vpc-0123456789abcdef0' has dependencies", 400)
    try:
        ec2.delete_vpc(VpcId="vpc-0123456789abcdef0")
    except Exception as error:
        print(error)
"""


@pytest.mark.parametrize("order", ["", "import botocore.client\n"], ids=["hook first", "botocore first"])
def test_each_python_of_a_playbook_records_its_calls(order: str, tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    variables = {recording.RECORD: str(file), recording.NAMES: "smoke-1", recording.STAGE: "1"}
    again = f"import runpy; runpy.run_path({str(HOOK / 'sitecustomize.py')!r})\n"
    paths = {"PYTHONPATH": str(HOOK)} if not order else {}
    done = subprocess.run(
        [sys.executable, "-c", (order + again if order else "") + PROGRAM],
        env={**os.environ, **variables, **paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "DependencyViolation" in done.stdout
    created, deleted = record.entries_of(file)
    assert (created["stage"], created["call"], created["answer"]) == (
        "1",
        "ec2:CreateVpc",
        {"Vpc": {"VpcId": "<id vpc>", "State": "pending"}},
    )
    assert created["seconds"] >= 0 and created["at"].endswith("+00:00")
    assert (deleted["code"], deleted["message"]) == ("DependencyViolation", "The vpc <id vpc> has dependencies")
    assert deleted["request"] == {"VpcId": "<id vpc>"}
    text = file.read_text()
    assert not [
        word for word in ("carol", "hunter2", "AKIA", "10.7.0.0", "smoke-1", "0123456789abcdef0") if word in text
    ]
    assert Path(f"{file}{recording.IDS}").read_text().split() == ["vpc-0123456789abcdef0"]


def test_without_the_variables_nothing_is_recorded(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SMOKE_")}
    words = [sys.executable, "-c", PROGRAM]
    subprocess.run(words, env={**environment, "PYTHONPATH": str(HOOK)}, capture_output=True, check=True, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value",
    ["210987654321", "AKIAABCDEFGHIJKLMNOP", "-----BEGIN OPENSSH PRIVATE KEY-----", "of Carol.", "host bluebird-7"],
)
def test_a_line_with_a_secret_or_a_name_is_left_out(value: str, tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    file.write_text(json.dumps({"x": value}) + "\n" + json.dumps({"x": "carolina, root, 21098765432"}) + "\n")
    assert record.finish(file, {"run": "1"}, ["carol", "bluebird-7", "root", ""]) == 1
    head, rest, *items = record.entries_of(file)
    assert (head, rest) == ({"run": "1"}, {"x": "carolina, root, 21098765432"})
    assert len(items) == 12 and {item["outcome"] for item in items} == {"not seen"}


def test_a_record_with_a_part_of_a_line_alone_is_finished_as_well(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    Path(f"{file}{recording.IDS}").write_text("vpc-0123456789abcdef0\n")
    file.write_text('{"call": "ec2:Descr')
    assert record.finish(file, {"run": "1"}, []) == 0
    assert record.entries_of(file)[0] == {"run": "1"} and list(tmp_path.iterdir()) == [file]


def test_facts_are_those_that_look_like_what_they_have_to_be() -> None:
    lines = [
        "system=ubuntu-22.04",
        "kernel=6.8.0",
        "python3.11=3.11.0rc1",
        "boto3_by=carol",
        "owner=carol",
        "selinux=none",
    ]
    expected = {"system": "ubuntu-22.04", "kernel": "6.8.0", "python3.11": "3.11.0rc1", "selinux": "none"}
    assert facts_in("\n".join([*lines, "welcome, carol"])) == expected


def test_the_script_reports_the_facts_of_this_machine() -> None:
    script = Path(record.__file__).with_name("facts.sh")
    done = subprocess.run(["sh", script], capture_output=True, text=True, check=True)
    assert {"system", "kernel", "python3", "selinux", "mdadm", "openmpi_of_amazon"} <= facts_in(done.stdout).keys()
