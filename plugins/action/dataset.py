# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Stages a data set on a node, and tells of it meanwhile. Its documentation is in plugins/modules/dataset.py."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _program
from ansible_collections.deeplearning.aws.plugins.plugin_utils._progress import shown
from ansible_collections.deeplearning.aws.plugins.plugin_utils._teller import Teller, on_terminal

SPEC: dict[str, dict[str, Any]] = {
    "data": {"type": "str", "required": True},
    "source": {"type": "str", "default": ""},
    "where": {"type": "str", "choices": ["efs", "node"], "default": "efs"},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=SPEC)[1]
        self._host = str((task_vars or {}).get("inventory_hostname", "the node"))
        display = Display()
        # Several nodes that tell at once have no bar in common.
        self._teller = Teller(display.display, on_terminal() and given["where"] == "efs", display.columns)
        try:
            return self._staged(given)
        except _program.Trouble as trouble:
            return {"failed": True, "msg": str(trouble)}
        finally:
            self._teller.close()

    def _staged(self, given: dict[str, Any]) -> dict[str, Any]:
        """Most often it is there already: then nothing but the asking was done."""
        on = ["--on", given["where"]]
        # What has no scheme is a file of this machine: it is known on the node by its checksum.
        file = Path(given["source"]) if given["source"] and "://" not in given["source"] else None
        found = _program.ask(self, ["data", "show", given["data"], *on], self._host)
        if found["there"]:
            return {"changed": False, "path": found["path"], "generated": found["generated"]}
        if self._task.check_mode:
            return {"changed": True, "path": found["path"], "generated": False}
        source = self._send(given["data"], file, on) if file else given["source"]
        words = ["data", "stage", given["data"], *on, *(["--from", source] if source else [])]
        end = self._listen(words)
        return {"changed": end["changed"], "path": end["path"], "generated": end["generated"]}

    def _send(self, data: str, file: Path, on: list[str]) -> str:
        """A file of this machine, from where an earlier attempt ended."""
        # Unbuffered: ssh reads on from where this leaves it.
        with open(file, "rb", buffering=0) as opened:
            key = hashlib.file_digest(opened, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
            words = [data, *on, "--key", key]
            before = opened.seek(_program.ask(self, ["data", "show", *words], self._host)["received"])
            self._teller.say(f"Sending {file} to {self._host}")
            words = ["data", "receive", *words, "--at", str(before)]
            return str(self._listen(words, opened, before, file.stat().st_size)["path"])

    def _listen(self, words: list[str], stdin: Any = None, before: int = 0, total: int = 0) -> dict[str, Any]:
        with _program.listening(self._connection, words, self._host, *([stdin] if stdin else [])) as lines:
            return shown(lines, self._host, words, self._teller, before, total)
