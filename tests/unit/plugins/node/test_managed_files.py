"""The module managed_files: it writes and removes files, and undoes changes that are not valid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible.plugins.loader import action_loader
from ansible_collections.deeplearning.aws.plugins.module_utils.node import services
from ansible_collections.deeplearning.aws.plugins.modules import managed_files
from ansible_collections.deeplearning.aws.plugins.modules.managed_files import main

Run = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def lock(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path_factory.mktemp("run") / "files.lock"
    monkeypatch.setattr(managed_files, "LOCK", str(path))
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*files: dict[str, Any], **arguments: Any) -> dict[str, Any]:
        check = arguments.pop("check", False)
        module_arguments = {"files": list(files), **arguments, "_ansible_check_mode": check, "_ansible_diff": True}
        with patch_module_args(module_arguments), pytest.raises(SystemExit):
            main()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    return call


def seen(folder: Path) -> dict[str, tuple[str, str]]:
    """Text and mode by relative path."""
    return {
        str(path.relative_to(folder)): (path.read_text(), f"{path.stat().st_mode & 0o7777:o}")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_files_are_created_changed_and_removed_in_one_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "gone").write_text("gone")
    (tmp_path / "tool").write_text("tool")
    desired = (
        {"path": str(tmp_path / "deep/new"), "content": "new", "mode": "0755"},
        {"path": str(tmp_path / "old"), "content": "newer"},
        {"path": str(tmp_path / "gone"), "state": "absent"},
        {"path": str(tmp_path / "tool"), "mode": "4755"},
    )
    before = seen(tmp_path)
    planned = run(*desired, check=True)
    assert planned["changed"] and seen(tmp_path) == before
    changed = run(*desired)
    assert changed["paths"] == planned["paths"] == [item["path"] for item in desired]
    assert [(difference["before"], difference["after"]) for difference in changed["diff"]][:3] == [
        ("", "new"),
        ("old", "newer"),
        ("gone", ""),
    ]
    assert seen(tmp_path) == {"deep/new": ("new", "755"), "old": ("newer", "644"), "tool": ("tool", "4755")}
    assert not run(*desired)["changed"] and not run(*desired, check=True)["changed"]


def test_a_folder_holds_only_its_contents(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub/__pycache__").mkdir(parents=True)
    (folder / "sub/__pycache__/a.pyc").write_text("compiled")
    (folder / "stray/deep").mkdir(parents=True)
    (folder / "stray/deep/file").write_text("stray")
    desired = {"path": str(folder), "contents": {"a.py": "a", "sub/run": "#!/bin/sh\n"}}
    assert run(desired)["changed"]
    assert seen(folder) == {
        "a.py": ("a", "644"),
        "sub/run": ("#!/bin/sh\n", "755"),
        "sub/__pycache__/a.pyc": ("compiled", "644"),
    }
    assert not (folder / "stray").exists() and not run(desired)["changed"]

    assert run({"path": str(folder), "state": "absent"})["changed"]
    assert not folder.exists() and tmp_path.exists()
    assert not run({"path": str(folder), "state": "absent"})["changed"]


def test_invalid_files_are_put_back(run: Run, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "gone").write_text("gone")
    before = seen(tmp_path)
    desired = (
        {"path": str(tmp_path / "old"), "content": "bad", "mode": "0600"},
        {"path": str(tmp_path / "new"), "content": "new"},
        {"path": str(tmp_path / "gone"), "state": "absent"},
    )
    refused = run(*desired, validate=f"sh -c 'cat {tmp_path}/old >&2; exit 3'")
    assert refused["failed"] and "put back" in refused["msg"] and refused["msg"].endswith("bad")
    assert seen(tmp_path) == before
    assert run(*desired, validate="true")["changed"]
    # Nothing was written, so validation is not called.
    assert not run(*desired, validate="false")["changed"]


def test_foreign_files_stay(run: Run, tmp_path: Path) -> None:
    command = tmp_path / "python"
    command.write_text("theirs")
    assert not run({"path": str(command), "content": "ours", "state": "absent"})["changed"]
    command.write_text("ours")
    assert run({"path": str(command), "content": "ours", "state": "absent"})["changed"]
    assert not run({"path": str(command), "content": "ours", "state": "absent"})["changed"]

    command.symlink_to("elsewhere")
    for item in ({"content": "ours"}, {"state": "absent"}):
        refused = run({"path": str(command), **item})
        assert refused["failed"] and "is no ordinary file" in refused["msg"]
    assert os.readlink(command) == "elsewhere"


def test_the_mode_of_a_missing_file_cannot_be_set(run: Run, tmp_path: Path) -> None:
    refused = run({"path": str(tmp_path / "none"), "mode": "4755"})
    assert refused["failed"] and "does not exist" in refused["msg"]


def test_a_file_with_another_mode_is_replaced_as_another_user_may_have_a_link_to_it(run: Run, tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("x")
    file.chmod(0o666)
    os.link(file, link)
    assert run({"path": str(file), "content": "x", "mode": "0644"})["changed"]
    assert seen(tmp_path) == {"file": ("x", "644"), "link": ("x", "666")}


def test_sources_are_read_where_ansible_runs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub/__pycache__").mkdir(parents=True)
    for name in ("a.py", "sub/b.py", "sub/__pycache__/b.pyc", ".hidden"):
        (source / name).write_text(name)
    reads = action_loader.get("deeplearning.aws.managed_files", class_only=True)._with_texts
    action = type("Action", (), {"_find_needle": lambda self, kind, name: name})()
    assert reads(action, {"path": "/x", "source": str(source)}) == {
        "path": "/x",
        "contents": {"a.py": "a.py", "sub/b.py": "sub/b.py"},
    }
    assert reads(action, {"path": "/x", "source": f"{source}/a.py", "mode": "0755"}) == {
        "path": "/x",
        "content": "a.py",
        "mode": "0755",
    }
    assert reads(action, {"path": "/x", "source": str(source), "state": "absent"}) == {"path": "/x", "state": "absent"}


def test_a_link_to_a_folder_is_sent_as_a_folder(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/a.py").write_text("a")
    (tmp_path / "program").mkdir()
    (tmp_path / "program/contract").symlink_to("../shared")
    reads = action_loader.get("deeplearning.aws.managed_files", class_only=True)._with_texts
    action = type("Action", (), {"_find_needle": lambda self, kind, name: name})()
    sent = reads(action, {"path": "/x", "source": str(tmp_path / "program")})
    assert sent["contents"] == {"contract/a.py": "a"}


# Holds the lock until another process waits for it, which the kernel shows by an arrow.
HOLDER = """
import fcntl, os, pathlib, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
waits = f":{os.fstat(lock.fileno()).st_ino} "
while not any("->" in line and waits in line for line in open("/proc/locks")):
    pass
