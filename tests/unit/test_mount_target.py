"""What is in the way of a file system, and where it was mounted before."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils import _mount_target
from ansible_collections.deeplearning.aws.plugins.module_utils._mount_target import (
    Place,
    former,
    obstacle,
    stalled,
)

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


def test_one_that_is_mounted_and_stands_still_is_not_waited_for_beyond_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stalled(NAME, str(tmp_path), 60) is None
    monkeypatch.setattr(_mount_target, "LOOK", ("sleep",))
    found = stalled(NAME, "600", 0.1)
    assert found and found.cause == "stalled" and f"{NAME} is mounted at 600 and does not answer" in found.words


FSTAB = """
# /old is nobody's any more: fs-1:/ /old nfs4 hard,mark 0 0
fs-1.efs.us-east-1.amazonaws.com:/ /efs nfs4 hard,_netdev,mark 0 0
fs-1:/ /theirs nfs4 hard,_netdev 0 0
fs-1:/ /shared nfs4 hard,_netdev,mark 0 0
"""


@pytest.mark.parametrize(
    ("mounts", "places"),
    [
        ("fs-1.efs.us-east-1.amazonaws.com:/ /efs nfs4 rw 0 0\nfs-1:/ /theirs nfs4 rw 0 0", [Place("/efs", True)]),
        # mount.efs, with TLS
        ("127.0.0.1:/ /efs nfs4 rw 0 0", [Place("/efs", True)]),
        ("fs-1:/ /theirs nfs4 rw 0 0", [Place("/efs", False)]),
        # Somebody has mounted something of theirs over it, or in its place.
        ("fs-1:/ /efs nfs4 rw 0 0\n/dev/sdb /efs ext4 rw 0 0", [Place("/efs", False)]),
    ],
)
def test_the_role_knows_what_it_has_mounted_elsewhere_by_its_mark(mounts: str, places: list[Place]) -> None:
    assert former(FSTAB, mounts, "mark", "fs-1:/", "/shared") == places


@pytest.mark.parametrize(
    ("source", "mounted"),
    [
        ("fs-1.efs.us-east-1.amazonaws.com:/", "fs-1.efs.us-east-1.amazonaws.com:/"),
        # as the kernel shows what mount.efs mounts with TLS
        ("fs-1:/", "127.0.0.1:/"),
    ],
)
def test_what_is_mounted_in_the_other_way_at_the_same_place_is_former(source: str, mounted: str) -> None:
    fstab, mounts = f"{source} /efs any hard,_netdev,mark 0 0", f"{mounted} /efs nfs4 rw 0 0"
    other = {"fs-1:/": "fs-1.efs.us-east-1.amazonaws.com:/"}.get(source, "fs-1:/")
    assert former(fstab, mounts, "mark", source, "/efs") == []
    assert former(fstab, mounts, "mark", other, "/efs") == [Place("/efs", True)]
