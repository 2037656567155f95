"""The rule of docs/security.md, held over all playbooks, roles and plugins: nothing that a node reports becomes a path,
file name, role, task, host or command on the operator's machine.

What stands here is read and not run: each place that could break the rule is on a list, with what its value is made of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TASK_FILES = sorted(
    path
    for pattern in ("*.yml", "playbooks/**/*.yml", "roles/*/tasks/*.yml", "roles/*/handlers/*.yml")
    for path in ROOT.glob(pattern)
    if path.parent != ROOT or not path.name.startswith((".", "galaxy", "requirements"))
)

CHOOSES: dict[str, tuple[str, ...]] = {
    "include_role": ("name", "tasks_from", "vars_from", "defaults_from"),
    "import_role": ("name", "tasks_from", "vars_from", "defaults_from"),
    "include_tasks": ("", "file"),
    "import_tasks": ("", "file"),
    "include_vars": ("", "file", "dir", "name"),
    "import_playbook": ("",),
    "add_host": ("name", "hostname", "groups"),
    "group_by": ("key",),
}
"""What modules choose a role, a task file, a playbook, a host or a group by."""
KEYWORDS = ("delegate_to", "hosts", "connection", "become_user", "environment", "collections")
"""Keywords of plays and tasks that say where something runs, and as what."""
FROM_NODES = ("fetch", "slurp", "script", "raw", "synchronize", "known_hosts", "template", "assemble", "unarchive")
"""Modules that move files between nodes and this machine, or run what they find: none is needed."""

ALLOWED = {
    # Roles by the state that their caller wants: argument_specs has the choices.
    *((f"roles/{name}/tasks/main.yml", f"{{{{ {name}_state }}}}.yml") for name in
      ("artifacts", "cluster_env", "efs_mount", "framework_env", "identity", "network", "node_groups", "storage")),
    # A table; a role that is not in it ends the play.
    ("playbooks/train.yml", "{{ __framework_roles[__framework] }}"),
    # The operator's setting cluster_default_framework, one of four.
    ("playbooks/node/framework.yml", "deeplearning.aws.{{ __framework }}"),
    # The inventory's names: made of ranks and instance ids, which are matched against patterns.
    ("playbooks/train.yml", "{{ groups['master'][0] }}"),
    ("playbooks/runs/status.yml", "{{ groups['master'][0] }}"),
    ("playbooks/runs/nodes.yml", "{{ item }}"),
    # The operator's own choice of hosts, or the inventory's groups.
    ("playbooks/node.yml", "{{ node_hosts | default('cluster:joining') }}"),
    # One of two words.
    ("playbooks/configure.yml", "{{ 'configured' if __applied['listed'] else 'unlisted' }}"),
}  # fmt: skip


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """All maps in a file, the innermost too: plays, blocks, tasks."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from mappings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from mappings(inner)


def chosen(task: dict[str, Any]) -> Iterator[str]:
    """The templates in what a play or a task chooses roles, files, hosts and users by."""
    if not any("." in str(key) or key in ("hosts", "block") for key in task):
        return
    for key, value in task.items():
        name = str(key).rpartition(".")[2]
        if name in CHOOSES:
            arguments = value if isinstance(value, dict) else {"": value}
            yield from (str(arguments[option]) for option in CHOOSES[name] if "{{" in str(arguments.get(option, "")))
        elif key in KEYWORDS and "{{" in str(value):
            yield str(value)


def test_roles_tasks_and_hosts_are_chosen_by_nothing_but_what_is_listed_here() -> None:
    found = {
        (str(path.relative_to(ROOT)), template)
        for path in TASK_FILES
        for mapping in mappings(yaml.safe_load(path.read_text()))
        for template in chosen(mapping)
    }
    assert found == ALLOWED


def test_no_module_is_used_that_brings_files_from_nodes_or_runs_what_it_finds() -> None:
    used = {
        (str(path.relative_to(ROOT)), str(key))
        for path in TASK_FILES
        for mapping in mappings(yaml.safe_load(path.read_text()))
        for key in mapping
        if str(key).startswith(("ansible.builtin.", "ansible.posix.")) and str(key).rpartition(".")[2] in FROM_NODES
    }
    assert not used


PLUGINS = sorted(
    path for part in ("action", "plugin_utils", "inventory", "filter") for path in ROOT.glob(f"plugins/{part}/*.py")
)
READS_JSON = {
    "_untrusted.py": "the one reader of what nodes send",
    "_summary.py": "options of the command line, and a file that this machine has written",
    "_values.py": "settings",
    "_stage.py": "a manifest in the operator's bucket, which is compared with the operator's own",
}
LOOKS_UP_METHODS = {
    "_teardown.py": "by the kind of a resource, a name of our own",
    "_settings.py": "of a reader of a setting",
    "_values.py": "of a reader of a setting",
    "_stage.py": "of an error",
    "_watching.py": "of an answer of AWS",
}


def calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


@pytest.mark.parametrize(
    ("ends", "allowed"),
    [
        (("json.loads", "json.load"), READS_JSON),
        (("getattr",), LOOKS_UP_METHODS),
        (("extractall", ".extract", "unpack_archive", "pickle.loads", "eval", "exec", "os.system"), {}),
    ],
)
def test_plugins_that_read_what_may_come_from_nodes_are_listed(ends: tuple[str, ...], allowed: dict[str, str]) -> None:
    found = {path.name for path in PLUGINS for call in calls(path) if call.endswith(ends)}
    assert found <= set(allowed), found - set(allowed)


def test_all_that_playbooks_print_of_nodes_was_parsed_before() -> None:
    """`from_json` is only for files of this repository."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in [*TASK_FILES, *ROOT.glob("roles/*/vars/*.yml")]
        for line in path.read_text().splitlines()
        if "from_json" in line and "lookup('ansible.builtin.file'" not in line
    ]
    assert not found
