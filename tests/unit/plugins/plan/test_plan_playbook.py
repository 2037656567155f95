"""plan.yml as a person runs it: it says the plan, or what is wrong, and ends with the right code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.unit.conftest import Account

ROOT = Path(__file__).resolve().parents[4]
LEAST = (
    "-e",
    "cluster_name=red",
    "-e",
    "cluster_key_name=my-key",
    "-e",
    '{"cluster_ssh_allowed_cidrs": ["198.51.100.1/32"]}',
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


def test_the_plan_is_printed(aws: Account) -> None:
    aws.client("ec2").create_key_pair(KeyName="my-key")
    code, output = run("ansible-playbook", "plan.yml", *LEAST, "--check")
    assert code == 0, output
    assert "Cluster red in us-east-1, account 123456789012: will be created\n" in output
    assert "WARNING" not in output
    assert "changed" not in output and "  an hour in all, " in output


def test_a_framework_without_kernels_for_the_gpus_is_refused(aws: Account) -> None:
    aws.client("ec2").create_key_pair(KeyName="my-key")
    words = ("-e", "cluster_instance_type=p5.48xlarge", "-e", "cluster_max_hourly_cost=")
    code, output = run("ansible-playbook", "plan.yml", *LEAST, *words, "-e", "cluster_default_framework=mxnet")
    assert code == 2
    assert "not for 9.0 of its H100" in output
    assert "Example: -e cluster_instance_type=p4d.24xlarge" in output


def test_all_problems_are_reported_without_a_call(aws: Account) -> None:
    wrong = ("-e", "cluster_worker_count=-1", "-e", "spot=true", "-e", 'cluster_tags={"a": "b"}', "-e", "stage=a b")
    code, output = run("ansible-playbook", "plan.yml", *LEAST, *wrong)
    assert code == 2
    assert "4 settings are wrong:" in output
    assert "- cluster_worker_count is -1: give a whole number from 0 to 255, because" in output
    assert "- spot is no option of deeplearning.aws.plan: cluster_spot is meant, perhaps" in output
    assert "- -e has words that belong to no option: b." in output
    assert "Traceback" not in output
    assert set(aws.calls()) <= {"ec2:DescribeInstances"}


def test_without_credentials_the_inventory_leaves_the_sentence_to_the_playbook() -> None:
    code, output = run("ansible-playbook", "plan.yml", *LEAST)
    assert code == 2
    assert "AWS credentials are missing (none were found): set AWS_PROFILE" in output
    assert "WARNING" not in output
    assert "Traceback" not in output


def test_without_credentials_the_inventory_alone_warns_once() -> None:
    code, output = run("ansible-inventory", "--graph")
    assert code == 0
    assert output.count("AWS credentials are missing") == output.count("WARNING") == 1


def test_an_inventory_file_that_is_wrong_ends_everything(tmp_path: Path) -> None:
    file = tmp_path / "red.deeplearning.yml"
    file.write_text("plugin: deeplearning.aws.cluster\nstates: [sleeping]\n")
    code, output = run("ansible-playbook", "-i", str(file), "plan.yml", *LEAST)
    assert code != 0
    assert "PLAY [" not in output
    assert "sleeping" in output


def test_provision_by_itself_begins_with_the_plan_and_node_by_itself_names_configure() -> None:
    code, output = run("ansible-playbook", "deeplearning.aws.provision", *LEAST, "-e", "cluster_worker_count=-1")
    assert code == 2
    assert "cluster_worker_count is -1: give a whole number from 0 to 255," in output
    code, output = run("ansible-playbook", "deeplearning.aws.node", "-e", "node_hosts=localhost")
    assert code == 2
    assert "run that. Example: ansible-playbook deeplearning.aws.configure" in output
    assert "undefined" not in output
