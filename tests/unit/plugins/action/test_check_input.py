"""The action `check_input`: what it returns to a playbook, and all that it refuses at once."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.template import trust_as_template
from ansible.utils import vars as ansible_vars
from ansible_collections.deeplearning.aws.plugins.action import check_input
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import command_line, recorded_settings

from tests.unit.actions import run_action
from tests.unit.conftest import Account


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


@pytest.mark.parametrize(
    ("user", "host", "expected"),
    [
        ("jürgen", "büro", "jürgen@büro"),
        # Bytes that are not UTF-8, as Python reads them.
        ("j\udcfcrgen", "host\n", "j?rgen@host?"),
        ("a" * 300, "host", "a" * 256),
    ],
)
def test_any_name_of_a_user_can_be_recorded(
    user: str, host: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: user)
    monkeypatch.setattr("socket.gethostname", lambda: host)
    assert check_input.requester() == expected


@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("No username set in the environment")])
def test_a_user_without_a_name_is_recorded_by_its_number(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr("getpass.getuser", nameless)
    assert check_input.requester().startswith(f"uid-{os.getuid()}@")


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
        "wach is no option of deeplearning.aws.status: watch is meant, perhaps",
    ):
        assert words in text, words


def test_variables_of_the_users_own_playbooks_pass(extra_vars: dict[str, Any]) -> None:
    extra_vars.update(stage="prod", nodes=2, region="eu")
    result = check("status", **SETTINGS, stage="prod", nodes=2, region="eu", cluster_contact="me", cluster_role="web")
    assert "failed" not in result, result
    texts = [str(warning) for warning in result["warnings"]]
    assert any("stage is no option of deeplearning.aws.status and has no effect" in text for text in texts)
    assert any("nodes is no option of deeplearning.aws.status and has no effect" in text for text in texts)
    assert any("cluster_region is meant, perhaps" in text for text in texts)
    assert any("cluster_contact is no setting and has no effect" in text for text in texts)
    assert any("cluster_role is no setting and has no effect" in text for text in texts)
    assert "cluster_worker_count is meant" in check("status", **SETTINGS, cluster_wrker_count=2)["msg"]


def test_a_cluster_is_named_by_an_inventory_or_by_its_name() -> None:
    refused = check("plan", cluster_region="us-east-1", **OWN)
    assert refused["failed"] and "must end in .deeplearning.yml" in refused["msg"]
    assert "failed" not in check("status", deeplearning_folder="/x/.deeplearning")


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
def test_which_machines_are_emrs(aws: Account, playbook: str, variables: dict[str, Any], emr: bool) -> None:
    own = {"cluster_ssh_allowed_cidrs": ["198.51.100.1/32"], "cluster_key_name": "mine"}
    result = check(playbook, **SETTINGS, **own, **variables)
    assert result.get("emr") is emr, result


def test_a_training_has_a_request_without_its_environment() -> None:
    result = check("train", **SETTINGS, script="/efs/train.py", framework="pytorch", nodes=2, env={"KEY": "hunter2"})
    assert "failed" not in result, result
    assert "hunter2" not in str(result) and "env" not in result["options"] and result["recipe_env"] == {}
    assert result["request"]["nodes"] == 2 and result["options"]["framework"] == "pytorch"
    assert result["requested_by"] in result["request"].values(), result


BUCKET = "red-123456789012-us-east-1"
OWN = {"cluster_key_name": "mine"}
MADE = {
    "cluster_key_name": "mine",
    "cluster_worker_count": 4,
    "cluster_ssh_allowed_cidrs": ["198.51.100.1/32"],
    "cluster_ttl_hours": 8.0,
}


@pytest.fixture
def recorded(aws: Account) -> Callable[..., None]:
    def put(content: object) -> None:
        aws.client("s3").create_bucket(Bucket=BUCKET)
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        aws.client("s3").put_object(Bucket=BUCKET, Key="settings.json", Body=body)

    return put


def test_what_is_not_given_is_as_the_cluster_was_made(recorded: Callable[..., None]) -> None:
    recorded({"schema": 1, "settings": MADE})
    result = check("site", **SETTINGS)
    assert "failed" not in result, result
    assert [result["cluster"][name] for name in ("worker_count", "ttl_hours", "idle_minutes")] == [4, 8.0, 0]
    assert result["settings_before"] == {}
    assert result["record"] == {"schema": 1, "settings": MADE}
    assert result["specified"] == ["name", "region"]


def test_a_key_that_is_imported_stays_the_clusters_without_its_file(
    recorded: Callable[..., None], tmp_path: Path
) -> None:
    recorded({"schema": 1, "settings": MADE})
    key = tmp_path / "id.pub"
    key.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB6S0C1XGqC2y3Zl7vVQ5l0m0pQm3mF8mY3c0B3jFo6E me")
    result = check("site", **SETTINGS, cluster_public_key_file=str(key))
    assert "failed" not in result, result
    assert result["cluster"]["key_name"] == "" and result["record"]["settings"]["cluster_key_name"] == "red"
    assert result["settings_before"] == {"key_name": "mine"}


def test_the_master_changes_with_the_type_that_it_has_from_the_workers(recorded: Callable[..., None]) -> None:
    recorded({"schema": 1, "settings": MADE})
    result = check("site", **SETTINGS, cluster_instance_type="g5.2xlarge")
    assert result["settings_before"] == {"instance_type": "g5.xlarge", "master_instance_type": "g5.xlarge"}
    recorded({"schema": 1, "settings": {**MADE, "cluster_master_instance_type": "g5.2xlarge"}})
    result = check("site", **SETTINGS, cluster_instance_type="g5.2xlarge")
    assert result["settings_before"] == {"instance_type": "g5.xlarge"}


def test_a_recorded_value_that_no_longer_holds_can_be_replaced(recorded: Callable[..., None]) -> None:
    recorded({"schema": 1, "settings": {**MADE, "cluster_instance_type": "?"}})
    result = check("site", **SETTINGS, cluster_instance_type="g5.2xlarge")
    assert "failed" not in result, result


def test_whether_there_is_a_record(recorded: Callable[..., None]) -> None:
    most = {"cluster_ssh_allowed_cidrs": ["198.51.100.1/32"]}
    assert check("site", **SETTINGS, **OWN, **most)["recorded"] is False
    recorded({"schema": 1, "settings": MADE})
    assert check("site", **SETTINGS)["recorded"] is True


@pytest.mark.parametrize("text", ['{"private_key_file": "%s"}', '{"private_key_file": 3}', "[]", "{", "", "{}"])
def test_the_private_key_is_the_one_that_this_machine_has_used(aws: Account, tmp_path: Path, text: str) -> None:
    key = tmp_path / "id_ed25519"
    key.write_text("secret")
    (tmp_path / "red.json").write_text(text.replace("%s", str(key)))
    used = str(key) if "%s" in text else ""
    folder = {"deeplearning_folder": str(tmp_path)}
    assert check("status", **SETTINGS, **folder)["cluster"]["private_key_file"] == used
    assert check("status", **SETTINGS, **folder, cluster_private_key_file="/k")["cluster"]["private_key_file"] == "/k"
    key.unlink()
    assert check("status", **SETTINGS, **folder)["cluster"]["private_key_file"] == ""


def test_what_is_given_changes_the_record_and_0_and_never_are_given(recorded: Callable[..., None]) -> None:
    recorded({"schema": 1, "settings": MADE})
    more = {"cluster_worker_count": 2, "cluster_ttl_hours": "never", "cluster_spot": "true", "cluster_idle_minutes": 0}
    result = check("site", **SETTINGS, **OWN, **more)
    assert result["cluster"]["worker_count"] == 2 and result["cluster"]["ttl_hours"] == 0
    assert result["settings_before"] == {"worker_count": 4, "ttl_hours": 8.0, "spot": False}
    changed = {"cluster_worker_count": 2, "cluster_ttl_hours": 0, "cluster_spot": True, "cluster_idle_minutes": 0}
    assert result["record"]["settings"] == MADE | changed


def test_rules_hold_between_what_is_given_and_what_was(recorded: Callable[..., None]) -> None:
    recorded({"schema": 1, "settings": {**MADE, "cluster_worker_min": 3}})
    refused = check("site", **SETTINGS, **OWN, cluster_worker_count=2)
    assert "cluster_worker_min is 3 and cluster_worker_count 2" in refused["msg"]


@pytest.mark.parametrize("playbook", ["train", "status", "configure", "extend", "health", "logs"])
def test_other_playbooks_use_the_record_too(recorded: Callable[..., None], playbook: str) -> None:
    recorded({"schema": 1, "settings": {"cluster_efs_mount": "/data", "cluster_idle_minutes": 30}})
    more = {"train": {"framework": "pytorch", "script": "/data/a.py"}, "extend": {"hours": 4}}.get(playbook, {})
    result = check(playbook, **SETTINGS, **more)
    assert result["cluster"]["efs_mount"] == "/data" and result["cluster"]["idle_minutes"] == 30


@pytest.mark.parametrize(("playbook", "more"), [("destroy", {}), ("audit", {"audit": "all"})])
def test_what_removes_goes_by_what_it_is_given(aws: Account, playbook: str, more: dict[str, Any]) -> None:
    before = len(aws.calls())
    assert check(playbook, **SETTINGS, **more)["cluster"]["keep_efs"] is True
    assert aws.calls()[before:] == []


def test_a_removed_setting_in_the_record_is_left_out(recorded: Callable[..., None]) -> None:
    recorded({"schema": 1, "settings": {**MADE, "cluster_setup": "push"}})
    assert check("site", **SETTINGS)["record"]["settings"] == MADE
    assert "cluster_setup is no setting any more" in check("site", **SETTINGS, cluster_setup="boot")["msg"]


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"[" * 100_000, b"\xff", {"schema": 1}, {"schema": 2, "settings": {}}),
        *({"schema": 1, "settings": []}, {"schema": 1, "settings": {"cluster_colour": 1}}),
        *({"schema": 1, "settings": {"cluster_keep_efs": False}}, {"schema": 1, "settings": {"ansible_user": "x"}}),
    ],
)
def test_a_damaged_record_is_named_and_other_playbooks_go_on(recorded: Callable[..., None], content: object) -> None:
    recorded(content)
    refused = check("site", **SETTINGS, **OWN, cluster_ssh_allowed_cidrs=["198.51.100.1/32"])
    assert (
        refused["failed"] and f"s3://{BUCKET}/settings.json has the settings that red was made with" in refused["msg"]
    )
    result = check("status", **SETTINGS)
    assert "the defaults count: s3://" in result["warnings"][0] and result["cluster"]["efs_mount"] == "/efs"


def test_a_recorded_value_is_validated_like_one_that_is_given(recorded: Callable[..., None]) -> None:
    recorded({"schema": 1, "settings": {**MADE, "cluster_worker_count": "{{ lookup('pipe', 'id') }}"}})
    refused = check("site", **SETTINGS, **OWN)
    assert refused["msg"].startswith("cluster_worker_count is {{ lookup")


# A cluster of the same name in another region

SUMMARY, CONFIGURATION = (
    '{"region": "%s"}',
    "# The members of the cluster red in %s, according to AWS. Written\nHost x\n",
)


@pytest.fixture
def project(aws: Account, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Check with the files that a project has, each with the region that it names."""

    def in_project(playbook: str, texts: dict[str, str], region: str = "eu-west-1", **more: Any) -> dict[str, Any]:
        for name, text in texts.items():
            (tmp_path / name).write_text(text.replace("%s", region))
        folder = {"deeplearning_folder": str(tmp_path)}
        return check(playbook, **SETTINGS, **folder, cluster_ssh_allowed_cidrs=["198.51.100.1/32"], **OWN, **more)

    return in_project


