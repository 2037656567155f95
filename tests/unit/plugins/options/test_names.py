"""What is said of names that no playbook takes, and of words that belong to none. The user's own names pass."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.playbook_input import (
    foreign_names,
    foreign_setting,
    is_misspelt,
    is_setting,
    misspelt_setting,
    no_inventory,
    other_regions,
    unknown_names,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_options import PLAYBOOKS, name_of

ROLES = ("cluster_env", "network")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cluster_emr_fleet_size", "is no setting: instance fleets are not supported"),
        ("cluster_emr_task_count", "is no setting: task groups are not supported"),
        ("cluster_emr_hdfs", "is no setting: HDFS is not supported for data and results"),
        ("cluster_emr_queue", "is no setting: runs are not submitted to YARN"),
        ("cluster_setup", "is no setting any more: machines configure themselves when they boot. Leave it out."),
        ("cluster_emr_relase", "is no setting: cluster_emr_release is meant, perhaps."),
        ("cluster_worker_cnt", "is no setting: cluster_worker_count is meant, perhaps."),
        ("cluster_wrkr_count", "is no setting: cluster_worker_count is meant, perhaps."),
        ("cluster_worker_counts", "is no setting: cluster_worker_count is meant, perhaps."),
        ("cluster_nmae", "is no setting: cluster_name is meant, perhaps."),
        ("cluster_instanse_typ", "is no setting: cluster_instance_type is meant, perhaps."),
    ],
)
def test_a_setting_that_is_none(name: str, words: str) -> None:
    assert misspelt_setting(name).startswith(f"{name} {words}")


# Of EMR only a setting is refused for its words.
@pytest.mark.parametrize("name", ["contact", "owner", "role", "image_id", "task_queue_hdfs", "0123456789_0123456789"])
def test_an_own_variable_that_begins_like_a_setting_passes(name: str) -> None:
    assert misspelt_setting(f"cluster_{name}") == ""
    assert foreign_setting(f"cluster_{name}").startswith(f"cluster_{name} is no setting and has no effect here")


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("wathc", "watch", True),
        ("wach", "watch", True),
        ("watchh", "watch", True),
        ("stage", "state", False),
        ("wacht", "state", False),
        ("framwork", "framework", True),
        ("framewerk", "framework", True),
        ("fremewurk", "framework", True),
        ("fraamewerks", "framework", False),
        ("env_name", "env", False),
    ],
)
def test_a_name_is_misspelt_if_a_letter_or_two_differ(name: str, known: str, expected: bool) -> None:
    assert is_misspelt(name, known) is expected


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_variables_of_the_users_own_playbooks_pass_with_a_warning(playbook: str) -> None:
    own = {"stage": "prod", "team": "vision", "commit": "1a2b"}
    assert unknown_names(playbook, own, ROLES) == []
    start = f"is no option of {name_of(playbook)} and has no effect here: "
    warnings = foreign_names(playbook, own, ROLES)
    assert [warning.startswith(f"{name} {start}") for name, warning in zip(sorted(own), warnings, strict=True)]
    ours = {"cluster_name": "red", "ansible_user": "a", "deeplearning_x": 1, "emr_poll_seconds": 1, "network_x": 1}
    assert foreign_names(playbook, ours, ROLES) == []


@pytest.mark.parametrize(
    ("playbook", "name", "hint"),
    [
        *(("site", name, "has it") for name in ("env", "bucket", "format", "hours", "destroy")),
        *(("site", name, "have it") for name in ("nodes", "node", "state", "run_id")),
        *(
            ("site", name, f"cluster_{name} is meant, perhaps")
            for name in ("name", "region", "tags", "image", "profile", "public")
        ),
        ("train", "hours", "deeplearning.aws.extend has it"),
        ("train", "region", "cluster_region is meant, perhaps"),
        ("emr", "remove_in_use", "deeplearning.aws.site, deeplearning.aws.plan, deeplearning.aws.provision have it"),
    ],
)
def test_names_of_other_playbooks_and_common_ones_are_warned_of(playbook: str, name: str, hint: str) -> None:
    """They are in users' own playbooks too, which may import ours."""
    assert unknown_names(playbook, {name: 1}, ROLES) == []
    (warning,) = foreign_names(playbook, {name: 1}, ROLES)
    assert warning.startswith(f"{name} is no option of {name_of(playbook)} and has no effect here: ")
    assert warning.endswith(hint)


