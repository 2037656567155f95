"""TensorPack's trackers of GPUs in runs on processors: programs import a made-up TensorPack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deeplearning.runs import stacks

SENTENCE = "deeplearning: GPUMemoryTracker and GPUUtilizationTracker of TensorPack do nothing: processor=true\n"
OFF = {"DEEPLEARNING_GPU_TRACKERS": "off"}
PROF = """
from .base import Callback

class GPUUtilizationTracker(Callback):
    _chief_only = False
    def __init__(self, devices=None): pass
    def before_train(self): raise AssertionError("needs GPU!")

class GPUMemoryTracker(GPUUtilizationTracker): pass

PeakMemoryTracker = GPUMemoryTracker

class HostMemoryTracker(Callback):
    def before_train(self): return "measured"
"""
PROGRAM = """
import json, sys
from tensorpack.callbacks import *
trackers = [GPUUtilizationTracker([0]), GPUMemoryTracker(devices=(0, 1)), PeakMemoryTracker(), GPUUtilizationTracker()]
assert all(isinstance(each, Callback) and not each._chief_only for each in trackers)
print(json.dumps([[each.before_train() for each in trackers], HostMemoryTracker().before_train()]))
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with a package of TensorPack's structure."""
    callbacks = tmp_path / "tensorpack" / "callbacks"
    callbacks.mkdir(parents=True)
    (callbacks.parent / "__init__.py").touch()
    (callbacks / "__init__.py").write_text("from .base import *\nfrom .prof import *\n")
    (callbacks / "base.py").write_text(
        "class Callback:\n    _chief_only = True\n    def before_train(self): return None\n"
    )
    (callbacks / "prof.py").write_text(PROF)
    return tmp_path


def run(packages: Path, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(packages), stacks.STARTUP])
    words = [sys.executable, "-c", program]
    return subprocess.run(words, env={"PYTHONPATH": path, **variables}, capture_output=True, text=True, check=False)


def test_they_do_nothing_and_the_log_says_so(packages: Path) -> None:
    done = run(packages, PROGRAM, **OFF)
    assert (done.returncode, done.stderr) == (0, SENTENCE)
    assert json.loads(done.stdout) == [[None] * 4, "measured"]


@pytest.mark.parametrize("variables", [{}, {"DEEPLEARNING_GPU_TRACKERS": ""}])
def test_without_the_variable_they_are_tensorpacks_own(packages: Path, variables: dict[str, str]) -> None:
    done = run(packages, PROGRAM, **variables)
    assert done.returncode == 1 and done.stderr.endswith("AssertionError: needs GPU!\n") and SENTENCE not in done.stderr


def test_nothing_is_imported_for_it(packages: Path) -> None:
    done = run(packages, "import sys; print([name for name in sys.modules if 'tensorpack' in name])", **OFF)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


@pytest.mark.parametrize(
    ("prof", "expected"),
    [
        (None, "No module named 'tensorpack.callbacks.prof'"),
        ("raise ImportError('TensorFlow is missing')", "TensorFlow is missing"),
        ("", None),
    ],
    ids=["missing", "fails", "other"],
)
def test_another_tensorpack_fails_or_works_as_ever(packages: Path, prof: Any, expected: str | None) -> None:
    file = packages / "tensorpack/callbacks/prof.py"
    if prof is None:
        file.unlink()
    else:
        file.write_text(prof)
    done = run(packages, "import tensorpack.callbacks", **OFF)
    assert done.returncode == (1 if expected else 0)
    assert done.stderr.endswith(f"{expected}\n") if expected else done.stderr == ""
