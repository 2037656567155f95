"""The rule of docs/security.md, held over all playbooks, roles and plugins: nothing that a node reports becomes a path,
file name, role, task, host or command on the operator's machine.

What stands here is read and not run: each place that could break the rule is on a list, with what its value is made of.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
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
    "copy": ("src", "dest"),
    "add_host": ("name", "hostname", "groups"),
    "group_by": ("key",),
}
"""What modules choose a role, a task file, a playbook, a host or a group by."""
OURS = "deeplearning.aws."
FILES_HERE: dict[str, tuple[str, ...]] = {
    "node_command": ("code", "stdin_file"),
    "run_report": ("folder",),
    "discover_members": ("folder",),
    "cluster_info": ("file",),
    "stage_dataset": ("folder", "source_dir"),
    "fetch_results": ("folder", "to"),
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
FROM_NODES = (*("fetch", "slurp", "script", "raw", "synchronize", "known_hosts", "template", "assemble", "unarchive"),)
"""Modules that move files between nodes and this machine, or run what they find: none is needed."""

CONTROLLER = "{{ ansible_playbook_python }}"
ALLOWED = {
    # Roles by the state that their caller wants: argument_specs has the choices.
    *((f"roles/{name}/tasks/main.yml", f"{{{{ {name}_state }}}}.yml") for name in
      ("cluster_env", "efs_mount", "framework", "monitoring")),
    # The inventory's names: made of ranks and instance ids, which are matched against patterns.
    ("playbooks/train.yml", "{{ groups['master'][0] }}"),
    ("playbooks/tasks/runs/status.yml", "{{ groups['master'][0] }}"),
    ("playbooks/train.yml", "{{ item }}"),
    # The operator's own choice of hosts, or the inventory's groups.
    ("playbooks/node.yml", "{{ node_hosts | default('cluster:joining') }}"),
    # Groups and names of the inventory, or none.
    ("playbooks/configure.yml",
     "{{ 'master' if hostvars['localhost']['configure_hosts'] | default('') else 'all:!all' }}"),
    ("playbooks/configure.yml",
     "{{ (hostvars['localhost']['configure_selected'] if hostvars['localhost']['configure_hosts'] | default('') "
     "else []) | join(',') or 'all:!all' }}"),
    # One of two words.
    ("playbooks/configure.yml", "{{ 'configured' if __applied['listed'] else 'unlisted' }}"),
    # The folder that the inventory's file names, with the cluster's name; a script and a folder of the command line.
    ("playbooks/tasks/host_keys.yml", "{{ deeplearning_folder }}"),
    ("playbooks/tasks/runs/report.yml", "{{ deeplearning_folder }}/reports/{{ __cluster['name'] }}"),
    ("playbooks/get.yml", "{{ deeplearning_folder }}/get/{{ __cluster['name'] }}"),
    ("playbooks/get.yml", "{{ __options['to'] }}"),
    ("playbooks/health.yml", "{{ __file }}"),
    ("playbooks/stage.yml", "{{ checked['options']['stage_folder'] or deeplearning_folder ~ '/stage' }}"),
    ("playbooks/stage.yml", "{{ checked['options']['source_dir'] }}"),
    ("roles/training_run/tasks/start.yml", "{{ __training_run_code if training_run_script_file else omit }}"),
    ("playbooks/tasks/runs/dataset.yml", "{{ dataset_source }}"),
    ("playbooks/new_project.yml", "{{ __folder }}/{{ item.path }}"),
    # The settings of the cluster.
    ("playbooks/provision.yml", "{{ cluster['summary_file'] }}"),
    ("playbooks/audit.yml", "{{ checked['cluster']['summary_file'] }}"),
    ("playbooks/status.yml", "{{ checked['cluster']['summary_file'] }}"),
    ("playbooks/extend.yml", "{{ cluster['summary_file'] }}"),
    ("playbooks/replace.yml", "{{ cluster['summary_file'] }}"),
    # The Python that runs Ansible.
    ("playbooks/tasks/runs/dataset.yml", CONTROLLER),
    *((f"playbooks/{name}.yml", CONTROLLER) for name in ("extend", "image", "plan", "provision", "replace", "stage")),
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
            yield from templates(
                [entry.get("role", entry.get("name")) if isinstance(entry, dict) else entry for entry in value]
            )
        elif (task and key in KEYWORDS) or CONNECTION.fullmatch(key):
            yield from templates(value)


def in_files() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in TASK_FILES:
        for mapping in mappings(yaml.safe_load(path.read_text())):
            yield str(path.relative_to(ROOT)), mapping


def test_roles_tasks_hosts_and_files_are_chosen_by_nothing_but_what_is_listed_here() -> None:
    actual = {(path, template) for path, mapping in in_files() for template in chosen(mapping)}
    assert actual == ALLOWED


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
        {"deeplearning.aws.run_report": {"folder": "{{ x }}"}},
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
        if str(key).startswith(("ansible.builtin.", "ansible.posix."))
        and str(key).rpartition(".")[2] in FROM_NODES
        or str(key) == "ansible.builtin.copy"
        and "content" not in mapping[key]
    }
    assert not used


# ssh, with the file that `discover_members` has written. Of what it prints, 64 KiB are read.
COMMANDS_HERE = {("playbooks/tasks/discover.yml", "bash")}


def test_playbooks_ask_nodes_nothing_without_a_limit() -> None:
    """Ansible's own connection has neither a limit nor a deadline: nodes are asked by node_command."""
    own = ("command", "shell", "expect")
    here = {
        (path, mapping[key]["argv"][0])
        for path, mapping in in_files()
        for key in mapping
        if path.startswith("playbooks/")
        and key in {name for module in own for name in (module, f"ansible.builtin.{module}")}
    }
    assert here == COMMANDS_HERE


