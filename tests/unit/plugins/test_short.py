"""What the callback `short` prints: changes, messages and failures, and nothing of the rest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
# They need no process of their own on the node.
UNCHANGED = {"ansible.builtin.assert": {"that": True}}
CHANGED = {**UNCHANGED, "changed_when": True}
PLAYS: list[dict[str, Any]] = [
    {
        "name": "Create things",
        "hosts": "red:blue",
        "tasks": [
            {"name": "Look", **UNCHANGED},
            {"name": "Skip", **CHANGED, "when": False},
            {"name": "Create", **CHANGED, "run_once": True},
            {"name": "Create all", **CHANGED, "loop": ["one", "two"], "run_once": True},
            {"name": "Include", "ansible.builtin.include_tasks": "more.yml"},
            {"name": "Print", "ansible.builtin.debug": {"msg": "first line\nsecond line"}},
            {"name": "Install (some minutes)", **UNCHANGED},
            {"name": "Wait", **UNCHANGED, "register": "waited", "until": "waited.attempts > 2", "delay": 0},
        ],
    },
    {"name": "Reach no host", "hosts": "empty", "tasks": [{"name": "Never", **CHANGED}]},
    {"name": "Try", "hosts": "red", "check_mode": True, "tasks": [{"name": "Look", **UNCHANGED}]},
    {
        "name": "Fail",
        "hosts": "red",
        "tasks": [{"name": "Look", **UNCHANGED}, {"name": "Break", "ansible.builtin.fail": {"msg": "a reason"}}],
    },
]


def play(folder: Path, *options: str) -> str:
    """Return what the plays print. The last one fails."""
    (folder / "more.yml").write_text(json.dumps([{"name": "Included", **UNCHANGED}]))
    (folder / "hosts.yml").write_text(
        json.dumps({"all": {"hosts": {"red": {}, "blue": {}}, "children": {"empty": {}}}}), encoding="utf-8"
    )
    (folder / "play.yml").write_text(json.dumps(PLAYS))
    done = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(folder / "hosts.yml")),
            *(str(folder / "play.yml"), *options),
        ],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_INVENTORY_ENABLED": "yaml"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each play prints, by its title, and the recap."""
    _begin, *parts = re.split(r"\nPLAY (.*)\n", play(tmp_path_factory.mktemp("short")))
    return {title.strip(" *"): lines for title, lines in zip(parts[::2], parts[1::2], strict=True)}


def test_changes_messages_and_long_tasks_are_a_line_each(plays: dict[str, str]) -> None:
    assert plays["[Create things]"].splitlines() == [
        "changed: [red] Create",
        "changed: [red] Create all => (item=one)",
        "changed: [red] Create all => (item=two)",
        "first line",
        "second line",
        "started: Install (some minutes)",
        "waiting: Wait",
    ]
    assert plays["RECAP"].count("changed=2") == 1


def test_a_play_without_hosts_is_not_printed_and_check_mode_is_marked(plays: dict[str, str]) -> None:
    assert list(plays) == ["[Create things]", "[Try] [CHECK MODE]", "[Fail]", "RECAP"]


def test_a_failure_is_printed_in_full(plays: dict[str, str]) -> None:
    failure = plays["[Fail]"]
    assert "TASK [Break] ***" in failure and "Look" not in failure
    assert "fatal: [red]: FAILED!" in failure and "msg: a reason" in failure


def test_v_prints_each_task(tmp_path: Path) -> None:
    output = play(tmp_path, "-v")
    for line in ("PLAY [Create things] ***", "TASK [Look] ***", "ok: [blue]", "included: ", "PLAY [Reach no host] ***"):
        assert line in output, (line, output)
