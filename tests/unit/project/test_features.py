"""docs/features.md: each test that it names exists, and `make test` runs it unless the row names the long layer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import run

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = tuple(f"{place}/" for place in (*run.UNIT, *run.ACCOUNT, *run.LOCALCLOUD, *run.INTEGRATION, *run.MOLECULE))
"""Those that `make test` runs the tests of."""
NAMED = re.compile(r"\| `((?:tests|localcloud|molecule)/[\w./:-]+)` \|$")


def named_by_row() -> dict[str, str]:
    rows = [line for line in (ROOT / "docs/features.md").read_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| feature", "| ---"))]
    assert rows and not [row for row in rows if not NAMED.search(row)]
    return {row: NAMED.findall(row)[0] for row in rows}


def run_by_pytest(named: set[str]) -> set[str]:
    """Return those that `make test` runs, and their files, as pytest collects them. It refuses what does not exist."""
    words = ("--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not long")
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *sorted(named)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    tests = {line.partition("[")[0] for line in done.stdout.splitlines() if line.startswith(FOLDERS)}
    return tests | {test.partition("::")[0] for test in tests}


def test_each_feature_names_a_test_that_exists_and_runs() -> None:
    named = named_by_row()
    scenarios = {test for test in named.values() if test.startswith("molecule/")}
    assert not [name for name in scenarios if not (ROOT / name / "molecule.yml").is_file()]
    runs = run_by_pytest(set(named.values()) - scenarios) | {f"molecule/{name}" for name in run.scenarios()}
    silent = [row for row, test in named.items() if test not in runs and "long layer" not in row]
    assert not silent, "`make test` does not run these tests, and the rows do not say so"
