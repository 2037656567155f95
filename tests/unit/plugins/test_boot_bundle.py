"""The bundle by which machines configure themselves, and their user data."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.boot import bundle
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.boot import COLLECTION
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError

from tests.unit.conftest import Account
from tests.unit.modules import run_module

ROOT = Path(__file__).resolve().parents[3]
PINS = ROOT / "files/boot/requirements.txt"


@pytest.fixture
def posix(tmp_path: Path) -> Path:
    folder = tmp_path / bundle.POSIX
    (folder / "plugins/modules").mkdir(parents=True)
    (folder / "plugins/modules/mount.py").write_text("mount")
    return folder


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "ansible_core-2.19.14-py3-none-any.whl"
    path.write_bytes(b"wheel")
    return path


def names(archive: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: entry for entry in tar}


def test_it_holds_what_a_node_needs_and_nothing_else(posix: Path, wheel: Path) -> None:
    entries = names(bundle.build({"efs_tls": False}, ROOT, posix, [wheel]))
    assert {
        "boot.json",
        f"{COLLECTION}/playbooks/node.yml",
        f"{COLLECTION}/files/node/deeplearning/boot/first_stage.py",
        f"{COLLECTION}/files/node/deeplearning/contract/report.py",
        f"{COLLECTION}/plugins/module_utils/contract/report.py",
        f"{COLLECTION}/roles/efs_mount/tasks/main.yml",
        "collections/ansible_collections/ansible/posix/plugins/modules/mount.py",
        f"wheels/{wheel.name}",
    } <= set(entries)
    assert all(entry.isreg() and (entry.uid, entry.mtime, entry.mode) == (0, 0, 0o644) for entry in entries.values())
    strangers = ("__pycache__", ".pyc", "/tests/", "/inventory/", "roles/iam", "roles/machines", "/.git")
    assert not [name for name in entries if any(stranger in name for stranger in strangers)]


def test_the_same_files_give_the_same_bytes(posix: Path, wheel: Path) -> None:
    first = bundle.build({"a": 1, "b": 2}, ROOT, posix, [wheel])
    os.utime(wheel, (1, 1))
    wheel.chmod(0o600)
    (posix / "plugins/modules/mount.pyc").write_text("compiled")
    assert bundle.build({"b": 2, "a": 1}, ROOT, posix, [wheel]) == first
    assert bundle.build({"a": 1, "b": 3}, ROOT, posix, [wheel]) != first


def test_the_roles_of_the_bundle_are_those_that_nodes_run() -> None:
    """A role that the playbook of nodes includes is missing nowhere."""
    used = set()
    for path in [ROOT / "playbooks/node.yml", *(ROOT / "playbooks/tasks/node").glob("*.yml")]:
        used |= {
            line.split("deeplearning.aws.")[1].strip()
            for line in path.read_text().splitlines()
            if "name: deeplearning.aws." in line and "{{" not in line
        }
    packed = {part.removeprefix("roles/") for part in bundle._OWN if part.startswith("roles/")}
    assert used <= packed and {"framework", "tensorpack", "cluster_env"} <= packed


def test_user_data_is_the_program_with_its_parameters() -> None:
    program = bundle.read_program(ROOT, "first_stage.py")
    parameters = {"cluster": "red", "gpus": 8, "address": "", "role": "worker"}
    text = bundle.user_data(program, parameters)
    assert text.startswith("#!/usr/bin/env python3\n")
    line = next(line for line in text.splitlines() if line.startswith("PARAMETERS"))
    assert json.loads(line.partition("= ")[2]) == parameters
    assert len(text.encode()) <= bundle.MAX_USER_DATA
    compile(text, "user_data", "exec")


def test_user_data_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="EC2 takes 16384"):
        bundle.user_data(bundle.read_program(ROOT, "first_stage.py"), {"cluster": "x" * 16384})


def test_the_bootstrap_action_has_the_program_of_the_first_boot() -> None:
    program, wrapper = (bundle.read_program(ROOT, f"{name}.py") for name in ("first_stage", "bootstrap_action"))
    parameters = {"cluster": "red", "gpus": {"master": 0, "worker": 8}}
    text = bundle.bootstrap_action(wrapper, program, parameters)
    assigned = {
        ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target): ast.literal_eval(node.value)
        for node in ast.parse(text, feature_version=(3, 9)).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
    }
    assert (assigned["PARAMETERS"], assigned["FIRST_STAGE"]) == (parameters, program)
    assert program.count(assigned["PARAMETERS_LINE"]) == 1


def test_the_pins_are_those_of_the_operator() -> None:
    locked = (ROOT / "requirements.txt").read_text()
    for pin in [line.split()[0] for line in PINS.read_text().splitlines() if not line.startswith("#")]:
        assert f"\n{pin.lower()} " in locked, pin
    for line in PINS.read_text().splitlines():
        if not line.startswith("#"):
            assert line.split("--hash=")[1] in locked


def test_wheels_that_are_there_are_not_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_unused, **_options: pytest.fail("a download"))
    requirements, wheels = tmp_path / "requirements.txt", [tmp_path / "ansible_core-2.19.14-py3.whl"]
    wheels[0].write_bytes(b"pinned")
    requirements.write_text(f"ansible-core==2.19.14 --hash=sha256:{hashlib.sha256(b'pinned').hexdigest()}\n")
    # It sorts before the pinned one.
    (tmp_path / "ansible_core-2.19.14-0evil-py3-none-any.whl").write_bytes(b"evil")
    assert bundle.download_wheels(requirements, tmp_path) == wheels


def test_without_pip_or_network_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="pip cannot download .*or put the wheels that requirements.txt names into"):
        bundle.download_wheels(PINS, tmp_path)


def test_a_missing_collection_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ansible\.posix is not installed"):
        bundle.find_posix([str(tmp_path)], [])


# The module


BUCKET = "red-123456789012-us-east-1"
WRITES = ("s3:PutObject", "s3:CopyObject", "s3:DeleteObject")


@pytest.fixture
def options(aws: Account, tmp_path: Path, posix: Path) -> dict[str, Any]:
    """Options of the module, with a bucket and with wheels that were downloaded before."""
    aws.client("s3").create_bucket(Bucket=BUCKET)
    (tmp_path / "wheels").mkdir()
    for beginning in bundle._pins(PINS):
        (tmp_path / f"wheels/{beginning}py3-none-any.whl").write_text("wheel")
    folders = {"source": str(ROOT), "collection_paths": [str(tmp_path)], "wheels": str(tmp_path / "wheels")}
    worker = {"group": "red-workers", "role_id": "AROAWORKER", "gpus": 8, "address": ""}
    record = {"cluster": "red", "gpus": 8}
    known = {"bucket": BUCKET, "account": "123456789012", "cluster": record, "machines": {"worker": worker}}
    return {**known, **folders, "bootstrap": {"gpus": {"master": 0, "worker": 8}}}


def stored(aws: Account) -> dict[str, bytes]:
    s3 = aws.client("s3")
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
    return {key: s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}


def writes(aws: Account) -> int:
    return sum(call in WRITES for call in aws.calls())


def test_it_is_stored_under_its_checksum_and_only_once(
    aws: Account, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    checked = run_module(capsys, "boot_bundle", check=True, **options)
    assert checked["changed"] and not stored(aws) and not writes(aws)
    first = run_module(capsys, "boot_bundle", **options)
    objects = stored(aws)
    sums = {key: hashlib.sha256(body).hexdigest() for key, body in objects.items()}
    assert first["changed"] and first["sha256"] == checked["sha256"]
    bootstrap = first["bootstrap"]["sha256"]
    assert sums == {f"bundles/{first['sha256']}.tar": first["sha256"], f"bundles/{bootstrap}.py": bootstrap}
    assert len(objects[f"bundles/{first['sha256']}.tar"]) == first["size"]
    assert first["bootstrap"]["path"] == f"s3://{BUCKET}/bundles/{bootstrap}.py"
    assert first["sha256"] in first["user_data"]["worker"] and BUCKET in first["user_data"]["worker"]
    before = writes(aws)
    assert run_module(capsys, "boot_bundle", **options) == {**first, "changed": False}
    assert writes(aws) == before and stored(aws) == objects


def test_an_object_of_another_size_is_stored_again(
    aws: Account, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run_module(capsys, "boot_bundle", **options)
    objects = stored(aws)
    for key, body in objects.items():
        aws.client("s3").put_object(Bucket=BUCKET, Key=key, Body=body[:-1])
    assert run_module(capsys, "boot_bundle", **options)["changed"] and stored(aws) == objects


def test_a_bucket_of_another_account_gets_nothing(
    aws: Account, options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    refused = run_module(capsys, "boot_bundle", **{**options, "account": "210987654321"})
    assert refused["failed"] and not stored(aws)
