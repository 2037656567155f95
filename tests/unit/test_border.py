"""The rule of docs/security.md, held over all playbooks, roles and plugins: nothing that a node reports becomes a path,
file name, role, task, host or command on the operator's machine.

What stands here is read and not run: each place that could break the rule is on a list, with what its value is made of.
"""

from __future__ import annotations

import ast
import re
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
VARIABLE_FILES = sorted([*ROOT.glob("roles/*/vars/*.yml"), *ROOT.glob("roles/*/defaults/*.yml")])

ROLE = ("name", "role", "tasks_from", "vars_from", "defaults_from", "handlers_from")
CHOOSES: dict[str, tuple[str, ...]] = {
    "include_role": ROLE,
    "import_role": ROLE,
    "include_tasks": ("", "file"),
    "import_tasks": ("", "file"),
    "include_vars": ("", "file", "dir", "name"),
    "import_playbook": ("",),
    "add_host": ("name", "hostname", "groups"),
    "group_by": ("key",),
}
"""What modules choose a role, a task file, a playbook, a host or a group by."""
OURS = "deeplearning.aws."
FILES_HERE: dict[str, tuple[str, ...]] = {
    "code": ("script", "folder"),
    "report": ("folder",),
    "members": ("folder",),
    "health": ("file",),
    "summary": ("file",),
    "stage": ("folder", "source_dir"),
}
"""What our own actions choose files and folders of this machine by."""
KEYWORDS = (
    *("hosts", "vars_files", "action", "local_action", "delegate_to", "connection", "collections"),
    *("remote_user", "become_user", "become_method", "become_exe", "become_flags", "environment"),
)
"""Keywords of plays and tasks that say where something runs, and as what."""
CONNECTION = re.compile(
    r"ansible_(connection|host|port|user|ssh_\w+|\w*shell\w*|\w*executable|python_interpreter|become_\w+)"
)
"""Variables that say the same."""
FROM_NODES = (
    *("fetch", "slurp", "script", "raw", "synchronize", "known_hosts", "template", "copy", "assemble", "unarchive"),
)
"""Modules that move files between nodes and this machine, or run what they find: none is needed."""

CONTROLLER = "{{ ansible_playbook_python }}"
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
    # The folder that the inventory's file names, with the cluster's name; a script and a folder of the command line.
    ("playbooks/configure/meet.yml", "{{ deeplearning_folder }}"),
    ("playbooks/configure/ranks.yml", "{{ deeplearning_folder }}"),
    ("playbooks/runs/meet.yml", "{{ deeplearning_folder }}"),
    ("playbooks/runs/report.yml", "{{ deeplearning_folder }}/reports/{{ __cluster['name'] }}"),
    ("playbooks/stage.yml", "{{ stage_folder | default(deeplearning_folder ~ '/stage') }}"),
    ("playbooks/stage.yml", "{{ source_dir | default('') }}"),
    ("roles/training_run/tasks/start.yml", "{{ training_run_script_file }}"),
    ("roles/training_run/tasks/start.yml", "{{ training_run_sync | default(omit, true) }}"),
    # The settings of the cluster.
    ("playbooks/provision.yml", "{{ cluster['summary_file'] }}"),
    ("playbooks/status.yml", "{{ __status_settings['cluster']['summary_file'] }}"),
    # The Python that runs Ansible.
    *((f"playbooks/{name}.yml", CONTROLLER) for name in
      ("configure", "evaluate", "follow", "health", "plan", "provision", "report", "stage", "status", "stop",
       "tensorboard", "train")),
}  # fmt: skip


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """All maps in a file, the innermost too: plays, blocks, tasks, variables."""
    if isinstance(value, dict):
        yield {str(key): inner for key, inner in value.items()}
        for inner in value.values():
            yield from mappings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from mappings(inner)


