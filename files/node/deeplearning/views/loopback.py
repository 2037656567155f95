"""Web servers for people, each in a systemd unit of its own. They listen on the loopback address, behind a tunnel."""

from __future__ import annotations

import contextlib
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from deeplearning import programs
from deeplearning.contract.errors import UserError
from deeplearning.identity import as_root
from deeplearning.runs import units

ADDRESS = "127.0.0.1"
SECONDS = 90.0
"""Starting TensorBoard takes long on a small machine."""


@dataclass(frozen=True)
class LoopbackServer:
    title: str
    """What it is called in messages. Example: TensorBoard"""
    unit: str
    description: str
    """What systemd calls it. Its address is added."""
    ports: range
    probe: str
    """The path of a page that it answers with when it is ready."""

    def start(self, user: str, command: Callable[[int], Sequence[str]]) -> dict[str, Any]:
        """Start it unless it runs already. Return whether it was started, and its address. `command`: by the port."""
        if port := self.port():
            return {"changed": False, "address": ADDRESS, "port": port}
        for port in filter(is_free, self.ports):
            started = programs.run(
                *as_root("systemd-run", f"--unit={self.unit}", f"--uid={user}", "--collect", "--quiet"),
                *(f"--description={self.description} on {ADDRESS}:{port}", *command(port)),
            )
            if started.returncode:
                raise UserError(f"{self.title} cannot be started: {programs.last_line(started.stderr)}")
            # Another program may take the port in between: the server ends then.
            if self._answers(port):
                return {"changed": True, "address": ADDRESS, "port": port}
            if is_free(port):
                raise UserError(f"{self.title} ended at its start: see journalctl -u {self.unit} on the master.")
        raise UserError(
            f"all ports from {self.ports[0]} to {self.ports[-1]} are taken on this node: stop what has them."
        )

    def port(self) -> int | None:
        """Return the port that it listens on, which its unit's description names; None if it does not run."""
        shown = programs.run("systemctl", "show", self.unit, "--property=ActiveState,Description").stdout
        match = re.search(rf"^Description=.* {re.escape(ADDRESS)}:(\d+)$", shown, re.MULTILINE)
        return int(match[1]) if match and "ActiveState=active" in shown else None

    def _answers(self, port: int) -> bool:
        """Wait until it answers, and return False if it ends instead."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if self.port() != port:
                return False
            try:
                with urllib.request.urlopen(f"http://{ADDRESS}:{port}{self.probe}", timeout=5):
                    return True
            except (urllib.error.URLError, OSError):
                time.sleep(0.3)  # between two probes
        raise UserError(
            f"{self.title} does not answer after {SECONDS:.0f} s: see journalctl -u {self.unit} on the master."
        )


def stop(pattern: str) -> dict[str, Any]:
    """Stop the servers whose units match, and return which ones."""
    active = units.active_units(pattern)
    if active:
        units.control("stop", *active)
    return {"changed": bool(active), "stopped": active}


def is_free(port: int) -> bool:
    with socket.socket() as test, contextlib.suppress(OSError):
        test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        test.bind((ADDRESS, port))
        return True
    return False