@pytest.fixture
def abroad(aws: Account) -> None:
    tags = [{"ResourceType": "vpc", "Tags": [{"Key": "deeplearning:cluster", "Value": "red"}]}]
    aws.client("ec2", "eu-west-1").create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags)


@pytest.mark.parametrize("files", [{"red.json": SUMMARY}, {"red.ssh_config": CONFIGURATION}])
@pytest.mark.parametrize("playbook", ["site", "status"])
def test_files_of_a_cluster_that_exists_in_another_region_stay(
    project: Any, abroad: None, tmp_path: Path, files: dict[str, str], playbook: str
) -> None:
    refused = project(playbook, files)
    assert refused["failed"]
    assert refused["msg"].startswith(
        f"{tmp_path} has files of the cluster red in eu-west-1, which exists: red in us-east-1 would replace them"
    )
    assert "Both are in the account 123456789012." in refused["msg"]
    assert "folder: .deeplearning/us-east-1. " in refused["msg"]
    assert refused["msg"].endswith("-e destroy=red -e cluster_name=red -e cluster_region=eu-west-1")


@pytest.mark.parametrize(
    ("playbook", "more"), [("audit", {}), ("destroy", {}), ("image", {"image_frameworks": ["pytorch"]})]
)
def test_what_writes_no_files_does_not_ask_for_another_region(
    project: Any, abroad: None, playbook: str, more: dict[str, Any]
) -> None:
    result = project(playbook, {"red.json": SUMMARY}, **more)
    assert "failed" not in result and not any("eu-west-1" in text for text in result["warnings"]), result


