"""What the task that asks a node shows of what it asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLAY = {
    "hosts": "localhost",
    "gather_facts": False,
    "tasks": [
        {
            "name": "Make the run",
            "deeplearning.aws.ask": {"words": ["run", "create"], "request": {"SECRET": "{{ secret }}"}, "writes": True},
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
        env={**os.environ, "ANSIBLE_DISPLAY_ARGS_TO_STDOUT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "request=<hidden>" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr
