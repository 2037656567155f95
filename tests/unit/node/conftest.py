"""What tests of the node program share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from deeplearning.contract import paths
from deeplearning.runs import units
from deeplearning.runs.folder import Folder

from tests.nvml import Gpus
from tests.unit.node.runs_kit import CONFIG, create_run

COMPILING = {"tests.nvml", *(f"tests.unit.node.{kit}_kit" for kit in ("commands", "master", "members"))}
"""They compile a library for tests."""


def pytest_itemcollected(item: pytest.Item) -> None:
    assert isinstance(item, pytest.Function)
    used = {getattr(value, "__module__", "") for value in vars(item.module).values()}
    if "gpus" in item.fixturenames or used & COMPILING:
        item.add_marker(pytest.mark.program("cc"))


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a node keeps until it boots out of this machine's own /run."""
    folder, own = f"{tmp_path}-runtime", paths.RUNTIME
    for name in ("RUNTIME", "CONFIGURING", "CHECK_TIMES", "STOPPED_RUNS", "UNCHANGED"):
        monkeypatch.setattr(paths, name, getattr(paths, name).replace(own, folder))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A run that has been created. Nothing is stopped by systemctl."""
    monkeypatch.setattr(units, "stop_attempt", Mock())
    return create_run(replace(CONFIG, efs_mount=str(tmp_path)))


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """NVIDIA's library on this machine. There are no GPUs, and no driver, until the test sets `count`."""
    state = Gpus(tmp_path)
    for name, value in state.environment.items():
        monkeypatch.setenv(name, value)
    return state