@pytest.mark.parametrize("playbook", ["site", "status", "logs"])
def test_files_of_a_cluster_in_another_account_stay(project: Any, tmp_path: Path, playbook: str) -> None:
    summary = '{"cluster": "red", "region": "us-east-1", "account": "%s"}'
    assert "failed" not in project(playbook, {"red.json": summary}, "123456789012")
    assert "failed" not in project(playbook, {"red.json": summary}, "not an account")
    refused = project(playbook, {"red.json": summary}, "210987654321")
    assert refused["failed"] and refused["msg"].startswith(
        f"{tmp_path} has files of the cluster red in us-east-1, account 210987654321. These credentials are for the "
        "account 123456789012, so whether it exists is unknown, and red in us-east-1 (account 123456789012) would "
        "replace its files. Use credentials of the account 210987654321 (AWS_PROFILE, or -e cluster_profile=NAME)"
    )
    assert refused["msg"].endswith(f"delete {tmp_path}/red.json and {tmp_path}/red.ssh_config.")


def test_the_place_is_read_from_the_summary_where_the_settings_put_it(
    project: Any, abroad: None, tmp_path: Path
) -> None:
    elsewhere = {"cluster_summary_file": str(tmp_path / "mine.json")}
    refused = project("status", {"mine.json": '{"cluster": "red", "region": "%s"}'}, **elsewhere)
    assert refused["failed"] and "red in eu-west-1, which exists" in refused["msg"]
    of_another = project("status", {"mine.json": '{"cluster": "blue", "region": "%s"}'}, **elsewhere)
    assert "failed" not in of_another


