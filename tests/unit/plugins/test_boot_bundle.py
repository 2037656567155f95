"""The bundle by which machines configure themselves, and their user data."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.boot import bundle
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.boot import COLLECTION
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError

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
    wheels = [tmp_path / f"{beginning}py3-none-any.whl" for beginning in bundle._pins(PINS)]
    for path in wheels:
        path.touch()
    assert bundle.download_wheels(PINS, tmp_path) == wheels


def test_without_pip_or_network_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UserError, match=r"pip cannot download .*Example: -e cluster_setup=push"):
        bundle.download_wheels(PINS, tmp_path)


def test_a_missing_collection_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ansible\.posix is not installed"):
        bundle.find_posix([str(tmp_path)], [])
