"""The action `node_command`: what it sends, shows and returns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.action.node_command import ActionModule
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_program

ROOT = Path(__file__).resolve().parents[4]
PLAY = {
    "hosts": "localhost",
    "gather_facts": False,
    "tasks": [
        {
            "name": "Make the run",
            "deeplearning.aws.node_command": {
                "words": ["run", "create"],
                "request": {"SECRET": "{{ secret }}"},
                "code": {"script": "git+http://me:{{ secret }}@127.0.0.1:1/models.git@v1:train.py"},
                "writes": True,
            },
        }
    ],
}


@pytest.mark.parametrize("options", [[], ["--check"], ["-vvv"]])
def test_a_request_is_not_shown_even_where_arguments_of_tasks_are(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "play.yml").write_text(json.dumps([PLAY]))
    (tmp_path / "secret.yml").write_text("secret: hunter2")
    words = ["-i", "localhost,", "-c", "local", "-e", f"@{tmp_path}/secret.yml", *options, str(tmp_path / "play.yml")]
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), *words],
        cwd=ROOT,
        env={
            **os.environ,
            "ANSIBLE_DISPLAY_ARGS_TO_STDOUT": "1",
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "request=<hidden>" in done.stdout and "models.git at v1 could not be cloned" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def run(**options: Any) -> dict[str, Any]:
    """Run the action against this machine."""
    task = SimpleNamespace(args=options, async_val=0, check_mode=False, delegate_to=None, action="node_command")
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="/tmp"), transport="local")
    action = ActionModule(task, connection, SimpleNamespace(become=False), None, None, None)
    return action.run(None, {"inventory_hostname": "n"})


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prints progress, then an answer whose path is the program's input."""
    file = tmp_path / "deeplearning"
    progress = '{"event": "progress", "done": 1048576, "total": 0}'
    file.write_text(f"""#!/bin/sh\necho '{progress}'\nprintf '{{"path": "/%s"}}\\n' "$(cat)"\n""")
    file.chmod(0o755)
    monkeypatch.setattr(node_program, "PROGRAM", str(file))
    return file


def test_a_file_is_sent_from_an_offset_while_progress_is_shown(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").write_bytes(b"before" + b"after")
    sent = run(words=["data", "receive"], stdin_file=str(tmp_path / "data"), stdin_offset=6, stream=True, writes=True)
    assert sent == {"changed": True, "answer": {"path": "/after"}}
    assert "n: 1048582 of 11 bytes" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_a_sentence(program: Path) -> None:
    sent = run(words=["data", "receive"], stdin_file="/nowhere/data", stream=True)
    assert sent == {"failed": True, "msg": "/nowhere/data cannot be read: No such file or directory."}


def test_a_stream_whose_answer_has_another_form_is_refused(program: Path) -> None:
    sent = run(words=["data", "stage"], stream=True)
    assert sent["failed"] and "n answered `deeplearning data stage` with something unexpected (changed" in sent["msg"]
