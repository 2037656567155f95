# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Says how well a cluster is. Its words are made in plugin_utils/_health.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _health

ARGUMENTS: dict[str, dict[str, Any]] = {
    "cluster": {"type": "str", "required": True},
    "seen": {"type": "dict", "required": True},
    "training": {"type": "dict"},
    "joining": {"type": "list", "elements": "str", "default": []},
    "file": {"type": "str", "default": ""},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=ARGUMENTS)[1]
        said = _health.verdict(given["seen"], given["joining"], given["training"])
        told = _health.lines(given["cluster"], said)
        Display().display("\n" + "\n".join(told) + "\n")
        file = Path(given["file"] or f".deeplearning/{given['cluster']}.health.json").expanduser()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(said, indent=1) + "\n")
        except OSError as error:
            Display().warning(f"The verdict cannot be written to {file}: {error.strerror}.")
        if not said["ok"]:
            return {"failed": True, "msg": f"{told[-1]} All of it is in {file}."}
        return {"changed": False, "health": said}
