"""Wheels of Horovod in a bucket: pushed once, pulled by the next cluster, and never a reason for a run to fail."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.loader import connection_loader
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.staging import wheels
from ansible_collections.deeplearning.aws.plugins.plugin_utils.staging.bucket import Bucket

from tests.unit.actions import run_action
from tests.unit.conftest import Account

ROOT = Path(__file__).resolve().parents[4]
PINS = (ROOT / "roles/framework/files/pytorch/requirements-cpu.txt").read_text()
PINNED = re.findall(r"^torch==(\S+)", PINS, re.MULTILINE)[0]
MACHINE = platform.machine()
KEY = f"horovod-0.28.1_torch-{PINNED}_cp311_openmpi-4.1.4_{MACHINE}"
WHEEL = f"{KEY}/horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
OTHER = "horovod-0.28.1_tensorflow-2.15.1_cp311_openmpi-4.1.4_x86_64/horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
BUCKET = "red-123456789012-us-east-1"
CONTENT = bytes(range(256)) * 3000


def task(folder: Path | str, direction: str, **more: Any) -> dict[str, Any]:
    options = {"region": "us-east-1", "cluster": "red", "framework": "pytorch", "folder": str(folder)}
    return {**options, "direction": direction, **more}


def run_tasks(*tasks: dict[str, Any], check: bool = False) -> list[dict[str, Any]]:
    """What each task returned, on this machine as the node."""
    return [run_action("bucket_sync", check, **task) for task in tasks]


def play_tasks(folder: Path, *tasks: dict[str, Any]) -> list[dict[str, Any]]:
    """What each task returned, played by Ansible."""
    registered = [{**task, "register": f"task{number}"} for number, task in enumerate(tasks)]
    names = ", ".join(f"task{number}" for number in range(len(tasks)))
    copy = {"content": "{{ [" + names + "] | to_json }}", "dest": str(folder / "results.json")}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [*registered, {"ansible.builtin.copy": copy, "check_mode": False}],
    }
    (folder / "play.yml").write_text(json.dumps([play]))
    command = [str(Path(sys.executable).parent / "ansible-playbook"), str(folder / "play.yml")]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        [*command, "-i", "localhost,"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())
    return results


def built(name: str, content: bytes) -> dict[str, str]:
    """As the node that has built a wheel reports it."""
    return {name: hashlib.sha256(content).hexdigest()}


def test_what_one_cluster_has_built_another_takes_from_the_bucket(aws: Account, tmp_path: Path) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="tools")
    s3.put_object(Bucket="tools", Key=f"shared/wheels/{OTHER}", Body=b"for TensorFlow")
    s3.put_object(Bucket="tools", Key=f"shared/wheels/{KEY}/$(reboot).whl", Body=b"no wheel")
    red, blue = tmp_path / "red's", tmp_path / "blue's"
    (red / KEY).mkdir(parents=True)
    (red / WHEEL).write_bytes(CONTENT)
    (red / KEY / "horovod-0-planted.whl").write_bytes(b"another")
    shared = {"bucket": "tools/shared"}
    pushed, again, pulled, pulled_again = run_tasks(
        task(red, "push", built=built(WHEEL, CONTENT), **shared),
        task(red, "push", built=built(WHEEL, CONTENT), **shared),
        task(blue, "pull", cluster="blue", **shared),
        task(blue, "pull", cluster="blue", **shared),
    )
    assert (pushed["changed"], pushed["wheels"]) == (True, built(WHEEL, CONTENT)) and not again["changed"]
    assert (pulled["changed"], pulled["wheels"]) == (True, built(WHEEL, CONTENT))
    assert (pulled_again["changed"], pulled_again["wheels"]) == (False, built(WHEEL, CONTENT))
    assert [str(one.relative_to(blue)) for one in blue.rglob("*") if one.is_file()] == [WHEEL]
    assert (blue / WHEEL).read_bytes() == CONTENT
    calls = aws.calls()
    assert calls.count("s3:PutObject") == 3 and calls.count("s3:GetObject") == 1
    head = s3.head_object(Bucket="tools", Key=f"shared/wheels/{WHEEL}")
    assert head["Metadata"] == {"sha256": built(WHEEL, CONTENT)[WHEEL]}


@pytest.fixture
def bucket(aws: Account, tmp_path: Path) -> Account:
    """The cluster's own, beside a folder with a wheel."""
    (tmp_path / KEY).mkdir()
    (tmp_path / WHEEL).write_bytes(CONTENT)
    aws.client("s3").create_bucket(Bucket=BUCKET)
    return aws


def listed(aws: Account) -> list[str]:
    return [one["Key"] for one in aws.client("s3").list_objects_v2(Bucket=BUCKET).get("Contents", [])]


def test_without_a_shared_bucket_it_is_the_clusters_own(bucket: Account, tmp_path: Path) -> None:
    (checked,) = run_tasks(task(tmp_path, "push", built=built(WHEEL, CONTENT)), check=True)
    assert checked["changed"] and listed(bucket) == []
    (pushed,) = run_tasks(task(tmp_path, "push", built=built(WHEEL, CONTENT)))
    assert pushed["changed"] and listed(bucket) == [f"wheels/{WHEEL}"]