@pytest.mark.parametrize(
    ("script", "ends_well", "printed"),
    [
        ("exit 0", True, b""),
        ("cat /dev/zero | head -c 10000000; exit 0", True, b""),
        ("echo denied >&2; exit 255", False, b"denied\n"),
        ("exec cat /dev/zero >&2", False, bytes(65536)),
    ],
)
def test_of_the_first_login_a_limited_part_is_read(
    tmp_path: Path, script: str, ends_well: bool, printed: bytes
) -> None:
    tasks = yaml.safe_load((ROOT / "playbooks/tasks/discover.yml").read_text())
    (command,) = [task["ansible.builtin.command"]["argv"] for task in tasks if "ansible.builtin.command" in task]
    words = [word.replace("{{ __ssh_config }}", "the config") for word in command]
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\n[ "$1 $2" = "-F the config" ] || exit 9\n{script}\n')
    ssh.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = subprocess.run(words, capture_output=True, env=environment, timeout=60)
    assert ((ended.returncode == 0), ended.stdout, ended.stderr) == (ends_well, b"", printed)


LOOKUP = re.compile(r"(?:lookup|query|q)\(\s*'([\w.]+)'\s*,\s*([^)]*)\)")
LOOKED_UP = {
    "ansible.builtin.file": ("framework_name ~ '/", "__collection ~ '/"),
    "ansible.builtin.fileglob": ("__cluster_env_sources",),
    "ansible.builtin.config": ("'COLLECTIONS_PATHS'", "'DEFAULT_LOCAL_TMP'"),
    "ansible.builtin.inventory_hostnames": ("deeplearning_limit",),
    "ansible.builtin.vars": ("__framework ~ '_source'",),
    "vars": ("'for'",),
}
"""What lookups read: files of this repository (the role framework refuses other names than its own), the sources of a
framework of ours, a variable whose name is a word of Python, where Ansible searches for collections and has its
temporary files, and the names of the inventory that --limit selects."""


