"""The tunnel that `tensorboard.yml -e tunnel=true` opens, with a few lines of Python in ssh's place."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from ansible_collections.deeplearning.aws.plugins.action.tunnel import _free_port, held

LATE = """
import pathlib, socket, sys
pathlib.Path(sys.argv[2]).write_text("begun")
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    server.accept()
print("first\\nConnection to master closed.", file=sys.stderr)
"""


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: int = server.getsockname()[1]
    return found


def test_it_is_called_open_when_it_is(port: int, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    opened: list[bool] = []
    said = held([sys.executable, "-c", LATE, str(port), str(begun)], port, lambda: opened.append(begun.exists()))
    assert opened == [True] and said == "Connection to master closed."


def test_one_that_cannot_be_opened_is_never_called_open(port: int) -> None:
    opened: list[bool] = []
    failing = "import sys; sys.exit('Permission denied (publickey).')"
    assert held([sys.executable, "-c", failing], port, lambda: opened.append(True)) == "Permission denied (publickey)."
    assert opened == [] and held(["true"], port, lambda: None) == "ssh said nothing"


def test_it_ends_with_ansible(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter([1, 1, 1])
    monkeypatch.setattr(os, "getppid", lambda: next(parents, 2))
    assert held(["sleep", "600"], port, lambda: None) == "ssh said nothing"


def test_a_port_that_is_taken_is_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        assert taken < _free_port(taken) < taken + 100
