# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Sends a script to a node. Its documentation is in plugins/modules/code.py."""

from __future__ import annotations

import shlex
import uuid
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _code

SPEC: dict[str, dict[str, Any]] = {
    "script": {"type": "path", "required": True},
    "folder": {"type": "path"},
    "into": {"type": "str", "required": True},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=SPEC)[1]
        try:
            packed = _code.pack(Path(given["script"]), Path(given["folder"]) if given["folder"] else None)
        except (_code.TooMuch, OSError) as problem:
            return {"failed": True, "msg": str(problem)}
        place = f"{given['into']}/{uuid.uuid4().hex}"
        if self._task.check_mode:
            return {"changed": True, "path": place, "script": packed.script}
        # All in one: nothing is looked up on the node and no module is sent there for a few kilobytes.
        into, folder = shlex.quote(given["into"]), shlex.quote(place)
        unpack = f"umask 022 && mkdir -p -m 1777 {into} && mkdir {folder} && tar -xzf - --no-same-owner -C {folder}"
        # What no run has taken in was refused, long ago.
        tidy = f"find {into} -mindepth 1 -maxdepth 1 -mmin +60 -exec rm -rf {{}} +"
        command = f"{unpack} && {tidy} || {{ rm -rf {folder}; exit 1; }}"
        ran = self._low_level_execute_command(command, sudoable=False, in_data=packed.archive)
        if ran["rc"]:
            said = ran["stderr"].strip().splitlines()
            return {
                "failed": True,
                "msg": f"{given['script']} cannot be sent to {place}: {(said or ['tar failed'])[-1]}",
            }
        return {"changed": True, "path": place, "script": packed.script}
