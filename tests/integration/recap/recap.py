"""A callback of Ansible: print what each host has changed, next to the collection's own output, which has no recap."""

from __future__ import annotations

from typing import Any

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "recap"

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._display.display("PLAY RECAP")
        for host in sorted(stats.processed):
            self._display.display(f"{host} changed={stats.summarize(host)['changed']}")