pathlib.Path(sys.argv[2]).touch()
"""


def test_two_processes_do_not_write_at_the_same_time(run: Run, tmp_path: Path, lock: Path) -> None:
    """As when a module has outlived the playbook that started it."""
    desired, released = {"path": str(tmp_path / "file"), "content": "new"}, tmp_path / "released"
    with subprocess.Popen([sys.executable, "-c", HOLDER, lock, released], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout and other.stdout.readline() == "held\n"
            assert run(desired, validate=f"test -e {released}")["changed"]
        finally:
            other.kill()


# What reads the files


class Systemd:
    """Stands in for systemctl: it notes what is reloaded, and knows one service and the units of a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        folder.mkdir()
        self.units = folder / "units"
        self.units.mkdir()
        program = folder / "bin/systemctl"
        program.parent.mkdir()
        program.write_text(SYSTEMCTL.format(folder=folder))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        monkeypatch.setattr(services, "RECORDS", str(folder / "reloaded"))
        monkeypatch.setattr(services, "UNITS", str(self.units))
        (folder / "read").touch()
        os.utime(folder / "read", (0, 0))
        self.start("first")

    def start(self, invocation: str, state: str = "active") -> None:
        (self.folder / "service").write_text(f"LoadState=loaded\nActiveState={state}\nInvocationID={invocation}\n")

    @property
    def did(self) -> list[str]:
        """Return what was reloaded since the last call, and forget it."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


# A unit file that is newer than the last daemon-reload was not read; of a template only instances are known.
SYSTEMCTL = """#!/bin/sh
cd {folder}
case "$*" in
    *NeedDaemonReload*) shift 3; for unit; do
        case $unit in *@.*) echo "$unit has no instance" >&2; exit 1 ;; esac
        if [ units/$unit -nt read ]; then echo yes; else echo no; fi; done ;;
    show*\\ gone.service) printf 'LoadState=not-found\\nActiveState=inactive\\nInvocationID=\\n' ;;
    show*) cat service ;;
    *) [ ! -e broken ] || {{ echo "Job failed." >&2; exit 1; }}; echo "$@" >> log; touch -d '+1 sec' read ;;
