"""What is in the way of a file system, and where it was mounted before."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.deeplearning.aws.plugins.module_utils.node import nfs
from ansible_collections.deeplearning.aws.plugins.module_utils.node.nfs import (
    find_obstacle,
    find_stall,
    former_mounts,
    systemd_follows,
)
from ansible_collections.deeplearning.aws.plugins.modules import wait_for_nfs

from tests.unit.modules import run_node_module


def mount(path: str, mounted: bool, taken: bool = False) -> dict[str, Any]:
    return {"path": path, "mounted": mounted, "taken": taken}


ROLE = Path(__file__).resolve().parents[4] / "roles/efs_mount"
NAME, OWN = "fs-1.efs.us-east-1.amazonaws.com", "ip-10-0-0-4.ec2.internal"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What DNS knows."""
    names: dict[str, str] = {}

    def resolve(name: str, port: int, *_: Any) -> Any:
        if name not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (names[name], port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
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
    obstacle = find_obstacle(NAME, OWN, 60)
    assert obstacle and obstacle.cause == cause and NAME in obstacle.message


def test_a_silent_name_server_is_reported_although_the_machine_knows_its_own_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolve(name: str, port: int, *_: Any) -> Any:
        if name != OWN:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.1.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    obstacle = find_obstacle(NAME, OWN, 60)
    assert obstacle and obstacle.cause == "dns" and NAME in obstacle.message


def test_a_reachable_file_system_has_no_obstacle(known: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        known |= {NAME: "127.0.0.1", "127.0.0.1": "127.0.0.1"}
        monkeypatch.setattr(nfs.ports, "NFS", server.getsockname()[1])
        assert find_obstacle(NAME, OWN, 60) is None


def test_a_stalled_mount_is_reported_within_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_stall(NAME, str(tmp_path), 60) is None
    monkeypatch.setattr(nfs, "PROBE", ("sleep",))
    obstacle = find_stall(NAME, "600", 0.1)
    assert (
        obstacle and obstacle.cause == "stalled" and f"{NAME} is mounted at 600 and does not answer" in obstacle.message
    )


FSTAB = """
# /old is not in use: fs-1:/ /old nfs4 hard,mark 0 0
fs-1.efs.us-east-1.amazonaws.com:/ /efs nfs4 hard,_netdev,mark 0 0
fs-1:/ /theirs nfs4 hard,_netdev 0 0
fs-1:/ /shared nfs4 hard,_netdev,mark 0 0
"""


@pytest.mark.parametrize(
    ("mounts", "places"),
    [
        (
            "fs-1.efs.us-east-1.amazonaws.com:/ /efs nfs4 rw 0 0\nfs-1:/ /theirs nfs4 rw 0 0",
            [mount("/efs", True)],
        ),
        # mount.efs, with TLS
        ("127.0.0.1:/ /efs nfs4 rw 0 0", [mount("/efs", True)]),
        ("fs-1:/ /theirs nfs4 rw 0 0", [mount("/efs", False)]),
        # A user has mounted something of theirs over it, or in its place.
        ("fs-1:/ /efs nfs4 rw 0 0\n/dev/sdb /efs ext4 rw 0 0", [mount("/efs", False, taken=True)]),
    ],
)
def test_former_mounts_are_recognized_by_the_mark(mounts: str, places: list[dict[str, Any]]) -> None:
    assert former_mounts(FSTAB, mounts, "mark", "fs-1:/", "/shared") == places


def line_of(task: str, fstab: Path) -> list[str]:
    """The lines of fstab after a task of the role that takes a line out of use, or removes it."""
    tasks = yaml.safe_load((ROLE / "tasks/former.yml").read_text())
    (chosen,) = [candidate for candidate in tasks if candidate["name"] == f"former | {task}"]
    arguments = chosen["ansible.builtin.lineinfile"]
    own = {name: trust_as_template(value) for name, value in chosen.get("vars", {}).items()}
    variables = {"__efs_mount_mark": "x-deeplearning.efs", "item": {"path": "/efs"}, **own}
    templar = Templar(DataLoader(), variables)
    module = {
        name: templar.template(trust_as_template(value)) for name, value in arguments.items() if name != "backrefs"
    }
    ran = subprocess.run(
        [sys.executable, "-m", "ansible.modules.lineinfile"],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {**module, "backrefs": "backrefs" in arguments, "path": str(fstab)}}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout)["changed"]
    return fstab.read_text().splitlines()


def test_a_disabled_line_is_a_former_mount_until_it_is_removed(tmp_path: Path) -> None:
    mark, fstab = "x-deeplearning.efs", tmp_path / "fstab"
    theirs, ours = "fs-1:/ /efs nfs4 hard,_netdev 0 0", f"fs-1:/ /efs nfs4 hard,_netdev,{mark} 0 0"
    fstab.write_text(f"# {ours}\n{theirs}\n{ours}\n")
    assert line_of("Disable the lines in /etc/fstab", fstab) == [f"# {ours}", theirs, f"#{mark} {ours}"]
    for mounts, place in (("", mount("/efs", False)), ("fs-1:/ /efs nfs4 rw 0 0", mount("/efs", True))):
        assert former_mounts(fstab.read_text(), mounts, mark, "fs-1:/", "/shared") == [place]
    assert line_of("Remove the disabled lines from /etc/fstab", fstab) == [f"# {ours}", theirs]


def systemctl(folder: Path, monkeypatch: pytest.MonkeyPatch, reload: str, source: str) -> None:
    """Let systemd answer whether its units need a reload, and where the mount at /shared comes from."""
    program = folder / "systemctl"
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in "show --property=NeedDaemonReload --value *.mount") echo "{reload}";;\n'
        f'"show --property=SourcePath --value /shared") echo {source};; *) exit 1;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("reload", "source", "follows"),
    [("no\n\nno", "/etc/fstab", True), ("no\n\nyes", "/etc/fstab", False), ("no", "/proc/self/mountinfo", False)],
)
def test_whether_systemd_has_read_fstab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reload: str, source: str, follows: bool
) -> None:
    systemctl(tmp_path, monkeypatch, reload, source)
    assert systemd_follows(FSTAB, "fs-1:/", "/shared") is follows
    # What is not listed yet cannot be known.
    assert systemd_follows(FSTAB, "fs-1:/", "/new") is ("yes" not in reload)


