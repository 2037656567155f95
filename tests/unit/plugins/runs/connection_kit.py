"""A connection to a node that is this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.runs import node_program


class Connection:
    def __init__(self, transport: str = "ssh", **options: Any) -> None:
        self.transport = transport
        self._options = {"ssh_common_args": "", "private_key_file": None, "remote_user": None, "host": "h", **options}

    def get_option(self, name: str) -> Any:
        return self._options[name]


@contextlib.contextmanager
def lines_of(way: node_program.Way, command: str, **limits: float) -> Iterator[Iterator[str]]:
    """Yield the lines that a command prints."""
    with node_program.output(way, command, **limits) as chunks:
        yield node_program.lines(chunks, way.host)


def stop_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Stop the clock of deadlines, so that they do not depend on how busy this machine is. Return what advances it."""
    now = 0.0

    def advance(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(node_program, "time", SimpleNamespace(monotonic=lambda: now))
    return advance
