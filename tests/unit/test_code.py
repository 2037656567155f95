"""The action `code`: a script to a folder of a node that nobody else can write in."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.action import code
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _program

ROOT = Path(__file__).resolve().parents[2]
Send = Callable[[], dict[str, Any]]


@pytest.fixture
def efs(tmp_path: Path) -> Path:
    (tmp_path / "efs").mkdir()
    return tmp_path / "efs"


@pytest.fixture
def send(tmp_path: Path, efs: Path, monkeypatch: pytest.MonkeyPatch) -> Send:
    """Sends a script and the folder that it is in; the node is this machine, with a program of its own."""
    program = tmp_path / "deeplearning"
    program.write_text(
        f"""#!{sys.executable}
import sys
from types import SimpleNamespace
sys.path.insert(0, {str(ROOT / "files/node")!r})
from deeplearning import Refusal
from deeplearning.run.create import incoming
assert sys.argv[1:3] == ["run", "incoming"], sys.argv
try:
    incoming(sys.argv[3], SimpleNamespace(efs_mount={str(efs)!r}, cluster="red"))
except Refusal as refusal:
    sys.exit(f"deeplearning: {{refusal}}")
"""
    )
    program.chmod(0o755)
    monkeypatch.setattr(_program, "PROGRAM", str(program))
    (tmp_path / "src/models").mkdir(parents=True)
    (tmp_path / "src/train.py").write_text("train")
    (tmp_path / "src/models/net.py").write_text("net")
    into = f"{efs}/runs/red/.incoming"
    arguments = {"script": f"{tmp_path}/src/train.py", "folder": f"{tmp_path}/src", "into": into}
    task = SimpleNamespace(args=arguments, async_val=0, check_mode=False, diff=False, environment=[])
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="/tmp"))
    action = code.ActionModule(task, connection, SimpleNamespace(check_mode=False), None, None, None)

    def execute(command: str, sudoable: bool, in_data: bytes) -> dict[str, Any]:
        ran = subprocess.run(["/bin/sh", "-c", command], input=in_data, capture_output=True, check=False)
        return {"rc": ran.returncode, "stdout": ran.stdout.decode(), "stderr": ran.stderr.decode()}

    monkeypatch.setattr(action, "_low_level_execute_command", execute)
    monkeypatch.setattr(action, "validate_argument_spec", lambda argument_spec: (None, arguments))
    return lambda: dict(action.run(None, {"inventory_hostname": "deeplearning-master"}))


def test_a_script_comes_with_its_folder_to_where_only_its_user_comes(send: Send, efs: Path) -> None:
    sent = send()
    assert sent["changed"] and sent["script"] == "train.py", sent
    assert Path(sent["path"], "train.py").read_text() == "train"
    assert Path(sent["path"], "models/net.py").read_text() == "net"
    assert Path(sent["path"]).parent == efs / "runs/red/.incoming"
    assert (efs / "runs/red/.incoming").stat().st_mode & 0o7777 == 0o700


def test_what_no_run_has_taken_is_removed_after_an_hour(send: Send, efs: Path) -> None:
    first = send()["path"]
    os.utime(first, times=(time.time() - 4000,) * 2)
    second = send()["path"]
    assert os.listdir(efs / "runs/red/.incoming") == [Path(second).name]


@pytest.mark.parametrize("prepared", ["runs", "runs/red", "runs/red/.incoming"])
def test_a_folder_that_others_may_write_is_refused_and_nothing_is_sent(send: Send, efs: Path, prepared: str) -> None:
    (efs / prepared / "theirs").mkdir(parents=True)
    (efs / prepared).chmod(0o777)
    sent = send()
    assert sent["failed"] and f"{efs}/{prepared} has mode 0777" in sent["msg"] and "Example: sudo chmod" in sent["msg"]
    assert not [path for path in efs.rglob("*") if path.is_file()]


def test_a_link_is_refused_and_nothing_comes_to_where_it_leads(send: Send, efs: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (efs / "runs/red").mkdir(parents=True)
    (efs / "runs").chmod(0o1777)
    (efs / "runs/red/.incoming").symlink_to(tmp_path / "victim")
    sent = send()
    assert sent["failed"] and "runs/red/.incoming is a link" in sent["msg"]
    assert os.listdir(tmp_path / "victim") == []


def test_a_node_without_the_program_is_a_sentence(send: Send, efs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_program, "PROGRAM", "/nowhere/deeplearning")
    sent = send()
    assert sent["failed"] and "deeplearning-master has no command deeplearning: run configure.yml" in sent["msg"]
    assert os.listdir(efs) == []


def test_an_archive_that_does_not_unpack_leaves_nothing(send: Send, efs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        code._code, "pack", lambda script, folder: SimpleNamespace(archive=b"broken", script="train.py")
    )
    sent = send()
    assert sent["failed"] and "cannot be sent to" in sent["msg"] and "Traceback" not in sent["msg"]
    assert os.listdir(efs / "runs/red/.incoming") == []
