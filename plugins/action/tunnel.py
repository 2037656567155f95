# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Says how a port of a node is reached, or opens the way. Its documentation is in plugins/modules/tunnel.py."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.deeplearning.aws.plugins.plugin_utils import _program
from ansible_collections.deeplearning.aws.plugins.plugin_utils._untrusted import one_line

SPEC: dict[str, dict[str, Any]] = {
    "port": {"type": "int", "required": True},
    "open": {"type": "bool", "default": False},
}

MOST, LAST = 1 << 20, 4096
"""Bytes that ssh may say, and how many of them are looked at for its last line."""


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        given = self.validate_argument_spec(argument_spec=SPEC)[1]
        here = _free_port(given["port"])
        words = _program.ssh(self._connection)
        words[1:1] = ["-N", "-L", f"{here}:127.0.0.1:{given['port']}", "-o", "ExitOnForwardFailure=yes"]
        line, address = shlex.join(words), f"http://localhost:{here}"
        if not given["open"] or self._task.check_mode:
            Display().display(f"\nOpen a tunnel and leave it open, then look at {address}\n  {line}\n")
            return {"changed": False, "command": line, "url": address}
        said = held(
            words, here, lambda: Display().display(f"\nThe tunnel is open: look at {address}. Ctrl-C closes it.\n")
        )
        return {"failed": True, "msg": f"The tunnel has ended: {said}", "command": line}


def held(words: Sequence[str], port: int, opened: Callable[[], object]) -> str:
    """Until it ends, or Ansible has gone: workers have a session of their own and would outlive a closed terminal.

    Returns what ssh said last."""
    parent, told = os.getppid(), False
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said) as tunnel,
    ):
        while tunnel.poll() is None and os.getppid() == parent and os.fstat(said.fileno()).st_size < MOST:
            if not told and _answers(port):
                told = True
                opened()
            time.sleep(0.3)
        tunnel.terminate()
        tunnel.wait()
        said.seek(max(0, os.fstat(said.fileno()).st_size - LAST))
        return one_line((said.read().decode(errors="replace").strip().splitlines() or ["ssh said nothing"])[-1])


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _free_port(first: int) -> int:
    """On this machine: the same, or the next one that nobody has."""
    for port in range(first, min(first + 100, 1 << 16)):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    return first
