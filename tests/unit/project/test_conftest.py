"""A test that is skipped counts as failed, and tests see no AWS account of the user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

EXAMPLES = """
import os
import pytest

def test_plain(): pass
def test_skipped(): pytest.skip("no such package")
@pytest.mark.skipif(True, reason="not root")
def test_marked(): pass
@pytest.mark.xfail
def test_expected(): assert False
def test_account(): assert "AWS_PROFILE" not in os.environ and os.environ["AWS_CONFIG_FILE"] == os.devnull
"""


def pytest_says(folder: Path, text: str) -> str:
    shutil.copy(ROOT / "conftest.py", folder)
    (folder / "test_examples.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", str(folder)],
        cwd=folder,
        env=os.environ | {"AWS_PROFILE": "production"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_skipped_test_has_failed(tmp_path: Path) -> None:
    output = pytest_says(tmp_path, EXAMPLES)
    assert "1 failed, 2 passed, 1 xfailed, 1 error" in output
    assert "no such package" in output
    assert "not root" in output


@pytest.mark.parametrize("text", ['import pytest\npytest.importorskip("no_such_package")\n'])
def test_a_skipped_file_has_failed(tmp_path: Path, text: str) -> None:
    output = pytest_says(tmp_path, text)
    assert "1 error" in output
    assert "could not import 'no_such_package'" in output
