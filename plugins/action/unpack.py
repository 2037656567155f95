# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Has a node unpack its share, and tells of it meanwhile. Its documentation is in plugins/modules/unpack.py."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _program
from ansible_collections.deeplearning.aws.plugins.plugin_utils._progress import shown
from ansible_collections.deeplearning.aws.plugins.plugin_utils._teller import Teller, on_terminal

SPEC: dict[str, dict[str, Any]] = {
    "data": {"type": "str", "required": True},
    "source": {"type": "str", "required": True},
    "share": {"type": "int", "required": True},
    "shares": {"type": "int", "required": True},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=SPEC)[1]
        host = str((task_vars or {}).get("inventory_hostname", "the node"))
        set_, share = [given["data"], "--from", given["source"]], f"{given['share']}/{given['shares']}"
        display = Display()
        # Several nodes that tell at once have no bar in common.
        teller = Teller(display.display, on_terminal() and given["shares"] == 1, display.columns)
        try:
            if self._task.check_mode:
                return {"changed": not _program.ask(self, ["unpack", "show", *set_], host)["there"], "files": 0}
            words = ["unpack", "share", *set_, "--share", share]
            with _program.listening(self._connection, words, host) as lines:
                end = shown(lines, host, words, teller)
        except _program.Trouble as trouble:
            return {"failed": True, "msg": str(trouble)}
        finally:
            teller.close()
        return {"changed": end["changed"], "files": end["files"]}
