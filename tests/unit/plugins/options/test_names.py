"""What is said of names that no playbook takes, and of words that belong to none."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.playbook_input import (
    is_setting,
    unknown_names,
    unknown_setting,
)

ROLES = ("cluster_env", "network")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cluster_emr_fleet_size", "is no setting: instance fleets are not supported"),
        ("cluster_emr_task_count", "is no setting: task groups are not supported"),
        ("cluster_emr_hdfs", "is no setting: HDFS is not supported for data and results"),
        ("cluster_emr_queue", "is no setting: runs are not submitted to YARN"),
        # Only a setting of EMR is refused for these words.
        ("cluster_task_queue_hdfs", "is no setting: cluster_keep_efs is meant, perhaps."),
        ("cluster_emr_relase", "is no setting: cluster_emr_release is meant, perhaps."),
        ("cluster_worker_cnt", "is no setting: cluster_worker_count is meant, perhaps."),
        ("cluster_0123456789_0123456789", "is no setting: docs/settings.md lists them all."),
    ],
)
def test_a_setting_that_is_none(name: str, words: str) -> None:
    assert unknown_setting(name).startswith(f"{name} {words}")


def test_which_variables_are_meant_as_settings() -> None:
    names = ["cluster_name", "cluster_nmae", "cluster_plan", "cluster_env_path", "network_vpc", "name", "clustername"]
    assert [name for name in names if is_setting(name, ROLES)] == ["cluster_name", "cluster_nmae"]


@pytest.mark.parametrize(
    ("playbook", "extra", "problems"),
    [
        ("status", {"watch": True, "cluster_x": 1, "ansible_user": "a", "deeplearning_x": 1, "network_x": 1}, []),
        ("status", {"emr_poll_seconds": 1, "provision_settle_seconds": 1, "destroy_stuck_seconds": 1}, []),
        ("status", {"wathc": 1}, ["wathc is no option of status.yml: watch is meant, perhaps"]),
        ("status", {"name": 1}, ["name is no option of status.yml: cluster_name is meant, perhaps"]),
        ("stop", {"evaluate_args": 1}, ["evaluate_args is no option of stop.yml: deeplearning.aws.evaluate has it"]),
        (
            "train",
            {"learning_rate": 0.1},
            [
                "learning_rate is no option of train.yml: what is meant for the script is given as its arguments. "
                """Example: -e '{"script_args": ["--learning-rate", "0.1"]}'"""
            ],
        ),
        ("stop", {"zzz": 1}, ["zzz is no option of stop.yml: it takes run_id"]),
        ("stop", {"zzz": 1, "aaa": 2}, ["aaa is no option of stop.yml: it takes run_id", "zzz is no option"]),
        ("status", {"_raw_params": ""}, []),
    ],
)
def test_names_that_a_playbook_does_not_take(playbook: str, extra: dict[str, Any], problems: list[str]) -> None:
    actual = unknown_names(playbook, extra, ROLES)
    assert len(actual) == len(problems)
    assert all(text.startswith(start) for text, start in zip(actual, problems, strict=True)), actual


def test_words_that_belong_to_no_name_have_an_example_of_the_playbook() -> None:
    start = (
        "-e has words that belong to no option: a b. Lists and maps are given in JSON and within quotes, or in a file"
    )
    (of_training,) = unknown_names("train", {"_raw_params": "a b"}, ROLES)
    (of_others,) = unknown_names("stop", {"_raw_params": "a b"}, ROLES)
    assert of_training.startswith(start) and """. Example: -e '{"script_args": [""" in of_training
    assert of_others.startswith(start) and """. Example: -e '{"cluster_availability_zones": [""" in of_others