def test_a_plan_warns_of_the_cluster_in_another_region(project: Any, abroad: None) -> None:
    result = project("plan", {"red.json": SUMMARY})
    assert "failed" not in result and "red in eu-west-1, which exists" in result["warnings"][0], result


@pytest.mark.parametrize(
    ("files", "region"),
    [
        ({"red.json": SUMMARY, "red.ssh_config": CONFIGURATION}, "us-east-1"),
        ({"red.json": SUMMARY, "red.ssh_config": CONFIGURATION}, "eu-west-3"),  # It is gone.
        ({"red.json": SUMMARY, "red.ssh_config": CONFIGURATION}, "mars/../eu-west-1"),
        ({"red.json": "[", "red.ssh_config": ""}, "eu-west-1"),
        ({"red.json": '{"region": ["%s"]}', "red.ssh_config": "# red in %s, according to AWS"}, "eu-west-1"),
        ({"red.ssh_config": CONFIGURATION.replace(" in %s", "")}, "eu-west-1"),
        ({"blue.json": SUMMARY}, "eu-west-1"),
    ],
)
def test_other_files_are_replaced(project: Any, abroad: None, files: dict[str, str], region: str) -> None:
    result = project("status", files, region)
    assert "failed" not in result and result["warnings"] == [], result


def test_whether_the_other_cluster_exists_may_be_unknown(aws: Account, project: Any, tmp_path: Path) -> None:
    words = {"code": "UnauthorizedOperation", "message": "You are not authorized.", "status": 403}
    aws.cloud.faults.add("error", {"action": "ec2:DescribeTags"}, words)
    refused = project("status", {"red.json": SUMMARY})
    assert refused["failed"] and "does not allow ec2:DescribeTags" in refused["msg"]
    assert refused["msg"].endswith(f"If it does not, delete {tmp_path}/red.json and {tmp_path}/red.ssh_config.")


