# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Its documentation is in plugins/modules/settings.py, where ansible-doc looks."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars
from ansible_collections.deeplearning.aws.plugins.module_utils._telling import told
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _settings


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset({"creating"})

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec({"creating": {"type": "bool", "default": True}})[1]
        given, problems = self._given(task_vars or {})
        checked = _settings.check(given, arguments["creating"])
        problems += checked.problems
        if arguments["creating"]:
            problems += self._leftovers()
        if problems:
            raise AnsibleActionFail(told(problems, "{} settings are wrong:"))
        return {**result, "changed": False, "cluster": _settings.finished(checked.cluster)}

    def _given(self, task_vars: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The settings among the variables, templates resolved; and what could not be resolved."""
        given, problems = {}, []
        for name in filter(_settings.is_setting, task_vars):
            try:
                given[name] = self._templar.template(task_vars[name])
            except AnsibleError as error:
                problems.append(f"{name} cannot be worked out: {error.message.strip()}")
        return given, problems

    def _leftovers(self) -> list[str]:
        """What the command line lost or misnamed."""
        extra = load_extra_vars(self._loader)
        found = _settings.near_misses(extra)
        dropped = extra.get("_raw_params")
        if dropped:
            found.append(
                f"-e was given words that belong to no setting: {dropped}. Lists and maps are given in JSON and within "
                """quotes. Example: -e '{"cluster_zones": ["us-east-1a"]}'"""
            )
        return found