@pytest.mark.parametrize(
    ("source", "mounted"),
    [
        ("fs-1.efs.us-east-1.amazonaws.com:/", "fs-1.efs.us-east-1.amazonaws.com:/"),
        # as the kernel shows what mount.efs mounts with TLS
        ("fs-1:/", "127.0.0.1:/"),
    ],
)
def test_a_mount_of_the_other_method_at_the_same_path_is_former(source: str, mounted: str) -> None:
    fstab, mounts = f"{source} /efs any hard,_netdev,mark 0 0", f"{mounted} /efs nfs4 rw 0 0"
    other = {"fs-1:/": "fs-1.efs.us-east-1.amazonaws.com:/"}.get(source, "fs-1:/")
    assert former_mounts(fstab, mounts, "mark", source, "/efs") == []
    assert former_mounts(fstab, mounts, "mark", other, "/efs") == [mount("/efs", True)]


# The module


@pytest.fixture
def wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The module on a machine with these mounts, and with FSTAB."""
    systemctl(tmp_path, monkeypatch, "no", str(tmp_path / "fstab"))
    monkeypatch.setattr(nfs, "FSTAB", str(tmp_path / "fstab"))
    monkeypatch.setattr(wait_for_nfs, "FSTAB", str(tmp_path / "fstab"))
    monkeypatch.setattr(wait_for_nfs, "MOUNTS", tmp_path / "mounts")

    def run(mounts: str, **changes: Any) -> dict[str, Any]:
        (tmp_path / "mounts").write_text(mounts)
        options = {"name": "127.0.0.1", "own_name": "localhost", "path": "/shared", "source": "fs-1:/", "mark": "mark"}
        return run_node_module(capsys, "wait_for_nfs", **{**options, "node": "n1", "timeout": 0, **changes})

    return run


def test_the_module_returns_former_mounts_of_a_file_system_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: Callable[..., Any]
) -> None:
    mounted = "fs-1.efs.us-east-1.amazonaws.com:/ /efs nfs4 rw 0 0"
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(nfs.ports, "NFS", server.getsockname()[1])
        first = wait(mounted)
        assert (first["changed"], first["former_mounts"], first["systemd_follows"]) == (False, [], True)
        (tmp_path / "fstab").write_text(FSTAB)
        (former,) = wait(mounted)["former_mounts"]
        assert former == {"path": "/efs", "mounted": True, "taken": False}
        (former,) = wait("")["former_mounts"]
        assert former == {"path": "/efs", "mounted": False, "taken": False}
        (former,) = wait("/dev/sdb /efs ext4 rw 0 0")["former_mounts"]
        assert former == {"path": "/efs", "mounted": False, "taken": True}
        moved = wait("", source="fs-2:/", path="/efs")
        assert [mount["path"] for mount in moved["former_mounts"]] == ["/efs", "/shared"]
        assert moved["systemd_follows"]


def test_the_module_names_what_is_in_the_way(monkeypatch: pytest.MonkeyPatch, wait: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setattr(nfs.ports, "NFS", port)
    refused = wait("")
    assert (refused["failed"], refused["cause"]) == (True, "security_group")
    assert refused["msg"].startswith("n1, after 0 s: 127.0.0.1, the mount target of 127.0.0.1, does not answer")