def templates(value: Any) -> Iterator[str]:
    """All templates in a value, however deep."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from templates(inner)
    elif "{{" in str(value):
        yield str(value)


def chosen(mapping: dict[str, Any]) -> Iterator[str]:
    """The templates in what a map chooses roles, files, hosts and users by."""
    task = any("." in key or key in CHOOSES or key in ("hosts", "block", "action", "local_action") for key in mapping)
    for key, value in mapping.items():
        name = key.rpartition(".")[2]
        options = FILES_HERE.get(name, ()) if key.startswith(OURS) else CHOOSES.get(name, ())
        if options:
            arguments = value if isinstance(value, dict) else {"": value}
            for option in options:
                yield from templates(arguments.get(option, ""))
        elif key == "roles":
            yield from templates([one.get("role", one.get("name")) if isinstance(one, dict) else one for one in value])
        elif (task and key in KEYWORDS) or CONNECTION.fullmatch(key):
            yield from templates(value)


def in_files() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in TASK_FILES:
        for mapping in mappings(yaml.safe_load(path.read_text())):
            yield str(path.relative_to(ROOT)), mapping


def test_roles_tasks_hosts_and_files_are_chosen_by_nothing_but_what_is_listed_here() -> None:
    found = {(path, template) for path, mapping in in_files() for template in chosen(mapping)}
    assert found == ALLOWED


@pytest.mark.parametrize(
    "task",
    [
        {"include_role": {"name": "{{ x }}"}},
        {"ansible.builtin.include_role": {"role": "{{ x }}"}},
        {"hosts": "all", "roles": ["a", {"role": "{{ x }}"}]},
        {"hosts": "all", "vars_files": ["{{ x }}"]},
        {"action": {"module": "{{ x }}"}},
        {"local_action": "command {{ x }}"},
        {"ansible.builtin.command": "true", "remote_user": "{{ x }}"},
        {"ansible_connection": "{{ x }}"},
        {"ansible_ssh_common_args": "{{ x }}"},
        {"deeplearning.aws.report": {"folder": "{{ x }}"}},
        {"block": [], "delegate_to": "{{ x }}"},
    ],
)
def test_what_chooses_is_found(task: dict[str, Any]) -> None:
    assert [template for mapping in mappings([task]) for template in chosen(mapping)] == [
        "command {{ x }}" if "local_action" in task else "{{ x }}"
    ]


def test_no_module_is_used_that_brings_files_from_nodes_or_runs_what_it_finds() -> None:
    used = {
        (path, str(key))
        for path, mapping in in_files()
        for key in mapping
        if str(key).startswith(("ansible.builtin.", "ansible.posix.")) and str(key).rpartition(".")[2] in FROM_NODES
    }
    assert not used


# With the file that `members` has written.
COMMANDS_HERE = {("playbooks/configure/meet.yml", "ssh")}


def test_commands_of_playbooks_are_the_nodes_own_or_listed() -> None:
    here = set()
    for path, mapping in in_files():
        command = mapping.get("ansible.builtin.command")
        if command and command.get("argv", [""])[0] not in ("deeplearning", "tail") and path.startswith("playbooks/"):
            here.add((path, command["argv"][0]))
    assert here == COMMANDS_HERE


LOOKUP = re.compile(r"(?:lookup|query|q)\(\s*'([\w.]+)'\s*,\s*([^)]*)\)")
LOOKED_UP = {
    "ansible.builtin.file": ("__framework_env_files",),
    "ansible.builtin.fileglob": ("__cluster_env_sources",),
    "vars": ("'for'",),
}
"""What lookups read: files of this repository, and a variable whose name is a word of Python."""


def test_lookups_read_files_of_this_repository_alone() -> None:
    for path in [*TASK_FILES, *VARIABLE_FILES]:
        for name, argument in LOOKUP.findall(path.read_text()):
            assert argument.startswith(LOOKED_UP.get(name, ())), (path, name, argument)


PLUGINS = sorted(
    path
    for part in ("action", "plugin_utils", "inventory", "filter", "callback")
    for path in ROOT.glob(f"plugins/{part}/*.py")
)
READS_JSON = {
    "_untrusted.py": "the one reader of what nodes send",
    "_summary.py": "a file that this machine has written",
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
STARTS_PROCESSES = {
    "_program.py": "ssh, with Ansible's own options for the host; or a node's program where the connection is local",
    "tunnel.py": "the same, with a port that was parsed",
}
ON_NODES = {"_program.py": "the one way on which actions run commands on nodes, whose words are cleaned there"}


def calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


@pytest.mark.parametrize(
    ("ends", "allowed"),
    [
        (("json.loads", "json.load"), READS_JSON),
        (("getattr",), LOOKS_UP_METHODS),
        (("extractall", ".extract", "unpack_archive", "pickle.loads", "os.system", "os.popen"), {}),
        (("subprocess.run", "subprocess.Popen", "check_output", "check_call", "os.execvp"), STARTS_PROCESSES),
        (("_low_level_execute_command",), ON_NODES),
    ],
)
def test_plugins_that_could_break_the_rule_are_listed(ends: tuple[str, ...], allowed: dict[str, str]) -> None:
    found = {path.name for path in PLUGINS for call in calls(path) if call.endswith(ends)}
    assert found <= set(allowed), found - set(allowed)


def test_all_that_playbooks_print_of_nodes_was_parsed_before() -> None:
    """`from_json` is only for files of this repository."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in [*TASK_FILES, *VARIABLE_FILES]
        for line in path.read_text().splitlines()
        if "from_json" in line and "lookup('ansible.builtin.file'" not in line
    ]
    assert not found
