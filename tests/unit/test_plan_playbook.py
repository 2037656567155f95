"""plan.yml as a person runs it: it says the plan, or what is wrong, and ends with the right code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .conftest import Account

ROOT = Path(__file__).resolve().parents[2]
LEAST = (
    "-e",
    "cluster_name=red",
    "-e",
    "cluster_key_name=my-key",
    "-e",
    '{"cluster_ssh_location": ["198.51.100.1/32"]}',
)


def run(*words: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [str(Path(sys.executable).parent / words[0]), *words[1:]],
        cwd=ROOT,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_plan_is_said(aws: Account) -> None:
    aws.client("ec2").create_key_pair(KeyName="my-key")
    code, said = run("ansible-playbook", "plan.yml", *LEAST, "--check")
    assert code == 0, said
    assert "Cluster red in us-east-1, account 123456789012: to be made\n" in said
    assert "WARNING" not in said
    assert "changed=0" in said


def test_all_that_is_wrong_is_said_and_nothing_is_asked(aws: Account) -> None:
    wrong = ("-e", "cluster_worker_count=-1", "-e", "spot=true", "-e", 'cluster_tags={"a": "b"}', "-e", "x=a b")
    code, said = run("ansible-playbook", "plan.yml", *LEAST, *wrong)
    assert code == 2
    assert "4 settings are wrong:" in said
    assert "- cluster_worker_count is -1: give 0 or more. Example: -e cluster_worker_count=4" in said
    assert "- spot is no setting: cluster_spot is meant, perhaps." in said
    assert "- -e was given words that belong to no setting: b." in said
    assert "Traceback" not in said
    assert set(aws.calls()) <= {"ec2:DescribeInstances"}


def test_without_credentials_the_inventory_leaves_the_sentence_to_the_playbook() -> None:
    code, said = run("ansible-playbook", "plan.yml", *LEAST)
    assert code == 2
    assert "AWS credentials are missing (none were found): set AWS_PROFILE" in said
    assert "WARNING" not in said
    assert "Traceback" not in said


def test_without_credentials_the_inventory_says_it_once_when_asked_by_itself() -> None:
    code, said = run("ansible-inventory", "--graph")
    assert code == 0
    assert said.count("AWS credentials are missing") == said.count("WARNING") == 1


def test_an_inventory_file_that_is_wrong_ends_everything(tmp_path: Path) -> None:
    file = tmp_path / "red.deeplearning.yml"
    file.write_text("plugin: deeplearning.aws.cluster\nstates: [sleeping]\n")
    code, said = run("ansible-playbook", "-i", str(file), "plan.yml", *LEAST)
    assert code != 0
    assert "PLAY [" not in said
    assert "sleeping" in said


def test_provision_by_itself_begins_with_the_plan_and_node_by_itself_names_configure() -> None:
    code, said = run("ansible-playbook", "provision.yml", *LEAST, "-e", "cluster_worker_count=-1")
    assert code == 2
    assert "cluster_worker_count is -1: give 0 or more." in said
    code, said = run("ansible-playbook", "node.yml", "-e", "node_hosts=localhost")
    assert code == 2
    assert "run that. Example: ansible-playbook configure.yml" in said
    assert "undefined" not in said
