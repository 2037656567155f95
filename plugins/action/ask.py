# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Asks the program on a node. Its documentation is in plugins/modules/ask.py."""

from __future__ import annotations

import json
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _program

SPEC: dict[str, dict[str, Any]] = {
    "words": {"type": "list", "elements": "str", "required": True},
    "request": {"type": "dict"},
    "writes": {"type": "bool", "default": False},
    "forward_agent": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=SPEC)[1]
        # With display_args_to_stdout Ansible prints a task's arguments when it has ended: this one may hold secrets.
        self._task.args = {**self._task.args, "request": "<hidden>"}
        host = str(self._task.delegate_to or (task_vars or {}).get("inventory_hostname", "the node"))
        if given["writes"] and self._task.check_mode:
            return {"changed": True, "answer": {}}
        # As its input and not in its words: words can be read by all on the node.
        request = b"" if given["request"] is None else json.dumps(given["request"]).encode()
        try:
            answer = _program.ask(self, given["words"], host, request, given["forward_agent"])
        except _program.Trouble as trouble:
            return {"failed": True, "msg": str(trouble)}
        return {"changed": given["writes"] and bool(answer.get("changed", True)), "answer": answer}
