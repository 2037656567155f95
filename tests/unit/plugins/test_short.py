"""What the callback `short` prints: changes, messages and failures, and nothing of the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
TRUE, FALSE = {"ansible.builtin.command": "true"}, {"ansible.builtin.command": "false"}
UNCHANGED = {**TRUE, "changed_when": False}
PLAYS: list[dict[str, Any]] = [
    {
        "name": "Create things",
        "hosts": "red:blue",
        "tasks": [
            {"name": "Look", **UNCHANGED},
            {"name": "Skip", **TRUE, "when": False},
            {"name": "Create", **TRUE, "run_once": True},
            {"name": "Create all", **TRUE, "loop": ["one", "two"], "run_once": True},
            {"name": "Include", "ansible.builtin.include_tasks": "more.yml"},
            {"name": "Print", "ansible.builtin.debug": {"msg": "first line\nsecond line"}},
            {"name": "Install (some minutes)", **UNCHANGED},
            {"name": "Wait", **UNCHANGED, "register": "waited", "until": "waited.attempts > 2", "delay": 0},
        ],
    },
    {"name": "Reach no host", "hosts": "empty", "tasks": [{"name": "Never", **TRUE}]},
]
FAILS = [{"name": "Fail", "hosts": "red", "tasks": [{"name": "Look", **UNCHANGED}, {"name": "Break", **FALSE}]}]


def play(folder: Path, plays: list[dict[str, Any]], *options: str) -> tuple[int, str]:
    (folder / "more.yml").write_text(json.dumps([{"name": "Included", **UNCHANGED}]))
    (folder / "hosts.yml").write_text(
        json.dumps({"all": {"hosts": {"red": {}, "blue": {}}, "children": {"empty": {}}}}), encoding="utf-8"
    )
    (folder / "play.yml").write_text(json.dumps(plays))
    python = json.dumps({"ansible_python_interpreter": sys.executable, "ansible_connection": "local"})
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(folder / "hosts.yml"), "-e", python),
            *(str(folder / "play.yml"), *options),
        ],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_INVENTORY_ENABLED": "yaml"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_changes_messages_and_long_tasks_are_a_line_each(tmp_path: Path) -> None:
    code, output = play(tmp_path, PLAYS)
    assert code == 0, output
    assert output.partition("\nPLAY RECAP")[0].splitlines() == [
        "",
        "PLAY [Create things]",
        "changed: [red] Create",
        "changed: [red] Create all => (item=one)",
        "changed: [red] Create all => (item=two)",
        "first line",
        "second line",
        "started: Install (some minutes)",
        "waiting: Wait",
    ]
    assert output.count("changed=2") == 1


def test_a_failure_is_printed_in_full(tmp_path: Path) -> None:
    code, output = play(tmp_path, FAILS)
    assert code == 2
    assert "TASK [Break] ***" in output and "Look" not in output
    assert "fatal: [red]: FAILED!" in output and "non-zero return code" in output


def test_v_prints_each_task(tmp_path: Path) -> None:
    code, output = play(tmp_path, PLAYS, "-v")
    assert code == 0, output
    for line in ("PLAY [Create things] ***", "TASK [Look] ***", "ok: [blue]", "included: ", "PLAY [Reach no host] ***"):
        assert line in output, (line, output)


def test_check_mode_is_marked(tmp_path: Path) -> None:
    output = play(tmp_path, PLAYS, "--check")[1]
    assert "PLAY [Create things] [CHECK MODE]" in output