esac
"""


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    return Systemd(tmp_path / "systemd", monkeypatch)


class Killed(BaseException):
    pass


def killed(*_: object) -> None:
    raise Killed


def test_a_service_is_reloaded_when_its_files_change_and_not_again(run: Run, systemd: Systemd, tmp_path: Path) -> None:
    desired = {"path": str(tmp_path / "file"), "content": "new"}
    planned = run(desired, service="ssh", check=True)
    assert planned["reloaded"] == ["ssh"] and systemd.did == []
    changed = run(desired, service="ssh", validate="true")
    assert changed["reloaded"] == ["ssh"] and systemd.did == ["reload ssh"]
    assert not run(desired, service="ssh")["changed"] and not run(desired, service="ssh", check=True)["changed"]
    assert systemd.did == []


@pytest.mark.parametrize("place", ["services.reload", "FileChange.apply"])
def test_a_reload_that_was_lost_is_repeated(
    run: Run, systemd: Systemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    desired = [{"path": str(tmp_path / name), "content": "new"} for name in ("one", "two")]
    assert run(*desired, service="ssh")["changed"] and systemd.did == ["reload ssh"]
    for item in desired:
        item["content"] = "newer"
    module = "ansible_collections.deeplearning.aws.plugins.modules.managed_files"
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(f"{module}.{place}", killed)
        module_arguments = {"files": desired, "service": "ssh"}
        with patch_module_args(module_arguments):
            main()
    # Whether or not it wrote anything, it may have.
    for item in desired:
        Path(item["path"]).write_text("newer")
    assert systemd.did == []
    assert run(*desired, service="ssh", check=True)["reloaded"] == ["ssh"] and systemd.did == []
    again = run(*desired, service="ssh")
    assert (again["changed"], again["paths"], systemd.did) == (True, [], ["reload ssh"])
    assert not run(*desired, service="ssh")["changed"]


def test_a_restarted_service_is_reloaded_once_and_a_stopped_one_never(
    run: Run, systemd: Systemd, tmp_path: Path
) -> None:
    desired = {"path": str(tmp_path / "file"), "content": "new"}
    systemd.start("", state="inactive")
    assert run(desired, service="ssh")["reloaded"] == [] and not run(desired, service="ssh")["changed"]
    systemd.start("second")
    assert run(desired, service="ssh")["reloaded"] == ["ssh"] and systemd.did == ["reload ssh"]
    assert not run(desired, service="ssh")["changed"]


def test_a_service_is_not_reloaded_with_invalid_files(run: Run, systemd: Systemd, tmp_path: Path) -> None:
    desired = {"path": str(tmp_path / "file"), "content": "new"}
    refused = run(desired, service="ssh", validate="sh -c 'echo bad >&2; exit 1'")
    assert refused["failed"] and "put back" in refused["msg"] and systemd.did == []
    # Left by a run that was killed before it could put them back.
    (tmp_path / "file").write_text("new")
    refused = run(desired, service="ssh", validate="sh -c 'echo bad >&2; exit 1'")
    assert refused["failed"] and refused["msg"].endswith("so that ssh is not reloaded: bad") and systemd.did == []


def test_a_failed_reload_is_reported_and_retried(run: Run, systemd: Systemd, tmp_path: Path) -> None:
    desired = {"path": str(tmp_path / "file"), "content": "new"}
    (systemd.folder / "broken").touch()
    for _unused in range(2):
        refused = run(desired, service="ssh")
        assert refused["failed"] and refused["msg"].startswith("systemctl reload ssh fails: Job failed.")
    (systemd.folder / "broken").unlink()
    assert run(desired, service="ssh")["reloaded"] == ["ssh"]
    refused = run(desired, service="gone")
    assert refused["failed"] and refused["msg"].startswith("gone is no service that systemd knows here (not-found)")


def test_systemd_reloads_units_that_another_process_changed(run: Run, systemd: Systemd, tmp_path: Path) -> None:
    names = ("our.timer", "our@.service")
    desired = [{"path": str(systemd.units / name), "content": "new"} for name in names]
    other = {"path": str(tmp_path / "file"), "content": "new"}
    assert run(*desired, other, daemon_reload=True)["reloaded"] == ["systemd"] and systemd.did == ["daemon-reload"]
    assert not run(*desired, other, daemon_reload=True)["changed"]
    # As if it had been written by a run that was killed right after that.
    os.utime(systemd.units / "our.timer", (time.time() + 5, time.time() + 5))
    assert run(*desired, daemon_reload=True, check=True)["reloaded"] == ["systemd"] and systemd.did == []
    assert run(*desired, daemon_reload=True)["reloaded"] == ["systemd"] and systemd.did == ["daemon-reload"]
    # Without units among the files systemd is not asked.
    assert run(other, daemon_reload=True)["reloaded"] == []
