"""A master on which the commands of `deeplearning run` are called."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deeplearning import cli
from deeplearning.contract import paths
from deeplearning.runs import commands, views
from deeplearning.runs.folder import SUBFOLDERS, Folder
from deeplearning.runs.run_log import RunLog

from tests.unit.node.members_kit import Node, cluster_in
from tests.unit.node.systemd_kit import Systemd, systemd_of

SUPERVISOR = "deeplearning-run@{}.service"


@dataclass
class Master:
    node: Node
    systemd: Systemd
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    @property
    def root(self) -> str:
        return paths.runs(self.node.config.efs_mount, "demo")

    def add(self, run_id: str, state: str = "", code: int = 0, **changes: Any) -> Folder:
        """Add a run: with a state if it was started, with a result if it has ended."""
        folder = Folder(f"{self.root}/{run_id}")
        for name in SUBFOLDERS:
            Path(folder.file(name)).mkdir(parents=True)
        record = {"run_id": run_id, "framework": "pytorch", "distribution": "ddp", "script": "/efs/train.py"}
        record |= {"cluster_id": self.node.config.cluster_id, "python": f"{paths.ENVIRONMENTS}/pytorch/bin/python"}
        record |= {"requested_by": "anna", "requested_at": "2026-11-23T03:00:00Z", "nodes": None, "script_args": []}
        record |= {"processes_per_node": 1, "servers": None}
        folder.write("run.json", {**record, **changes})
        if state:
            RunLog(folder).enter(state)
        if state in ("finished", "failed", "stopped"):
            sentence = f"run {run_id} has {state}"
            end = {"state": state, "exit_code": code, "first_failure": None, "sentence": sentence, "unanswered": []}
            folder.write("result.json", end)
            RunLog(folder).event("end", **end)
        return folder

    def supervise(self, run_id: str) -> None:
        self.systemd.units[SUPERVISOR.format(run_id)] = run_id

    def call(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        self.capsys.readouterr()
        self.monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with self.node.here():
            code = cli.main(["run", *words])
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err

    def answer(self, *words: str, stdin: str = "") -> Any:
        code, output, _errors = self.call(*words, stdin=stdin)
        assert code == 0
        return json.loads(output)


@contextmanager
def master_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Master]:
    cluster = cluster_in(tmp_path, monkeypatch)
    node = cluster.master()
    cluster.workers(2)
    node.publish()
    node.apply()
    Path(paths.runs(cluster.config.efs_mount, "demo")).mkdir(parents=True)
    users: list[str] = []
    monkeypatch.setattr(commands, "become", users.append)
    monkeypatch.setattr(views, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(views, "VANISHED_SECONDS", 0.0)
    with systemd_of(monkeypatch) as systemd:
        yield Master(node, systemd, monkeypatch, capsys)
    assert set(users) <= {"ubuntu"} and users
