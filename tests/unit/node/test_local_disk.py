"""The instance store: which volumes are used, and the commands that make one file system of them."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from deeplearning.contract.errors import UserError
from deeplearning.data import cli, local_disk
from deeplearning.data.local_disk import MODEL, mount_commands, volumes

ROOT = "/opt/deeplearning/data"
LAST = [["mount", "-o", "noatime", "/dev/md/deeplearning", ROOT], ["chmod", "1777", ROOT]]


def device(path: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "model": MODEL, "mountpoint": None, "fstype": None, "label": None, **more}


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([], []),
        ([device("/dev/nvme0n1", model="Amazon Elastic Block Store")], []),
        ([device("/dev/nvme1n1"), device("/dev/nvme2n1")], ["/dev/nvme1n1", "/dev/nvme2n1"]),
        # These are in use.
        ([device("/dev/nvme1n1", mountpoint="/scratch")], []),
        ([device("/dev/nvme1n1", children=[{"path": "/dev/nvme1n1p1"}])], []),
        ([device("/dev/nvme1n1", fstype="ext4", label="scratch")], []),
        # Ours, after a reboot: mdadm puts the machine's name before the stripe's.
        ([device("/dev/nvme1n1", fstype="xfs", label="deeplearning")], ["/dev/nvme1n1"]),
        ([device("/dev/nvme1n1", fstype="linux_raid_member", label="ip-10-0-0-5:deeplearning")], ["/dev/nvme1n1"]),
    ],
)
def test_unused_volumes_are_selected(devices: list[dict[str, Any]], expected: list[str]) -> None:
    assert list(volumes(json.dumps({"blockdevices": devices}))) == expected


@pytest.mark.parametrize(
    ("volumes", "commands"),
    [
        (
            {"/dev/nvme1n1": ""},
            [
                ["mkfs.xfs", "-q", "-L", "deeplearning", "/dev/nvme1n1"],
                ["mount", "-o", "noatime", "/dev/nvme1n1", ROOT],
                ["chmod", "1777", ROOT],
            ],
        ),
        (
            {"/dev/nvme1n1": "xfs"},
            [["mount", "-o", "noatime", "/dev/nvme1n1", ROOT], ["chmod", "1777", ROOT]],
        ),
        (
            {"/dev/nvme1n1": "", "/dev/nvme2n1": ""},
            [
                ["mdadm", "--create", "/dev/md/deeplearning", "--level=0", "--raid-devices=2", "--name=deeplearning",
                 "--run", "/dev/nvme1n1", "/dev/nvme2n1"],
                ["mkfs.xfs", "-q", "-L", "deeplearning", "/dev/md/deeplearning"],
                *LAST,
            ],
        ),
        (
            {f"/dev/nvme{number}n1": "linux_raid_member" for number in (1, 2)},
            [["mdadm", "--assemble", "/dev/md/deeplearning", "/dev/nvme1n1", "/dev/nvme2n1"], *LAST],
        ),
    ],
)  # fmt: skip
def test_one_volume_gets_a_file_system_and_several_are_striped(
    volumes: dict[str, str], commands: list[list[str]]
) -> None:
    assert mount_commands(volumes, ROOT) == commands


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is run as root, on a machine with nothing mounted and one volume."""
    commands: list[list[str]] = []

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        if command[0] != "lsblk":
            commands.append(list(command))
        return subprocess.CompletedProcess(command, 0, json.dumps({"blockdevices": [device("/dev/nvme1n1")]}), "")

    monkeypatch.setattr(local_disk.programs, "run", run)
    monkeypatch.setattr(local_disk, "as_root", lambda *words: words)
    monkeypatch.setattr(local_disk.os.path, "ismount", lambda _path: False)
    monkeypatch.setattr(local_disk.os.path, "exists", lambda path: path == "/dev/nvme1n1")
    return commands


def test_the_mount_of_the_image_is_used(ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_disk.os.path, "ismount", lambda path: path == "/opt/dlami/nvme")
    local_disk.prepare(ROOT)
    assert ran[1:] == [
        ["install", "-d", "-m", "1777", "/opt/dlami/nvme/deeplearning"],
        ["mount", "--bind", "/opt/dlami/nvme/deeplearning", ROOT],
    ]


def test_a_volume_is_mounted_once(ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    local_disk.prepare(ROOT)
    assert [command[0] for command in ran] == ["install", "mkfs.xfs", "mount", "chmod"]
    ran.clear()
    monkeypatch.setattr(local_disk.os.path, "ismount", lambda path: path == ROOT)
    local_disk.prepare(ROOT)
    assert ran == []


def test_a_machine_without_instance_store_uses_its_root_volume(
    ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_disk, "_volumes", list)
    local_disk.prepare(ROOT)
    assert ran == []


def test_a_required_instance_store_that_is_missing_is_one_sentence(
    ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    local_disk.require_instance_store()
    monkeypatch.setattr(local_disk, "_volumes", list)
    config = SimpleNamespace(user="nobody", efs_mount="/efs", region="here")
    monkeypatch.setattr(cli, "read_config", lambda: config)
    monkeypatch.setattr(cli, "become", lambda _user: None)
    with pytest.raises(UserError, match="data_on is instance_store, and this machine's type has none that is free"):
        cli.main(["show", "photos", "--on", "instance_store"])


def test_a_command_that_fails_is_one_sentence(ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_disk, "_volumes", lambda: {"/dev/nvme1n1": ""})
    failed = subprocess.CompletedProcess([], 1, "", "mkfs.xfs: command not found")
    monkeypatch.setattr(local_disk.programs, "run", lambda *_words: failed)
    with pytest.raises(UserError, match=r"cannot be used \(install: mkfs.xfs: command not found\): install xfsprogs"):
        local_disk.prepare(ROOT)
