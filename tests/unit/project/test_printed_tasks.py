"""Tasks whose own line tells people nothing: pauses, and records that are no change of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted([*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/*/tasks/*.yml")])
Tasks = list[dict[str, Any]]


def task_lists(items: Any) -> Iterator[Tasks]:
    """All lists of tasks in a file, those of blocks too."""
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return
    yield items
    for item in items:
        for key in ("tasks", "block", "rescue", "always"):
            yield from task_lists(item.get(key))


def test_a_pause_comes_after_a_message_that_says_why() -> None:
    pauses = 0
    for path in FILES:
        for tasks in task_lists(yaml.safe_load(path.read_text(encoding="utf-8"))):
            for before, task in zip([{}, *tasks], tasks, strict=False):
                if "ansible.builtin.pause" in task:
                    pauses += 1
                    assert "ansible.builtin.debug" in before, (path, task["name"])
    assert pauses


def test_the_record_of_the_settings_is_no_change_of_the_cluster() -> None:
    provision = yaml.safe_load((ROOT / "playbooks/provision.yml").read_text(encoding="utf-8"))
    tasks = [task for listed in task_lists(provision) for task in listed]
    (record,) = [task for task in tasks if task["name"] == "Record the settings"]
    assert record["changed_when"] is False
