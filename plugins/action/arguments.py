# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Checks what a playbook of runs was given. Its documentation is in plugins/modules/arguments.py."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars
from ansible_collections.deeplearning.aws.plugins.module_utils._telling import told
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _arguments, _settings

ROLES = Path(__file__).resolve().parents[2] / "roles"


class ActionModule(ActionBase):  # type: ignore[misc]
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        spec = {"playbook": {"type": "str", "required": True, "choices": list(_arguments.PLAYBOOKS)}}
        playbook = self.validate_argument_spec(argument_spec=spec)[1]["playbook"]
        variables = task_vars or {}
        if variables.get("deeplearning_problem"):
            raise AnsibleActionFail(str(variables["deeplearning_problem"]))
        settings, problems = self._resolved({name for name in variables if _settings.is_setting(name)}, variables)
        checked = _settings.check(settings, creating=False)
        given, unresolved = self._resolved(set(_arguments.of_playbook(playbook)) & set(variables), variables)
        cluster = checked.cluster
        arguments = _arguments.check(
            playbook, given, cluster.get("default_framework") or "", cluster.get("efs_mount") or "/efs"
        )
        extra = load_extra_vars(self._loader)
        problems += checked.problems + unresolved + arguments.problems
        problems += _arguments.unknown(playbook, extra, _begins())
        if problems:
            raise AnsibleActionFail(told(problems, "{} settings are wrong:"))
        cluster = _settings.finished(cluster)
        values, asked_by = arguments.values, f"{getpass.getuser()}@{socket.gethostname()}"
        result = {"changed": False, "cluster": cluster, "asked_by": asked_by}
        if playbook == "train":
            values = _arguments.finished(arguments, cluster["efs_mount"])
            result["request"] = _arguments.request(values, arguments.given, asked_by)
            # Not shown with -v as everything else is: it may hold what is secret. Whoever needs it, reads the variable.
            env = values.pop("env")
            result["recipe_env"] = env if "env" not in given else {}
        return {**result, "arguments": values}

    def _resolved(self, names: set[str], variables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Templates resolved; and what could not be."""
        given, problems = {}, []
        for name in sorted(names):
            try:
                given[name] = self._templar.template(variables[name])
            except AnsibleError as error:
                problems.append(f"{name} cannot be worked out: {error.message.strip()}")
        return given, problems


def _begins() -> list[str]:
    """How variables begin that are not these playbooks' own: settings, Ansible's, and those of our roles."""
    roles = [f"{role.name}_" for role in ROLES.iterdir() if role.is_dir()]
    return [_settings.PREFIX, "ansible_", "deeplearning_", "provision_", *roles]
