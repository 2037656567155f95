"""bench/soak.py: what its watch finds wrong, and how it counts lost steps."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.account.kit import ROOT

MEMBERS = [{"rank": 1, "instance_id": "i-1"}, {"rank": 2, "instance_id": "i-2"}]


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import soak

    return soak


class View:
    """A cluster with one machine, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.list: dict[str, Any] = {"generation": 5, "members": MEMBERS, "signature": "x"}
        for path in ("etc", "opt/deeplearning", "metrics"):
            (folder / path).mkdir(parents=True)
        self.write("/opt/deeplearning/workers", "deeplearning-worker1\ndeeplearning-worker2\n")

    def machines(self) -> dict[str, int]:
        return {"i-1": os.getpid()}

    def published(self) -> dict[str, Any]:
        return self.list

    def write(self, path: str, text: str) -> None:
        Path(f"{self.folder}{path}").write_text(text)

    def run_file(self, _run_id: str, name: str) -> Path:
        return self.folder / name

    def run_record(self, _run_id: str, _name: str) -> dict[str, Any]:
        return {"processes": [{}, {}, {}]}

    def attempt(self, *steps: int) -> None:
        """Let an attempt write its metrics, in the third epoch."""
        lines = [{"epoch": 2, "step": 124, "val_accuracy": 0.9}]
        lines += [{"epoch": 3, "step": step, "val_accuracy": None} for step in steps]
        new = self.folder / "new"
        new.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"epo')
        new.rename(self.folder / "metrics/rank0.jsonl")


@pytest.fixture
def view(tmp_path: Path, soak: ModuleType, monkeypatch: pytest.MonkeyPatch) -> View:
    view = View(tmp_path)
    monkeypatch.setattr(soak, "file_of", lambda _pid, path: Path(f"{tmp_path}{path}"))
    return view


def test_whole_files_are_read_and_nothing_is_wrong(soak: ModuleType, view: View) -> None:
    watch = soak.Watch(view, "r")
    view.write("/etc/hosts", "127.0.0.1 localhost\n# BEGIN deeplearning (x)\n# END deeplearning\n")
    watch.look()
    assert (watch.wrong, watch.reads) == ([], 3)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/opt/deeplearning/workers", ""),
        ("/opt/deeplearning/workers", "deeplearning-worker1\ndeeplearn"),
        ("/opt/deeplearning/hostfile", "deeplearning-worker1 slo"),
        ("/etc/hosts", "127.0.0.1 localhost\n# BEGIN deeplearning (x)\n"),
    ],
)
def test_torn_files_are_found(soak: ModuleType, view: View, path: str, text: str) -> None:
    watch = soak.Watch(view, "r")
    view.write(path, text)
    watch.look()
    assert [f"{path} of i-1 is torn" in wrong for wrong in watch.wrong] == [True]


@pytest.mark.parametrize(
    "changed",
    [
        {"generation": 4},
        {"members": []},
        {"signature": ""},
        {"members": [{"rank": 2, "instance_id": "i-1"}]},
        {"members": [MEMBERS[0], {"rank": 1, "instance_id": "i-3"}]},
        {"members": 3},
    ],
)
def test_lists_that_break_a_promise_are_found(soak: ModuleType, view: View, changed: dict[str, Any]) -> None:
    watch = soak.Watch(view, "r")
    watch.look()
    view.list = {**view.list, **changed}
    watch.look()
    assert len(watch.wrong) == 1


def test_lost_steps_are_counted_for_each_attempt(soak: ModuleType, view: View) -> None:
    watch = soak.Watch(view, "r")
    for steps in ((125, 140, 157), (125, 140, 157, 160), (145, 150), (146,)):
        view.attempt(*steps)
        watch.look()
    assert (watch.lost_steps, watch.wrong) == ([33, 16, 5], [])
    assert watch.last_step() == 146
