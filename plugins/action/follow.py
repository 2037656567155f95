# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Follows a run, and tells of it meanwhile. Its documentation is in plugins/modules/follow.py."""

from __future__ import annotations

import time
from typing import Any

from ansible import context
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _arguments, _program
from ansible_collections.deeplearning.aws.plugins.plugin_utils._following import Follower
from ansible_collections.deeplearning.aws.plugins.plugin_utils._teller import Teller, on_terminal

SPEC: dict[str, dict[str, Any]] = {
    "run_id": {"type": "str", "required": True},
    "output": {"type": "bool", "default": False},
}
PATIENCE = 300.0
"""So long is it tried to find a lost connection again."""
PAUSE = 3.0


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=SPEC)[1]
        host = str((task_vars or {}).get("inventory_hostname", "the master"))
        follower = Follower(given["run_id"])
        display = Display()
        teller = Teller(display.display, on_terminal(), display.columns)
        teller.say(_how_to_leave(given["run_id"]))
        try:
            self._follow(follower, teller, host, given["output"])
        except _program.Trouble as trouble:
            return {"failed": True, "msg": str(trouble)}
        finally:
            teller.close(follower.status)
        sentence = str(follower.end.get("sentence") or f"run {given['run_id']} has no end that was told of")
        # What was followed has changed nothing; what was started is said by the task that did.
        if follower.end.get("state") not in ("finished", "stopped"):
            return {"failed": True, "msg": sentence, "end": follower.end}
        teller.say(sentence)
        return {"changed": False, "msg": sentence, "end": follower.end}

    def _follow(self, follower: Follower, teller: Teller, host: str, output: bool) -> None:
        """To the end, over lost connections: the run knows nothing of them."""
        lost_at = 0.0
        while not follower.end:
            words = ["run", "follow", follower.run_id, "--from-line", str(follower.seen)]
            try:
                with _program.listening(self._connection, words + ["--output"] * output, host) as lines:
                    for line in lines:
                        lost_at = 0.0
                        for said in follower.take(_program.event(line)):
                            teller.say(said)
                        if follower.status:
                            teller.progress(follower.status, follower.done)
                return
            except _program.Lost as lost:
                if not lost_at:
                    lost_at = time.monotonic()
                    teller.say(f"{lost} The run goes on; trying to reach it again.")
                if time.monotonic() - lost_at > PATIENCE:
                    raise
                time.sleep(PAUSE)


def _how_to_leave(run_id: str) -> str:
    """Said at the start: with Ctrl-C or a closed terminal there is nobody left to say it."""
    options = _arguments.repeated(context.CLIARGS.get("extra_vars") or (), run_id)
    return (
        f"Following {run_id}. It goes on without this terminal (Ctrl-C leaves it).\n"
        f"  to attach again: ansible-playbook follow.yml{options}\n"
        f"  to stop it:      ansible-playbook stop.yml{options}"
    )
