"""What Ansible prints of nodes by itself: errors of modules and connections."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J"
TASKS = ({"ansible.builtin.command": "true"}, {"deeplearning.aws.node_command": {"words": ["run", "stop"]}})


@pytest.mark.parametrize("task", TASKS)
def test_a_node_that_ends_the_connection_drives_no_terminal(tmp_path: Path, task: dict[str, object]) -> None:
    # As if the connection were lost: a node can have any command end so.
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nprintf '{EVIL} lost' >&2\nexit 255\n")
    ssh.chmod(0o755)
    play = {"hosts": "node", "gather_facts": False, "tasks": [{"name": "Ask", **task}]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "node,", str(tmp_path / "play.yml")],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_SSH_EXECUTABLE": str(ssh), "ANSIBLE_SSH_RETRIES": "0", "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode and "lost" in printed, printed
    assert not any(character in printed for character in "\x1b\x07")
