"""The action `check_input`: what it returns to a playbook, and all that it refuses at once."""

from __future__ import annotations

import getpass
import socket
from typing import Any

import pytest
from ansible.template import trust_as_template
from ansible.utils import vars as ansible_vars

from tests.unit.actions import run_action


@pytest.fixture(autouse=True)
def extra_vars(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The extra vars. Ansible reads them once per process."""
    options: dict[str, Any] = {}
    monkeypatch.setattr(ansible_vars.load_extra_vars, "extra_vars", options, raising=False)
    return options


def check(playbook: str, **variables: Any) -> dict[str, Any]:
    return run_action("check_input", task_vars=variables, playbook=playbook)


SETTINGS = {"cluster_name": "red", "cluster_region": "us-east-1"}


def test_settings_are_completed_and_options_returned() -> None:
    result = check(
        "status", **SETTINGS, cluster_worker_count=trust_as_template("{{ 1 + 2 }}"), watch="true", foreign="x"
    )
    assert (result.get("changed"), result.get("emr"), "failed" in result) == (False, False, False), result
    assert result["cluster"]["name"] == "red" and result["cluster"]["worker_count"] == 3
    assert result["cluster"]["efs_mount"] == "/efs"
    assert result["options"]["watch"] is True and "foreign" not in result["options"]
    assert result["requested_by"] == f"{getpass.getuser()}@{socket.gethostname()}"
    assert "request" not in result


def test_all_problems_are_reported_at_once(extra_vars: dict[str, Any]) -> None:
    extra_vars["wach"] = "true"
    result = check(
        "status",
        **SETTINGS | {"cluster_region": "mars"},
        cluster_wrkr_count=1,
        cluster_worker_count=-1,
        watch=trust_as_template("{{ nothing.at.all }}"),
        cluster_instance_type=trust_as_template("{{ broken"),
        wach="true",
    )
    assert result["failed"]
    first, *problems = result["msg"].splitlines()
    assert first == f"{len(problems)} settings are wrong:"
    text = "\n".join(problems)
    for words in (
        "cluster_worker_count is -1",
        "cluster_wrkr_count",
        "watch cannot be evaluated: ",
        "cluster_instance_type cannot be evaluated: ",
        "wach is no option of status.yml: watch is meant, perhaps",
    ):
        assert words in text, words


def test_a_playbook_that_needs_members_fails_with_the_inventorys_problem() -> None:
    problem = "There are no credentials."
    refused = check("train", **SETTINGS, deeplearning_problem=problem, script="/efs/train.py", framework="pytorch")
    assert refused["failed"] and refused["msg"] == problem
    assert "failed" not in check("status", **SETTINGS, deeplearning_problem=problem)
    # What is wrong with the options comes first.
    wrong = check(
        "train", **SETTINGS, deeplearning_problem=problem, script="/efs/train.py", framework="pytorch", nodes="none"
    )
    assert problem not in wrong["msg"] and "nodes is none" in wrong["msg"]


@pytest.mark.parametrize(
    ("playbook", "variables", "emr"),
    [("emr", {}, True), ("plan", {"emr": "yes"}, True), ("plan", {"emr": False}, False), ("plan", {}, False)],
)
def test_which_machines_are_emrs(playbook: str, variables: dict[str, Any], emr: bool) -> None:
    own = {"cluster_ssh_allowed_cidrs": ["198.51.100.1/32"], "cluster_key_name": "mine"}
    result = check(playbook, **SETTINGS, **own, **variables)
    assert result.get("emr") is emr, result


def test_a_training_has_a_request_without_its_environment() -> None:
    result = check("train", **SETTINGS, script="/efs/train.py", framework="pytorch", nodes=2, env={"KEY": "hunter2"})
    assert "failed" not in result, result
    assert "hunter2" not in str(result) and "env" not in result["options"] and result["recipe_env"] == {}
    assert result["request"]["nodes"] == 2 and result["options"]["framework"] == "pytorch"
    assert result["requested_by"] in result["request"].values(), result
