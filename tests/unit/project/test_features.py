"""docs/features.md: each test that it names exists, and `make test` runs it unless the row names the long layer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run import LONG_SCENARIOS

ROOT = Path(__file__).resolve().parents[3]
ROWS = [
    row
    for row in (ROOT / "docs/features.md").read_text().splitlines()
    if row.startswith("| ") and not row.startswith(("| feature", "| ---"))
]
NAMED = re.compile(r"\| `((?:tests|localcloud|molecule)/[\w./:-]+)` \|$")


def named_in(row: str) -> str:
    match = NAMED.search(row)
    assert match, row
    return match[1]


def may_be_long(file: str) -> bool:
    return file.endswith(".py") and "mark.long" in (ROOT / file).read_text()


@pytest.fixture(scope="module")
def quick() -> set[str]:
    """The tests that `make test` runs of the named files that may have long ones, and these files, by pytest."""
    files = {named_in(row).partition("::")[0] for row in ROWS}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not long"),
            *sorted(filter(may_be_long, files)),
        ],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    tests = {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}
    return tests | {test.partition("::")[0] for test in tests}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:60])
def test_each_feature_names_a_test_that_exists_and_runs(row: str, quick: set[str]) -> None:
    path, _colons, function = (named := named_in(row)).partition("::")
    if path.startswith("molecule/"):
        assert (ROOT / path / "molecule.yml").exists() and not function
        runs = Path(path).name not in LONG_SCENARIOS
    else:
        assert f"\ndef {function}(" in (ROOT / path).read_text() if function else (ROOT / path).exists()
        runs = named in quick or not may_be_long(path)
    assert runs or "long layer" in row, "`make test` does not run it, and the row does not say so"
