"""The module files: all of it as it shall be, in check mode too, and put back where that is not liked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible.plugins.loader import action_loader
from ansible_collections.deeplearning.aws.plugins.modules.files import main

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*files: dict[str, Any], **arguments: Any) -> dict[str, Any]:
        check = arguments.pop("check", False)
        given = {"files": list(files), **arguments, "_ansible_check_mode": check, "_ansible_diff": True}
        with patch_module_args(given), pytest.raises(SystemExit):
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


def test_files_are_made_changed_and_removed_in_one_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "gone").write_text("gone")
    (tmp_path / "tool").write_text("tool")
    wanted = (
        {"path": str(tmp_path / "deep/new"), "content": "new", "mode": "0755"},
        {"path": str(tmp_path / "old"), "content": "newer"},
        {"path": str(tmp_path / "gone"), "state": "absent"},
        {"path": str(tmp_path / "tool"), "mode": "4755"},
    )
    before = seen(tmp_path)
    planned = run(*wanted, check=True)
    assert planned["changed"] and seen(tmp_path) == before
    made = run(*wanted)
    assert made["paths"] == planned["paths"] == [item["path"] for item in wanted]
    assert [(one["before"], one["after"]) for one in made["diff"]][:3] == [("", "new"), ("old", "newer"), ("gone", "")]
    assert seen(tmp_path) == {"deep/new": ("new", "755"), "old": ("newer", "644"), "tool": ("tool", "4755")}
    assert not run(*wanted)["changed"] and not run(*wanted, check=True)["changed"]


def test_a_folder_holds_what_it_is_given_and_nothing_else(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub/__pycache__").mkdir(parents=True)
    (folder / "sub/__pycache__/a.pyc").write_text("compiled")
    (folder / "stray/deep").mkdir(parents=True)
    (folder / "stray/deep/file").write_text("stray")
    wanted = {"path": str(folder), "contents": {"a.py": "a", "sub/run": "#!/bin/sh\n"}}
    assert run(wanted)["changed"]
    assert seen(folder) == {
        "a.py": ("a", "644"),
        "sub/run": ("#!/bin/sh\n", "755"),
        "sub/__pycache__/a.pyc": ("compiled", "644"),
    }
    assert not (folder / "stray").exists() and not run(wanted)["changed"]

    assert run({"path": str(folder), "state": "absent"})["changed"]
    assert not folder.exists() and tmp_path.exists()
    assert not run({"path": str(folder), "state": "absent"})["changed"]


def test_what_is_not_liked_is_put_back(run: Run, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "gone").write_text("gone")
    before = seen(tmp_path)
    wanted = (
        {"path": str(tmp_path / "old"), "content": "bad", "mode": "0600"},
        {"path": str(tmp_path / "new"), "content": "new"},
        {"path": str(tmp_path / "gone"), "state": "absent"},
    )
    refused = run(*wanted, validate=f"sh -c 'cat {tmp_path}/old >&2; exit 3'")
    assert refused["failed"] and "put back" in refused["msg"] and refused["msg"].endswith("bad")
    assert seen(tmp_path) == before
    assert run(*wanted, validate="true")["changed"]
    # Nobody asks when there was nothing to write.
    assert not run(*wanted, validate="false")["changed"]


def test_what_is_somebody_elses_stays(run: Run, tmp_path: Path) -> None:
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


def test_the_mode_of_what_is_not_there_cannot_be_set(run: Run, tmp_path: Path) -> None:
    refused = run({"path": str(tmp_path / "none"), "mode": "4755"})
    assert refused["failed"] and "does not exist" in refused["msg"]


def test_sources_are_read_where_ansible_runs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub/__pycache__").mkdir(parents=True)
    for name in ("a.py", "sub/b.py", "sub/__pycache__/b.pyc", ".hidden"):
        (source / name).write_text(name)
    reads = action_loader.get("deeplearning.aws.files", class_only=True)._with_texts
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
