"""Run a playbook of the bundle on this machine, and follow its output."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deeplearning.boot import system
from deeplearning.boot.machine import OwnMachine
from deeplearning.contract.boot import COLLECTION, FOLDER, LOG
from deeplearning.contract.errors import UserError
from deeplearning.contract.report import MAX_LINES

TASK = re.compile(r"TASK \[(?:(?:[\w.]+\.)?(?P<role>\w+) : )?.*\] \**$")
MAIN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ansible.cli.playbook import main; sys.exit(main())"
"""Not by PYTHONPATH: modules run in the system's Python, which may be another one."""


LOCAL = {
    "ansible_connection": "local",
    "ansible_python_interpreter": "/usr/bin/python3",
    "ansible_become": False,
}
"""Variables that win over those of plays and roles."""


def variables(
    settings: Mapping[str, Any], parameters: Mapping[str, Any], private_name: str, private_address: str
) -> dict[str, Any]:
    """Return the variables of node.yml."""
    cluster = {**settings["cluster"], "bundle": parameters["sha256"], "job_flow": parameters.get("job_flow", "")}
    return {
        **settings["variables"],
        **LOCAL,
        "node_hosts": "all",
        "node_cluster": cluster,
        "node_efs_tls": settings["efs_tls"],
        "deeplearning_role": parameters["role"],
        "deeplearning_gpus": parameters["gpus"],
        "deeplearning_private_name": private_name,
        "deeplearning_private_address": private_address,
    }


def environment(folder: str) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "DEBIAN_FRONTEND": "noninteractive",
        "NEEDRESTART_SUSPEND": "1",
        "ANSIBLE_HOME": f"{FOLDER}/ansible",
        "ANSIBLE_COLLECTIONS_PATH": f"{folder}/collections",
        "ANSIBLE_INVENTORY_ENABLED": "ansible.builtin.host_list",
        "ANSIBLE_INJECT_FACT_VARS": "false",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
        "ANSIBLE_DEPRECATION_WARNINGS": "false",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_NOCOLOR": "1",
    }


def play(
    name: str, machine: OwnMachine, folder: str, extra_variables: Mapping[str, Any], begin: Callable[[str], None]
) -> None:
    """Run a playbook by the bundle's Ansible. `begin`: called with each step.

    Raise UserError with its last lines if it fails.
    """
    python, wheels = system.find_python(machine.log), system.unpack_wheels(folder)
    playbook, variables_file = f"{folder}/{COLLECTION}/playbooks/{name}", f"{folder}/variables.json"
    with open(variables_file, "w", encoding="utf-8") as file:
        json.dump(extra_variables, file)
    with subprocess.Popen(
        [python, "-I", "-c", MAIN, wheels, "-i", f"{machine.instance_id},", "-e", f"@{variables_file}", playbook],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        lines = follow(process.stdout or (), begin)
    if process.returncode:
        raise UserError("\n".join(lines))


def follow(output: Iterable[str], begin: Callable[[str], None]) -> list[str]:
    """Write the output to the log, report its steps, and return its last lines."""
    last: deque[str] = deque(maxlen=MAX_LINES)
    is_recap = False
    with open(LOG, "a", encoding="utf-8") as log:
        for line in output:
            log.write(line)
            log.flush()
            if task := TASK.match(line):
                # Nothing for the playbook's own tasks.
                begin(task["role"] or "")
                last.clear()
            is_recap = is_recap or line.startswith("PLAY RECAP")
            if line.strip() and not is_recap:
                last.append(line.rstrip())
    return list(last)
