"""The socket by which the command line asks the service."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from localcloud.control import ControlServer


class Echo:
    def answer(self, request: Mapping[str, Any]) -> Any:
        return request["command"]


def ask(path: Path, command: str) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(json.dumps({"command": command}).encode() + b"\n")
        with connection.makefile() as stream:
            return json.loads(stream.readline())["answer"]


def test_a_closed_server_answers_nobody_and_leaves_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    server = ControlServer(path, Echo())  # type: ignore[arg-type]
    assert ask(path, "status") == "status"
    server.close()
    assert not path.exists()
    with pytest.raises(OSError):
        ask(path, "status")
    again = ControlServer(path, Echo())  # type: ignore[arg-type]
    assert ask(path, "env") == "env"
    again.close()