def test_without_a_new_wheel_nothing_is_pushed(bucket: Account, tmp_path: Path) -> None:
    (pushed,) = run_tasks(task(tmp_path, "push"))
    assert not pushed["changed"] and "warnings" not in pushed and listed(bucket) == []


def test_a_wheel_that_has_changed_since_is_not_pushed(bucket: Account, tmp_path: Path) -> None:
    (pushed,) = run_tasks(task(tmp_path, "push", built=built(WHEEL, b"what was built")))
    assert not pushed["changed"] and "has changed since it was built" in pushed["warnings"][0]
    assert listed(bucket) == []


def test_a_stored_wheel_is_never_replaced(bucket: Account, tmp_path: Path) -> None:
    key = f"wheels/{WHEEL}"
    bucket.client("s3").put_object(Bucket=BUCKET, Key=key, Body=b"pushed before")
    (pushed,) = run_tasks(task(tmp_path, "push", built=built(WHEEL, CONTENT)))
    assert not pushed["changed"] and "warnings" not in pushed
    assert bucket.client("s3").get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"pushed before"


@pytest.mark.parametrize(
    "reported",
    [
        {"../../../etc/passwd": "0" * 64},
        {f"{KEY}/../../horovod-0.28.1.whl": "0" * 64},
        {OTHER: "0" * 64},
        {WHEEL: "$(reboot)"},
        {WHEEL: ["0" * 64]},
    ],
)
def test_a_malformed_report_of_a_wheel_is_refused(reported: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="reported no name and checksum of a wheel"):
        wheels.check_built("pytorch", reported)


def test_a_node_that_reports_nonsense_costs_a_warning(tmp_path: Path) -> None:
    (pushed,) = run_tasks(task(tmp_path, "push", built={WHEEL: "\x1b[2J"}))
    assert not pushed["changed"] and "Could not push wheels of Horovod: the node that built" in pushed["warnings"][0]


def test_a_node_that_is_out_of_reach_is_ansibles_to_report(
    bucket: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_args: object, **_options: object) -> None:
        raise AnsibleConnectionFailure("timed\nout\x1b[2J")

    monkeypatch.setattr(connection_loader.get("ansible.builtin.local", class_only=True), "exec_command", lost)
    with pytest.raises(AnsibleConnectionFailure, match="timed out\N{REPLACEMENT CHARACTER}"):
        run_tasks(task(tmp_path, "pull"))


def test_in_check_mode_nothing_is_pulled(bucket: Account, tmp_path: Path) -> None:
    stored(bucket, [WHEEL], CONTENT)
    (planned,) = run_tasks(task(tmp_path / "blue/", "pull"), check=True)
    assert (planned["changed"], planned["wheels"]) == (True, built(WHEEL, CONTENT))
    assert not (tmp_path / "blue").exists() and "warnings" not in planned
    (again,) = run_tasks(task(f"{tmp_path}/", "pull"), check=True)
    assert not again["changed"]


def test_a_folder_that_cannot_be_written_costs_a_warning(bucket: Account, tmp_path: Path) -> None:
    stored(bucket, [WHEEL], CONTENT)
    (tmp_path / "blue").write_text("a file")
    (refused,) = run_tasks(task(tmp_path / "blue", "pull"))
    assert (refused["changed"], refused["wheels"]) == (False, {})
    (warning,) = refused["warnings"]
    assert warning.startswith(f"A wheel of Horovod is not used: {tmp_path}/blue/{WHEEL} cannot be written: ")