@pytest.mark.parametrize("name", ["spot", "worker_count", "ttl_hours", "keep_efs", "instance_type"])
def test_a_setting_without_its_prefix_is_refused(name: str) -> None:
    (problem,) = unknown_names("site", {name: 1}, ROLES)
    assert problem == f"{name} is no option of deeplearning.aws.site: cluster_{name} is meant, perhaps"


def test_without_an_inventory_a_cluster_has_to_be_named() -> None:
    """An inventory file with another ending is skipped, and the defaults are another cluster in another region."""
    (problem,) = no_inventory("plan", {"cluster_region": "eu-west-1"})
    assert "must end in .deeplearning.yml. Example: -i inventory/team.deeplearning.yml" in problem
    assert not no_inventory("plan", {"deeplearning_folder": "/x/.deeplearning"})
    assert not no_inventory("plan", {"cluster_name": "red"}) and not no_inventory("new_project", {})


@pytest.mark.parametrize(
    ("read", "extra", "words"),
    [
        (None, {}, ()),
        ("eu-west-1", {"cluster_region": "eu-west-1", "aws_region": "eu-west-1", "region": "eu"}, ()),
        (None, {"region": 1, "aws_region": None}, ()),
        ("us-east-1", {}, ("cluster_region is eu-west-1, and the inventory has read the machines of us-east-1: ",)),
        (
            "eu-west-1",
            {"aws_region": "us-east-1", "region": "eu-west-3"},
            (
                "aws_region is us-east-1 and has no effect, and the cluster's region is eu-west-1: cluster_region is",
                "region is eu-west-3 and has no effect",
            ),
        ),
    ],
)
def test_no_other_region_than_the_clusters_is_meant(
    read: str | None, extra: dict[str, Any], words: tuple[str, ...]
) -> None:
    problems = other_regions("eu-west-1", read, extra)
    assert [problem.startswith(start) for problem, start in zip(problems, words, strict=True)] == [True] * len(words)
    assert other_regions(None, read, extra) == []


def test_which_variables_are_meant_as_settings() -> None:
    names = [
        "cluster_name",
        "cluster_nmae",
        "cluster_plan",
        "cluster_lock",
        "cluster_filter",
        "cluster_env_path",
        "network_vpc",
        "name",
        "clustername",
    ]
    assert [name for name in names if is_setting(name, ROLES)] == ["cluster_name", "cluster_nmae"]


@pytest.mark.parametrize(
    ("playbook", "extra", "problems"),
    [
        ("status", {"watch": True, "cluster_x": 1, "ansible_user": "a", "deeplearning_x": 1, "network_x": 1}, []),
        ("status", {"emr_poll_seconds": 1, "provision_settle_seconds": 1, "destroy_stuck_seconds": 1}, []),
        ("status", {"wathc": 1}, ["wathc is no option of deeplearning.aws.status: watch is meant, perhaps"]),
        ("status", {"efa": 1}, ["efa is no option of deeplearning.aws.status: cluster_efa is meant, perhaps"]),
        ("stop", {"evaluate_args": 1}, []),
        ("stop", {"zzz": 1}, []),
        (
            "stop",
            {"wathc": 1, "run_ids": 2},
            ["run_ids is no option of deeplearning.aws.stop: run_id is meant, perhaps"],
        ),
        ("status", {"_raw_params": ""}, []),
    ],
)
def test_names_that_a_playbook_does_not_take(playbook: str, extra: dict[str, Any], problems: list[str]) -> None:
    actual = unknown_names(playbook, extra, ROLES)
    assert len(actual) == len(problems)
    assert all(text.startswith(start) for text, start in zip(actual, problems, strict=True)), actual


def test_an_argument_of_the_script_is_named_as_one() -> None:
    (warning,) = foreign_names("train", {"learning_rate": 0.1}, ROLES)
    assert warning == (
        "learning_rate is no option of deeplearning.aws.train and has no effect here: what is meant for the script is "
        "given as its "
        """arguments. Example: -e '{"script_args": ["--learning-rate", "0.1"]}'"""
    )


def test_words_that_belong_to_no_name_have_an_example_of_the_playbook() -> None:
    start = (
        "-e has words that belong to no option: a b. Lists and maps are given in JSON and within quotes, or in a file"
    )
    (of_training,) = unknown_names("train", {"_raw_params": "a b"}, ROLES)
    (of_others,) = unknown_names("stop", {"_raw_params": "a b"}, ROLES)
    assert of_training.startswith(start) and """. Example: -e '{"script_args": [""" in of_training
    assert of_others.startswith(start) and """. Example: -e '{"cluster_availability_zones": [""" in of_others
