"""The pages' commands change the recorded lines of published programs, and no other."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.published.conftest import Sources
from tests.published.pages import example_changes, tensorflow_changes
from tests.published.programs import CHANGES, DEEPLEARNING_CFN, MODELS, TENSORPACK, Change

pytestmark = pytest.mark.long

TRAINER = "efs/deeplearning-cfn"
FOLDERS = {
    DEEPLEARNING_CFN.folder: TRAINER,
    MODELS.folder: f"{TRAINER}/examples/tensorflow/models",
    TENSORPACK.folder: "home/tensorpack",
}
"""Where the guides put each repository."""


def changed(text: str, changes: list[Change]) -> str:
    lines = text.split("\n")
    for change in changes:
        assert change.old in lines[change.line - 1]
        lines[change.line - 1] = lines[change.line - 1].replace(change.old, change.new)
    return "\n".join(lines)


def test_the_pages_change_the_recorded_lines_and_no_other(sources: Sources, tmp_path: Path) -> None:
    expected = {}
    for program in [change.program for change in CHANGES]:
        file = tmp_path / FOLDERS[program.snapshot.folder] / program.path
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(sources.file(program), file)
        expected[file] = changed(file.read_text(), [change for change in CHANGES if change.program is program])
    (tmp_path / "efs/data/coco2017/train2017").mkdir(parents=True)
    variables = {"EFS_MOUNT": str(tmp_path / "efs"), "HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    for commands in (tensorflow_changes(), example_changes()):
        subprocess.run(["bash", "-ec", commands], env=variables, check=True)
    assert {file: file.read_text() for file in expected} == expected
    assert (tmp_path / "efs/data/train2017").is_dir()
