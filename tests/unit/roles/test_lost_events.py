"""A run that is killed loses what it was about to do because something changed. So nothing may depend on that alone.

What has to be done is read from the state of things. A handler, or a condition on a change, is listed here with the
reason why a later run makes up for a lost one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(path for pattern in ("playbooks/**/*.yml", "roles/**/*.yml") for path in ROOT.glob(pattern))
HANDLERS: dict[str, str] = {}
"""By file and name, the reason."""
CONDITIONS = {
    "roles/cluster_env/tasks/present.yml: present | Start the timers, and enable them": (
        "Only in check mode, which is not run again: what is yet to be installed cannot be started."
    ),
    "roles/efs_mount/tasks/present.yml: present | Reload systemd, so that it reads /etc/fstab": (
        "It is also done when systemd itself says that it has not read the file (systemd_follows)."
    ),
    "playbooks/stage.yml: End the play if the target is the bucket": (
        "Only in check mode, which is not run again: nothing is in the bucket yet."
    ),
}
CHANGED = re.compile(r"\bis (not )?changed\b|\.changed\b|\[['\"]changed['\"]\]")


def items(value: Any) -> Iterator[dict[str, Any]]:
    """The plays, blocks and tasks in a file."""
    for task in value if isinstance(value, list) else []:
        if isinstance(task, dict):
            yield task
            for name in ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"):
                yield from items(task.get(name))


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, str):
        yield value


def handlers(path: Path, content: Any) -> list[str]:
    place = path.relative_to(ROOT)
    results = [
        f"{place}: {item.get('name')}" for item in items(content) if {"notify", "listen", "handlers"} & item.keys()
    ]
    return results + ([f"{place}: all of it"] if path.parent.name == "handlers" else [])


def conditions(path: Path, content: Any) -> list[str]:
    """The tasks that look at a change for anything but for saying whether they have changed something themselves."""
    inner = ("changed_when", "tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always")
    return [
        f"{path.relative_to(ROOT)}: {item.get('name')}"
        for item in items(content)
        if any(map(CHANGED.search, texts({name: value for name, value in item.items() if name not in inner})))
    ]


@pytest.mark.parametrize(("look", "listed"), [(handlers, HANDLERS), (conditions, CONDITIONS)])
def test_only_listed_tasks_depend_on_a_change(look: Any, listed: dict[str, str]) -> None:
    results = [line for path in FILES for line in look(path, yaml.safe_load(path.read_text(encoding="utf-8")))]
    assert sorted(results) == sorted(listed)


def test_the_search_finds_handlers_and_conditions() -> None:
    path = ROOT / "roles/some/tasks/main.yml"
    task = {"name": "x", "copy": {"dest": "/x"}, "notify": "Reload it"}
    assert handlers(path, [{"block": [task]}]) == ["roles/some/tasks/main.yml: x"]
    assert handlers(ROOT / "roles/some/handlers/main.yml", [{"name": "Reload it"}])
    for written in ("x is changed", "x is not changed", "x.changed", "x['changed']", '{{ y if x["changed"] else z }}'):
        assert conditions(path, [{"name": "x", "when": [written]}]) == ["roles/some/tasks/main.yml: x"]
        assert conditions(path, [{"name": "x", "service": {"state": written}}])
        assert not conditions(path, [{"name": "x", "changed_when": written}])
