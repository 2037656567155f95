# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Sends a script to a node. Its documentation is in plugins/modules/code.py."""

from __future__ import annotations

import shlex
import uuid
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _code, _program

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
        # On a shared file system the node checks first that nobody else can put anything there.
        prepare = f"{_program.command(['run', 'incoming', given['into']])} </dev/null"
        unpack = f"tar -xzf - --no-same-owner -C {folder}"
        # What no run has taken in was refused, long ago.
        tidy = f"find {into} -mindepth 1 -maxdepth 1 -mmin +60 -exec rm -rf {{}} +"
        undo = f"{{ code=$?; rm -rf {folder}; exit $code; }}"
        command = f"umask 022 && {prepare} && mkdir {folder} && {{ {unpack} && {tidy} || {undo}; }}"
        ran = _program.execute(self, command, stdin=packed.archive)
        if ran["rc"]:
            host = str((task_vars or {}).get("inventory_hostname", "the node"))
            reason = _program.trouble(host, ran["rc"], ran["stderr"])
            return {"failed": True, "msg": f"{given['script']} cannot be sent to {place}: {reason}"}
        return {"changed": True, "path": place, "script": packed.script}
