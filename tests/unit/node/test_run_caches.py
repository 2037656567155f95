"""The folder for what a run's processes compile: whose it is, and which variables lead to it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from deeplearning.contract import paths
from deeplearning.runs import caches, wrapper
from deeplearning.runs import plan as plans
from deeplearning.runs.folder import Folder
from deeplearning.runs.plan import Node

from tests.unit.node.runs_kit import record
from tests.unit.node.users_kit import NOBODY

OWN = {"python": "/efs/env/bin/python", "folder": "/efs/x"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of this user's folder, in one where all users may create theirs."""
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(caches, "FOLDER", f"{tmp_path}/cache")
    return tmp_path / f"cache-{os.getuid()}"


def test_the_folder_is_created_for_this_user_alone_and_used_again(folder: Path) -> None:
    for _time in range(2):
        assert caches.create() == (str(folder), "")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.root
@pytest.mark.parametrize("prepared", ["another user's", "a link", "a link to nothing", "a file"])
def test_a_folder_that_another_user_has_prepared_is_not_used(folder: Path, tmp_path: Path, prepared: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    if prepared == "another user's":
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
    elif prepared == "a file":
        folder.touch()
    else:
        folder.symlink_to(other if prepared == "a link" else tmp_path / "gone")
    path, warning = caches.create()
    assert path == "" and list(other.iterdir()) == []
    assert warning.startswith(f"what it compiles is not kept on this node's disk: {folder} ")
    assert caches.variables(path, OWN, 8) == {}


def test_a_disk_that_is_read_only_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "FOLDER", "/proc/deeplearning-cache")
    path, warning = caches.create()
    assert path == "" and "No such file or directory" in warning


@pytest.mark.parametrize("gpus", [0, 2])
def test_what_is_compiled_is_kept_on_the_nodes_own_disk(gpus: int) -> None:
    """TensorPack's TensorFlow has no kernels for p5: its first start compiles for half an hour."""
    expected = {"TRITON_CACHE_DIR": "/c/triton", "TORCHINDUCTOR_CACHE_DIR": "/c/inductor"}
    expected |= {"PYTHONPYCACHEPREFIX": "/c/python"}
    cuda = {"CUDA_CACHE_PATH": "/c/cuda", "CUDA_CACHE_MAXSIZE": "4294967296"}
    assert caches.variables("/c", OWN, gpus) == {**expected, **(cuda if gpus else {})}


@pytest.mark.parametrize(
    ("python", "script", "kept"),
    [
        (f"{paths.ENVIRONMENTS}/pytorch/bin/python", paths.TRAINERS, False),
        (f"{paths.ENVIRONMENTS}/pytorch/bin/python", "/efs/runs/c/r1/code", True),
        ("/efs/env/bin/python", paths.TRAINERS, True),
    ],
)
def test_pythons_of_the_collection_that_are_compiled_already_stay_where_they_are(
    python: str, script: str, kept: bool
) -> None:
    variables = caches.variables("/c", {"python": python, "folder": script}, 0)
    assert ("PYTHONPYCACHEPREFIX" in variables) is kept


def test_variables_of_the_user_and_of_the_node_win(
    run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "/the/node's")
    own = {"CUDA_CACHE_PATH": "/mine", "PYTHONPYCACHEPREFIX": ""}
    (tmp_path / "environment.json").write_text(json.dumps({"environment": own}))
    plan = plans.make(record("pytorch", "ddp"), [Node("a", "10.0.0.1", 1)])
    start = {**OWN, "environment_file": str(tmp_path / "environment.json"), "efs_mount": "/efs", "run_id": "r1"}
    start |= {"run_dir": run.path, "data": "", "attempt": 0, "command": ["x"], "arguments": []}
    environment, _command = wrapper.prepare(start, plan, plan.processes[0], "/c")
    expected = {**own, "TRITON_CACHE_DIR": "/the/node's", "TORCHINDUCTOR_CACHE_DIR": "/c/inductor"}
    assert {name: environment[name] for name in expected} == expected
    assert not {"HF_HOME", "XDG_CACHE_HOME"} & {*caches.variables("/c", start, 8)}