def test_what_a_node_sends_is_bounded(bucket: Account, tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(b"")
    os.truncate(tmp_path / WHEEL, wheels.MOST_BYTES + 1)
    (pushed,) = run_tasks(task(tmp_path, "push", built=built(WHEEL, CONTENT)))
    assert not pushed["changed"] and "Could not push wheels of Horovod: " in pushed["warnings"][0]
    assert listed(bucket) == []


def test_a_changed_wheel_in_the_folder_is_replaced(bucket: Account, tmp_path: Path) -> None:
    blue = tmp_path / "blue"
    (blue / KEY).mkdir(parents=True)
    (blue / WHEEL).write_bytes(b"another")
    _pushed, pulled = run_tasks(task(tmp_path, "push", built=built(WHEEL, CONTENT)), task(blue, "pull"))
    assert pulled["changed"] and (blue / WHEEL).read_bytes() == CONTENT


def test_what_the_bucket_has_is_compared_too(bucket: Account, tmp_path: Path) -> None:
    s3 = bucket.client("s3")
    blue = tmp_path / "blue"
    s3.put_object(Bucket=BUCKET, Key=f"wheels/{WHEEL}", Body=b"without a checksum")
    (unmarked,) = run_tasks(task(blue, "pull"))
    assert (unmarked["changed"], unmarked["wheels"]) == (False, {}) and "warnings" not in unmarked
    wrong = {"sha256": "0" * 64}
    s3.put_object(Bucket=BUCKET, Key=f"wheels/{WHEEL}", Body=b"with another", Metadata=wrong)
    (refused,) = run_tasks(task(blue, "pull"))
    assert (refused["changed"], refused["wheels"]) == (False, {})
    assert f"{WHEEL} is not the wheel that was pushed" in refused["warnings"][0]
    assert not blue.exists()


UNUSABLE = [WHEEL.replace(PINNED, "1.13.0+cpu"), WHEEL.replace(f"_{MACHINE}/", "_s390x/")]


def stored(aws: Account, names: list[str], content: bytes, checksum: str = "") -> None:
    for name in names:
        metadata = {"sha256": checksum or hashlib.sha256(content).hexdigest()}
        aws.client("s3").put_object(Bucket=BUCKET, Key=f"wheels/{name}", Body=content, Metadata=metadata)


def test_only_wheels_that_this_cluster_can_use_are_pulled(bucket: Account, tmp_path: Path) -> None:
    stored(bucket, [WHEEL], CONTENT)
    stored(bucket, UNUSABLE, b"of another key, and bad", checksum="0" * 64)
    blue = tmp_path / "blue"
    (pulled,) = run_tasks(task(blue, "pull"))
    assert (pulled["changed"], pulled["wheels"]) == (True, built(WHEEL, CONTENT)) and "warnings" not in pulled
    assert [str(one.relative_to(blue)) for one in blue.rglob("*") if one.is_file()] == [WHEEL]
    assert (bucket.calls().count("s3:HeadObject"), bucket.calls().count("s3:GetObject")) == (1, 1)


def test_a_bad_wheel_is_skipped_and_others_are_pulled(bucket: Account, tmp_path: Path) -> None:
    bad = WHEEL.replace("4.1.4", "4.1.1")
    stored(bucket, [bad], b"bad", checksum="0" * 64)
    stored(bucket, [WHEEL], CONTENT)
    blue = tmp_path / "blue"
    (pulled,) = run_tasks(task(blue, "pull"))
    assert (pulled["changed"], pulled["wheels"]) == (True, built(WHEEL, CONTENT))
    assert len(pulled["warnings"]) == 1 and f"{bad} is not the wheel that was pushed" in pulled["warnings"][0]
    assert not (blue / bad).exists()


def test_a_push_keeps_the_checksums_of_the_pull(bucket: Account, tmp_path: Path) -> None:
    stored(bucket, [WHEEL], CONTENT)
    variables = {
        "__cluster": {"name": "red", "region": "us-east-1", "profile": "", "role_arn": "", "horovod_wheel_bucket": ""},
        "__wheels": str(tmp_path),
        "__framework": "pytorch",
        "ansible_become": False,
    }
    seen = [
        {
            "ansible.builtin.include_tasks": str(ROOT / "playbooks/tasks/runs/wheels.yml"),
            "vars": {**variables, "wheels_direction": s},
        }
        for s in ("pull", "push")
    ]
    results = play_tasks(tmp_path, *seen, {"ansible.builtin.debug": {"var": "runs_wheels"}})
    assert results[-1]["runs_wheels"] == built(WHEEL, CONTENT)


def test_a_bucket_that_cannot_be_used_costs_a_build_and_no_run(aws: Account, tmp_path: Path) -> None:
    (tmp_path / KEY).mkdir()
    (tmp_path / WHEEL).write_bytes(CONTENT)
    results = run_tasks(task(tmp_path, "push", built=built(WHEEL, CONTENT)), task(tmp_path, "pull"))
    for one, direction in zip(results, ("push", "pull"), strict=True):
        assert not one["changed"] and f"Could not {direction} wheels of Horovod: " in one["warnings"][0], one


def test_a_wheel_that_cannot_be_read_costs_no_run_either(bucket: Account, tmp_path: Path) -> None:
    (tmp_path / WHEEL).unlink()
    (tmp_path / WHEEL).symlink_to("nowhere")
    (pushed,) = run_tasks(task(tmp_path, "push", built=built(WHEEL, CONTENT)))
    assert not pushed["changed"] and "Could not push wheels of Horovod: " in pushed["warnings"][0], pushed


def test_the_clusters_own_bucket_has_to_be_of_its_account(aws: Account) -> None:
    bucket = Bucket(Aws("us-east-1"), "red", "wheels", "210987654321")
    with mock.patch.object(Aws, "call", return_value={"Body": io.BytesIO(CONTENT)}) as call:
        assert bucket.read(WHEEL) == CONTENT
    with mock.patch.object(Aws, "pages", return_value=[]) as pages:
        wheels.stored_names(bucket, "pytorch")
    assert {one.call_args.kwargs["ExpectedBucketOwner"] for one in (call, pages)} == {"210987654321"}


def test_many_wheels_are_all_seen(aws: Account) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="tools")
    for number in range(3):
        s3.put_object(Bucket="tools", Key="wheels/" + WHEEL.replace(PINNED, f"2.{number}.0"), Body=b"")
    assert len(wheels.stored_names(Bucket(Aws("us-east-1"), "tools", "wheels"), "pytorch")) == 3
    assert wheels.stored_names(Bucket(Aws("us-east-1"), "tools", "wheels"), "tensorpack") == set()
