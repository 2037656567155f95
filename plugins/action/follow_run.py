# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Follow a run and show its progress. Its documentation is in plugins/modules/follow_run.py."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.schema import json_object
from ansible_collections.deeplearning.aws.plugins.plugin_utils.action import Action
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.command_line import repeat_options
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_program
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.progress_bar import ProgressDisplay
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs.run_events import Follower

RECONNECT_SECONDS = 300.0
"""Seconds to keep trying to reconnect."""
PAUSE = 3.0


class ActionModule(Action):
    def handle(self, options: dict[str, Any], task_vars: Mapping[str, Any]) -> dict[str, Any]:
        host = str(task_vars.get("inventory_hostname", "the master"))
        follower = Follower(options["run_id"])
        display = ProgressDisplay.of_ansible()
        display.message(_introduction(options["run_id"]))
        try:
            self._follow(follower, display, host, options["output"])
        finally:
            display.close(follower.status)
        sentence = str(follower.end.get("sentence") or f"run {options['run_id']} ended without reporting a result")
        if follower.end.get("state") not in ("finished", "stopped"):
            return {"failed": True, "msg": sentence, "end": follower.end}
        display.message("\n".join([sentence, *_results(options["run_id"], follower.end.get("results") or {})]))
        # Following changes nothing; the task that started the run has reported that change.
        return {"changed": False, "msg": sentence, "end": follower.end}

    def _follow(self, follower: Follower, display: ProgressDisplay, host: str, output: bool) -> None:
        """Follow the run to its end. Reconnect when the connection is lost: the run does not depend on it."""
        way, lost_at = node_program.Way.of_connection(self._connection, host), 0.0
        while not follower.end:
            arguments = ["run", "follow", follower.run_id, "--from-line", str(follower.seen)]
            try:
                with node_program.output(way, way.program(arguments + ["--output"] * output)) as chunks:
                    for line in node_program.lines(chunks, host):
                        lost_at = 0.0
                        for text in follower.take(json_object(line)):
                            display.message(text)
                        if follower.status:
                            display.update(follower.status, follower.done)
                return
            except node_program.ConnectionLost as lost:
                if not lost_at:
                    lost_at = time.monotonic()
                    display.message(f"{lost} The run continues; reconnecting.")
                if time.monotonic() - lost_at > RECONNECT_SECONDS:
                    raise
                time.sleep(PAUSE)


def _results(run_id: str, folders: Mapping[str, str]) -> list[str]:
    """Return where the model is, or else the checkpoints, and the command that gets them."""
    what = next((what for what in ("model", "checkpoints") if what in folders), "")
    if not what:
        return []
    command = f"ansible-playbook deeplearning.aws.get{repeat_options(run_id)}"
    get = f"  to get it: {command}" if what == "model" else f"  to get them: {command} -e what={what}"
    return [f"  its {what} on the nodes: {folders[what]}", get]


def _introduction(run_id: str) -> str:
    """Printed at the start: after Ctrl-C or with a closed terminal nothing can be printed."""
    options = repeat_options(run_id)
    return (
        f"Following {run_id}. It continues without this terminal (Ctrl-C detaches).\n"
        f"  to attach again: ansible-playbook deeplearning.aws.follow{options}\n"
        f"  to stop it:      ansible-playbook deeplearning.aws.stop{options}"
    )
