"""Every playbook refuses names that it does not take, before it does anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import playbook_input
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_options import PLAYBOOKS
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_rules import check

ROOT = Path(__file__).resolve().parents[4]


def play(playbook: str, *options: str) -> str:
    """Return what a playbook that fails prints, in one line."""
    words = [word for option in options for word in ("-e", option)]
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "-i",
            "localhost,",
            f"playbooks/{playbook}.yml",
            *words,
        ],
        cwd=ROOT,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1", "AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("playbook", "option", "problem"),
    [
        ("health", "framwork=pytorch", "framwork is no option of deeplearning.aws.health: framework is meant, perhaps"),
        ("stage", "datset=coco2017", "datset is no option of deeplearning.aws.stage: dataset is meant, perhaps"),
        (
            "destroy",
            "keep_efs=false",
            "keep_efs is no option of deeplearning.aws.destroy: cluster_keep_efs",
        ),
    ],
)
def test_a_playbook_refuses_a_misspelt_name(playbook: str, option: str, problem: str) -> None:
    assert problem in play(playbook, option)


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_every_playbook_begins_with_the_check_of_its_own_options(playbook: str) -> None:
    (first, *_rest) = yaml.safe_load((ROOT / f"playbooks/{playbook}.yml").read_text())
    if "ansible.builtin.import_playbook" in first:
        assert first["vars"] == {"entry_playbook": playbook}
    else:
        (check, *_others) = first["tasks"]
        checked = (check.get("deeplearning.aws.check_input") or {}).get("playbook")
        if "ansible.builtin.import_tasks" in check:
            # plan.yml shares its tasks with playbooks that make the plan again.
            assert check["ansible.builtin.import_tasks"] == "tasks/plan.yml"
            checked = check["vars"]["plan_playbook"]
        assert checked in (playbook, f"{{{{ entry_playbook | default('{playbook}') }}}}")


def test_without_an_inventory_of_ours_a_playbook_says_how_to_name_the_file() -> None:
    assert "the name of the inventory file must end in .deeplearning.yml." in play("plan")


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"health_scope": "all"}, "health_scope is all: give training. Example: -e health_scope=training"),
        ({"health_scope": "training"}, "framework is missing: give one of tensorflow,"),
        ({"health_scope": "training", "framework": "tf"}, "framework is tf: give one of tensorflow, mxnet, pytorch,"),
        (
            {"health_scope": "training", "framework": "mxnet", "distribution": "ddp"},
            "distribution is ddp, which only pytorch has: give mxnet's dist_sync or",
        ),
    ],
)
@pytest.mark.parametrize("playbook", ["health", "site"])
def test_the_options_of_health(playbook: str, variables: dict[str, Any], problem: str) -> None:
    assert [text.startswith(problem) for text in check(playbook, variables).problems] == [True]


def test_health_trains_with_the_clusters_framework_unless_another_is_named() -> None:
    assert check("health", {"health_scope": "training"}, "mxnet").values["framework"] == "mxnet"
    assert check("health", {"health_scope": "training", "framework": "pytorch"}, "mxnet").problems == []
    assert check("health", {}).problems == []


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({}, "dataset is not given: name a data set. Example: -e dataset=coco2017"),
        (
            {"dataset": "x", "stage_target": "home"},
            "stage_target is home: give one of bucket, efs. Example: -e stage_target",
        ),
        (
            {"dataset": "x", "stage_nodes": 0},
            "stage_nodes is 0: give a whole number from 1 to 256. Example: -e stage_nodes=2",
        ),
        ({"dataset": "x", "bucket": "My_Bucket"}, "bucket is My_Bucket: give the name of a bucket"),
    ],
)
def test_the_options_of_stage(variables: dict[str, Any], problem: str) -> None:
    assert [text.startswith(problem) for text in check("stage", variables).problems] == [True]


@pytest.mark.parametrize("bucket", ["my-data/sets", "s3://my-data/sets", "s3://my-data/sets/"])
def test_a_bucket_to_stage_in_is_taken_with_and_without_its_scheme(bucket: str) -> None:
    assert check("stage", {"dataset": "x", "bucket": bucket}).values["bucket"] == "s3://my-data/sets"


def test_no_play_on_nodes_sets_the_interpreter_that_the_user_may_choose() -> None:
    plays = [play for file in sorted(ROOT.glob("playbooks/*.yml")) for play in yaml.safe_load(file.read_text())]
    fixed = {play["name"] for play in plays if "ansible_python_interpreter" in play.get("vars", {})}
    ours = {"Plan the cluster", "Provision the cluster", "Upload the data set to the bucket", "Make an image"}
    ours |= {"Postpone the end of the machines", "Replace a node"}
    assert fixed == ours, "these use boto3, which is where Ansible is"


def test_variables_of_awx_are_no_reason_for_a_warning() -> None:
    extra_vars = {"awx_job_id": 7, "tower_job_id": 7, "awx_user_name": "anna", "another": 1}
    (warning,) = playbook_input.foreign_names("train", extra_vars, [])
    assert warning.startswith("another is no option of deeplearning.aws.train")
    assert playbook_input.unknown_names("train", extra_vars, []) == []