def test_another_region_than_the_clusters_is_refused(
    extra_vars: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    extra_vars["aws_region"] = "eu-west-1"
    monkeypatch.setattr(command_line.context, "CLIARGS", {"args": ("deeplearning.aws.destroy",)})
    refused = check("destroy", **SETTINGS, aws_region="eu-west-1", destroy="red", deeplearning_region="us-west-2")
    first, inventory, other = refused["msg"].splitlines()
    assert "cluster_region is us-east-1, and the inventory has read the machines of us-west-2" in inventory
    assert "aws_region is eu-west-1 and has no effect" in other


def test_where_ansible_only_warns_of_a_second_inventory_the_playbook_fails() -> None:
    refused = check("status", **SETTINGS, deeplearning_refused="b.deeplearning.yml is another inventory file.")
    assert refused["failed"] and refused["msg"] == "b.deeplearning.yml is another inventory file."


def test_in_a_playbook_of_ones_own_another_name_of_a_region_is_ones_own(
    extra_vars: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    extra_vars["aws_region"] = "eu-west-1"
    monkeypatch.setattr(command_line.context, "CLIARGS", {"args": ("mine.yml",)})
    assert "failed" not in check("status", **SETTINGS, aws_region="eu-west-1", deeplearning_region="us-east-1")


def test_a_bucket_of_another_account_is_no_record(aws: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of buckets are public. The call names the account that must own it."""
    seen = []
    original = recorded_settings.Aws.content
    monkeypatch.setattr(
        recorded_settings.Aws, "content", lambda self, *words: seen.append(words) or original(self, *words)
    )
    check("status", **SETTINGS)
    assert seen == [(BUCKET, "settings.json", "123456789012", recorded_settings.LARGEST)]


def test_what_is_not_sent_with_the_code_is_named_before_anything_is_done(tmp_path: Path) -> None:
    for name in ("train.py", "credentials.json", "a.tfstate", "config/secrets.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    code = {"script": str(tmp_path / "train.py"), "sync": str(tmp_path)}
    result = check("train", **SETTINGS, framework="pytorch", **code)
    assert result["code_left_out"] == ["a.tfstate", "config/secrets.yml", "credentials.json"], result
    warning = str(result["warnings"][-1])
    assert warning.startswith("Not sent with the code, as they may hold secrets: a.tfstate, config/secrets.yml, cred")
    result = check("train", **SETTINGS, framework="pytorch", **code, code_include=["config", "a.tfstate"])
    assert result["code_left_out"] == ["credentials.json"]
    refused = check("train", **SETTINGS, framework="pytorch", **code, code_include=["none"])
    assert refused["failed"] and refused["msg"].startswith("code_include is none, and nothing of that path can be sent")
    without = check("train", **SETTINGS, framework="pytorch", script=code["script"], code_include="a.tfstate")
    assert "no folder and no repository is sent that could have it" in without["msg"]
    assert check("train", **SETTINGS, framework="pytorch")["code_left_out"] == []


def test_a_repository_is_looked_at_before_anything_is_done(tmp_path: Path) -> None:
    for name in ("train.py", ".env", "outside.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "requirements.txt").write_text("-r ../own.txt")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=me", "-c", "user.email=me@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    script = f"git+{tmp_path}@main:train.py"
    assert check("train", **SETTINGS, framework="pytorch", script=script)["code_left_out"] == [".env"]
    included = check("train", **SETTINGS, framework="pytorch", script=script, code_include=[".env"])
    assert included["code_left_out"] == []
    refused = check("train", **SETTINGS, framework="pytorch", script=script, requirements="requirements.txt")
    assert "its line 1 includes ../own.txt, which is not in the repository" in refused["msg"]
