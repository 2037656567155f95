"""The module wait_for_nfs: it returns when the file system can be reached, else it reports what is in the way."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.node import nfs
from ansible_collections.deeplearning.aws.plugins.modules import wait_for_nfs

from tests.unit.modules import run_node_module

Run = Callable[..., dict[str, Any]]
MARK, SOURCE = "x-deeplearning.efs", "fs-1.efs.us-east-1.amazonaws.com:/"


class Node:
    """A node whose file system is a port of this machine, which opens at its time. Time passes by sleeping."""

    def __init__(self, folder: Path, server: socket.socket) -> None:
        self.folder, self.path = folder, folder / "efs"
        self.path.mkdir()
        self.fstab, self.mounts = folder / "fstab", folder / "mounts"
        self.mounts.write_text("proc /proc proc rw 0 0\n")
        self.now = self.opens_at = 1000.0
        self._server = server

    def mount(self, source: str = SOURCE) -> None:
        self.mounts.write_text(f"{source} {self.path} nfs4 rw 0 0\n")

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        if self.now >= self.opens_at:
            self._server.listen()
        return self.now


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    # systemd has read all that is in /etc/fstab, but knows none of its mounts.
    (tmp_path / "systemctl").write_text("#!/bin/sh\necho no\n")
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        node = Node(tmp_path, server)
        monkeypatch.setattr(nfs.ports, "NFS", server.getsockname()[1])
        monkeypatch.setattr(wait_for_nfs, "FSTAB", str(node.fstab))
        monkeypatch.setattr(wait_for_nfs, "MOUNTS", node.mounts)
        monkeypatch.setattr(wait_for_nfs, "time", node)
        yield node


@pytest.fixture
def run(node: Node, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(**options: Any) -> dict[str, Any]:
        least = {"name": "localhost", "path": str(node.path), "source": SOURCE, "mark": MARK, "node": "c-worker2"}
        return run_node_module(capsys, "wait_for_nfs", **{**least, **options})

    return call


def test_what_answers_is_not_waited_for(node: Node, run: Run) -> None:
    assert run() == {"changed": False, "former_mounts": [], "systemd_follows": True}
    assert node.now == 1000


@pytest.mark.parametrize("seconds", [1, 120])
def test_what_opens_in_time_is_waited_for(node: Node, run: Run, seconds: int) -> None:
    node.opens_at += seconds
    assert not run().get("failed") and node.now == 1000 + seconds


def test_what_stays_closed_is_reported_when_the_time_is_over(node: Node, run: Run) -> None:
    node.opens_at += 31
    refused = run(timeout=30)
    assert refused["failed"] and refused["cause"] == "security_group" and node.now == 1030
    assert refused["msg"].startswith("c-worker2, after 30 s: 127.0.0.1, the mount target of localhost, does not")


@pytest.mark.parametrize(
    ("own_name", "host_name", "cause"),
    [
        ("localhost", "no-such-host.invalid", "mount_target"),
        ("", "localhost", "mount_target"),
        ("no-such-host.invalid", "localhost", "dns"),
        ("", "no-such-host.invalid", "dns"),
    ],
)
def test_the_machines_own_name_tells_whether_dns_works(
    monkeypatch: pytest.MonkeyPatch, run: Run, own_name: str, host_name: str, cause: str
) -> None:
    resolve = socket.getaddrinfo

    def known(name: str, *more: Any) -> Any:
        if name.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(name, *more)

    monkeypatch.setattr(socket, "getaddrinfo", known)
    monkeypatch.setattr(socket, "getfqdn", lambda: host_name)
    assert run(name="fs-1.invalid", own_name=own_name, timeout=0)["cause"] == cause


def test_a_name_that_did_not_exist_is_not_remembered(node: Node, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """resolved.conf(5), Cache=: by default an earlier answer is returned while it is valid, that of no name too."""
    flushed = node.folder / "flushed"
    (node.folder / "resolvectl").write_text(f'#!/bin/sh\n[ "$*" = flush-caches ] && touch {flushed}; exit 1\n')
    (node.folder / "resolvectl").chmod(0o755)
    resolve, remembered = socket.getaddrinfo, set()

    def known(name: str, *more: Any) -> Any:
        if name == "fs-1.invalid":
            if flushed.exists():
                flushed.unlink()
                remembered.clear()
            if node.now < 1003:
                remembered.add(name)
            if name in remembered:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            name = "localhost"
        return resolve(name, *more)

    monkeypatch.setattr(socket, "getaddrinfo", known)
    assert not run(name="fs-1.invalid", own_name="localhost").get("failed") and node.now == 1003


def test_a_mounted_file_system_has_to_answer_too(node: Node, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    patience: list[float] = []

    def responds(path: str, seconds: float) -> bool:
        assert path == str(node.path)
        patience.append(seconds)
        return False

    monkeypatch.setattr(nfs, "responds", responds)
    # Nothing is mounted, so nothing can stall.
    assert not run(timeout=5).get("failed") and patience == []
    node.mount()
    refused = run(timeout=2)
    assert refused["cause"] == "stalled" and f"localhost is mounted at {node.path}" in refused["msg"]
    assert patience == [2, 1, 1]


def test_former_mounts_are_those_of_the_mark_at_other_places(node: Node, run: Run) -> None:
    node.fstab.write_text(
        f"{SOURCE} {node.path} nfs4 hard,{MARK} 0 0\nfs-2:/ /old nfs4 hard,{MARK} 0 0\nfs-3:/ /theirs nfs4 hard 0 0\n"
    )
    node.mounts.write_text(f"{SOURCE} {node.path} nfs4 rw 0 0\nfs-2:/ /old nfs4 rw 0 0\n")
    answer = run()
    assert answer["former_mounts"] == [{"path": "/old", "mounted": True, "taken": False}]
    # The line is there, and systemd does not know the mount.
    assert answer["systemd_follows"] is False
    answer = run(source="fs-9:/")
    assert [mount["path"] for mount in answer["former_mounts"]] == [str(node.path), "/old"]
    assert answer["systemd_follows"] is True


def test_the_node_is_only_read(node: Node, run: Run) -> None:
    node.fstab.write_text("fs-3:/ /theirs nfs4 hard 0 0\n")
    before = sorted(path.name for path in node.folder.iterdir())
    assert run(check=True)["former_mounts"] == []
    assert sorted(path.name for path in node.folder.iterdir()) == before
