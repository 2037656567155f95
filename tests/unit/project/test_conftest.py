"""What holds for every test: none is skipped or reaches an AWS account, some need root, and failures are kept."""

from __future__ import annotations

import json
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


FAILING = """
import pytest

@pytest.fixture
def broken(): raise ValueError
def test_passes(): pass
def test_fails(): assert False
def test_cannot_start(broken): pass
"""

NEEDS_ROOT = """
import os
import pytest

os.geteuid = lambda: {user}

def test_plain(): pass
@pytest.mark.root
@pytest.mark.parametrize("number", range(3))
def test_owner(number): pass
@pytest.mark.root
def test_other(): pass
"""


def pytest_says(folder: Path, text: str, *options: str, **environment: str) -> str:
    (folder / "tests").mkdir()
    for name in ("conftest.py", "tests/history.py", "tests/git.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\nmarkers =\n  root\n  program(*names)\n")
    (folder / "test_examples.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", *options, str(folder)],
        cwd=folder,
        env=os.environ | {"AWS_PROFILE": "production", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def failures(folder: Path) -> list[dict[str, object]]:
    file = folder / "build/test-history.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


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


@pytest.mark.parametrize("workers", ["0", "2"])
def test_tests_that_need_root_are_counted_for_other_users(tmp_path: Path, workers: str) -> None:
    output = pytest_says(tmp_path, NEEDS_ROOT.format(user=1000), "-n", workers)
    assert output.count("need root") == 1 and "\n4 tests need root: not run\n" in output
    assert "1 passed" in output


def test_only_selected_tests_are_counted(tmp_path: Path) -> None:
    output = pytest_says(tmp_path, NEEDS_ROOT.format(user=1000), "-k", "plain or other")
    assert "\n1 tests need root: not run\n" in output


def test_tests_of_a_program_need_root_if_it_is_missing(tmp_path: Path) -> None:
    cases = {"sh": "have_one", "no-such-program": "lack_it", "no-such-program', 'sh": "have_the_other"}
    tests = "".join(f"@pytest.mark.program('{names}')\ndef test_{case}(): pass\n" for names, case in cases.items())
    output = pytest_says(tmp_path, NEEDS_ROOT.format(user=1000) + tests, "-k", "have or lack")
    assert "2 passed" in output and "\n1 tests need root: not run\n" in output


def test_root_runs_all_tests(tmp_path: Path) -> None:
    output = pytest_says(tmp_path, NEEDS_ROOT.format(user=0))
    assert "5 passed" in output and "need root" not in output


@pytest.mark.parametrize("workers", ["0", "2"])
def test_failures_are_kept_with_the_commit(tmp_path: Path, workers: str) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=me", "-c", "user.email=me@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "begin"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    pytest_says(tmp_path, FAILING, "-n", workers)
    kept = sorted(failures(tmp_path), key=lambda line: str(line["test"]))
    assert [(line["test"], line["phase"]) for line in kept] == [
        ("test_examples.py::test_cannot_start", "setup"),
        ("test_examples.py::test_fails", "call"),
    ]
    for line in kept:
        assert line["commit"] == commit and str(line["time"]).startswith("20")
        assert isinstance(line["seconds"], float) and isinstance(line["load"], float)


def test_failures_are_kept_without_git_and_after_those_of_earlier_runs(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build/test-history.jsonl").write_text('{"test": "earlier"}\n')
    pytest_says(tmp_path, "import no_such_module\n", PATH=str(tmp_path))
    earlier, failed = failures(tmp_path)
    assert earlier == {"test": "earlier"}
    assert (failed["test"], failed["phase"], failed["commit"]) == ("test_examples.py", "collect", "")


def test_a_run_without_failures_keeps_nothing(tmp_path: Path) -> None:
    pytest_says(tmp_path, "def test_passes(): pass\n")
    assert failures(tmp_path) == []
