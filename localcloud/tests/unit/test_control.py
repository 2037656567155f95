"""The socket by which the command line asks the service, and what the service refuses."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localcloud import state
from localcloud.control import Control, ControlServer
from localcloud.core.cloud import Cloud
from localcloud_kits.cli_kit import refused


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


@dataclass
class ApiOnly:
    """A service without machines."""

    cloud: Cloud
    machines: None = None


@pytest.fixture
def service(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A local cloud that is up, as the command line sees it."""
    monkeypatch.setattr(state, "_MACHINE", tmp_path)
    monkeypatch.setattr(state, "SOCKET", tmp_path / "control.sock")
    state.remember_service()
    server = ControlServer(state.SOCKET, Control(ApiOnly(cloud)))  # type: ignore[arg-type]
    yield
    server.close()


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["fault", "kill", "i-0123456789abcdef0"], "instance i-0123456789abcdef0 does not exist"),
        (["fault", "stall", "fs-0123456789abcdef0"], "file system fs-0123456789abcdef0 does not exist"),
        (["fault", "expire", "missing"], "there are no credentials of missing"),
        (["fault", "clear", "fault-99"], "no fault in force has the id, kind or target fault-99"),
        (["exec", "i-0123456789abcdef0", "--", "true"], "instance i-0123456789abcdef0 does not exist"),
        (["console", "i-0123456789abcdef0"], "instance i-0123456789abcdef0 does not exist"),
    ],
)
def test_what_the_service_refuses_is_one_sentence(
    words: list[str], sentence: str, service: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, *words).startswith(f"localcloud: {sentence}")
