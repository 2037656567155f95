"""Which of three things is in the way of a file system."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils import _mount_target
from ansible_collections.deeplearning.aws.plugins.module_utils._mount_target import obstacle

NAME, OWN = "fs-1.efs.us-east-1.amazonaws.com", "ip-10-0-0-4.ec2.internal"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What DNS knows."""
    names: dict[str, str] = {}

    def look_up(name: str, port: int, *_: Any) -> Any:
        if name not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (names[name], port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return names


@pytest.mark.parametrize(
    ("names", "cause"),
    [({}, "dns"), ({OWN: "10.0.0.4"}, "mount_target"), ({OWN: "10.0.0.4", NAME: "127.0.0.1"}, "security_group")],
)
def test_the_cause_is_named(
    known: dict[str, str], names: dict[str, str], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known |= names

    def refuse(address: tuple[str, int], timeout: float) -> socket.socket:
        assert address == ("127.0.0.1", 2049) and 1 <= timeout <= 5
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", refuse)
    found = obstacle(NAME, OWN, 60)
    assert found and found.cause == cause and NAME in found.words


def test_a_name_server_that_does_not_answer_is_told_where_the_machine_knows_its_own_name_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look_up(name: str, port: int, *_: Any) -> Any:
        if name != OWN:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.1.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    found = obstacle(NAME, OWN, 60)
    assert found and found.cause == "dns" and NAME in found.words


def test_nothing_is_in_the_way(known: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        known |= {NAME: "127.0.0.1", "127.0.0.1": "127.0.0.1"}
        monkeypatch.setattr(_mount_target, "PORT", server.getsockname()[1])
        assert obstacle(NAME, OWN, 60) is None
