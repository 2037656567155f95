"""status.yml describes a cluster from AWS and the settings alone, and saves it in the inventory's folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import resource_of

from tests.unit.conftest import Account
from tests.unit.plugins.hostile_kit import EVIL
from tests.unit.plugins.instances_kit import instance

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inventory = {"plugin": "deeplearning.aws.cluster", "cluster": "red", "folder": str(tmp_path / "state")}
    (tmp_path / "red.deeplearning.yml").write_text(json.dumps(inventory))
    return tmp_path / "state"


def status(folder: Path) -> dict[str, Any]:
    program = Path(sys.executable).parent / "ansible-playbook"
    inventory = folder.parent / "red.deeplearning.yml"
    command = [str(program), "-i", str(inventory), str(ROOT / "status.yml")]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary: dict[str, Any] = json.loads((folder / "red.json").read_text())
    return summary


def test_the_summary_is_in_the_inventorys_folder(aws: Account, folder: Path) -> None:
    assert status(folder)["state"] == "absent"
    assert [path.name for path in folder.iterdir()] == ["red.json"]
    assert not (folder.parent / ".deeplearning").exists()


def test_nothing_is_read_back_from_an_old_summary(aws: Account, folder: Path) -> None:
    folder.mkdir()
    old = {"schema": 1, "user": "mallory", "private_key_file": "/old/key", "hourly": {"amount": 99}}
    (folder / "red.json").write_text(json.dumps(old))
    summary = status(folder)
    assert summary["state"] == "absent"
    assert (summary["user"], summary["private_key_file"], summary["hourly"]) == ("", "", {})


@pytest.mark.parametrize(("tag", "user"), [("ubuntu", "ubuntu"), ("-oProxyCommand=id", ""), (EVIL, "")])
def test_the_login_user_is_the_one_that_the_machines_are_tagged_with(tag: str, user: str) -> None:
    tags = [{"Key": "deeplearning:user", "Value": tag}]
    assert resource_of("instance", instance(1, Tags=tags), frozenset()).facts["user"] == user
