# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Waits for machines, and tells of it meanwhile. What decides is in plugin_utils/_capacity.py."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.plugin_utils._capacity import Policy, Rules, Wish
from ansible_collections.deeplearning.aws.plugins.plugin_utils._watching import AutoScaling, Vanished, Watch

SPEC: dict[str, dict[str, Any]] = {
    **ARGUMENTS,
    "groups": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "wanted": {"type": "int", "required": True},
            "least": {"type": "int", "default": 0},
            "essential": {"type": "bool", "default": False},
        },
    },
    "policy": {"type": "str", "default": "at_least", "choices": [str(policy) for policy in Policy]},
    "timeout_seconds": {"type": "float", "default": 3300.0},
    "settle_seconds": {"type": "float", "default": 120.0},
    "since": {"type": "float"},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=SPEC)[1]
        wishes = [Wish(**group) for group in given["groups"]]
        if self._task.check_mode:
            names = ", ".join(f"{wish.wanted} of {wish.name}" for wish in wishes)
            return {"changed": False, "outcome": "unknown", "msg": f"Would wait until these are in service: {names}."}
        started = time.time()
        try:
            api = AutoScaling(Aws(given["region"], given["profile"], given["role_arn"]))
            api.look([wish.name for wish in wishes], started, frozenset())
            rules = Rules(Policy(given["policy"]), api.now() + given["timeout_seconds"], given["settle_seconds"])
            watch = Watch(api, wishes, rules, given["since"] or started, Display().display)
            return watch.run()
        except (AwsProblem, Vanished) as problem:
            return {"failed": True, "outcome": "failed", "elsewhere": False, "msg": str(problem)}
