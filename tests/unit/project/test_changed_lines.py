"""docs/emr.md: the lines of scripts that read S3 in place, and the same files in the folder of a run's data."""

from __future__ import annotations

import ast
import re

from tests.changed_lines import changed, changed_lines

STAGED = "training-data"
SCRIPT = """
import os
train_iter = ImageRecordIter(
    image="s3://bucket-name/training-data/train-images-idx3-ubyte",
    batch_size=1,
)
if True:
    train_fname='s3://bucket-name/training-data/cifar10_train.rec'
"""


def test_each_line_reads_the_same_file_in_the_folder_of_the_runs_data() -> None:
    lines = changed_lines()
    assert len(lines) == 4
    for old, new in lines.items():
        (name,) = re.findall(rf"s3://bucket-name/{STAGED}/([\w.-]+)", old)
        assert old.split("=")[0] == new.split("=")[0] and re.search(rf"/{re.escape(name)}['\"]", new)
        statement = ast.parse(f"dict({new})")
        assert "DEEPLEARNING_DATA_DIR" in ast.dump(statement) and "s3:" not in new


def test_a_script_is_changed_in_these_lines_and_no_other() -> None:
    before, after = SCRIPT.splitlines(), changed(SCRIPT).splitlines()
    assert [old != new for old, new in zip(before, after, strict=True)] == ["s3://" in line for line in before]
    assert "s3://" not in changed(SCRIPT)
    ast.parse(changed(SCRIPT))