def test_lookups_read_files_of_this_repository_alone() -> None:
    for path in [*TASK_FILES, *VARIABLE_FILES]:
        for name, argument in LOOKUP.findall(path.read_text()):
            assert argument.startswith(LOOKED_UP.get(name, ())), (path, name, argument)


PLUGINS = sorted(
    path
    for part in ("action", "plugin_utils", "inventory", "filter", "callback")
    for path in ROOT.glob(f"plugins/{part}/**/*.py")
)
READS_JSON = {
    "untrusted.py": "the one reader of what nodes send",
    "readers.py": "settings",
    "core.py: gpu_tables": "files of this repository",
    "core.py: node_config": "a value of a playbook, copied without Ansible's tags",
    "first_fetches.py": "records in the operator's own folder, whose form is checked",
    "recorded_settings.py": "the record of site.yml, where members cannot write, validated like what is given",
    "recorded_place.py": "a summary in the operator's own folder, of which a region that the SDK knows is used, and a "
    "number of an account",
    "bucket.py": "a manifest in the operator's bucket, which is compared with the operator's own",
}
LOOKS_UP_METHODS = {
    "teardown.py": "by the kind of a resource, a name of our own",
    "core.py: contract": "of the contract, by names that roles and playbooks write",
    "option.py": "of a reader of a setting",
    "readers.py": "of a reader of a setting",
    "keeper.py": "of Python's module time: a clock that only Linux has",
    "upload.py": "of an error",
    "capacity_watcher.py": "of an answer of AWS",
    "short.py": "of Ansible's own callback, by the name of ours",
    "failures.py": "of Ansible's own block",
}
STARTS_PROCESSES = {
    "node_program.py": "the only way in which actions run commands on nodes: ssh, with a limit and a deadline",
    "git_clone.py": "git, for the repository that the operator names",
}


def calls(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each call with its place: the file, and for filters, which share one, the function."""
    for part in ast.parse(path.read_text()).body:
        place = f"{path.name}: {getattr(part, 'name', '')}" if path.parent.name == "filter" else path.name
        for node in ast.walk(part):
            if isinstance(node, ast.Call):
                yield place, ast.unparse(node.func)


@pytest.mark.parametrize(
    ("ends", "allowed"),
    [
        (("json.loads", "json.load"), READS_JSON),
        (("getattr",), LOOKS_UP_METHODS),
        (("extractall", ".extract", "unpack_archive", "pickle.loads", "os.system", "os.popen"), {}),
        (("subprocess.run", "subprocess.Popen", "check_output", "check_call", "os.execvp"), STARTS_PROCESSES),
        # Neither has a limit, nor a deadline.
        (("_low_level_execute_command", "_connection.exec_command"), {}),
    ],
)
def test_plugins_that_could_break_the_rule_are_listed(ends: tuple[str, ...], allowed: dict[str, str]) -> None:
    callers = {place for path in PLUGINS for place, call in calls(path) if call.endswith(ends)}
    assert callers <= set(allowed), callers - set(allowed)


def test_all_that_playbooks_print_of_nodes_was_parsed_before() -> None:
    """`from_json` is only for files of this repository."""
    problems = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in [*TASK_FILES, *VARIABLE_FILES]
        for line in path.read_text().splitlines()
        if "from_json" in line and "lookup('ansible.builtin.file'" not in line
    ]
    assert not problems


def test_nodes_run_no_git_and_no_playbook_forwards_the_agent() -> None:
    """The operator's machine clones, with credentials that stay there."""
    programs = [path for path in (ROOT / "files/node").rglob("*.py") if re.search("[\"']git[\"']", path.read_text())]
    ours = [path for folder in ("plugins", "playbooks", "roles") for path in (ROOT / folder).rglob("*.*")]
    forwarding = [path for path in ours if path.suffix in (".py", ".yml") and "ForwardAgent=yes" in path.read_text()]
    assert programs == forwarding == []
