"""ruff's security rules: each finding that pyproject.toml accepts still occurs, and no line accepts one by itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
ACCEPTED = [
    (pattern, code)
    for pattern, codes in {**LINT["per-file-ignores"], "*": LINT["ignore"]}.items()
    for code in codes
    if code.startswith("S")
]


@pytest.fixture(scope="module")
def findings() -> set[tuple[str, str]]:
    """Path and code of each finding, with nothing accepted."""
    ruff = Path(sys.executable).with_name("ruff")
    options = ["--isolated", "--select=S", "--output-format=json", "--ignore-noqa"]
    done = subprocess.run([ruff, "check", *options], cwd=ROOT, capture_output=True, text=True)
    return {
        (str(Path(violation["filename"]).relative_to(ROOT)), violation["code"]) for violation in json.loads(done.stdout)
    }


@pytest.mark.parametrize(("pattern", "code"), ACCEPTED)
def test_what_is_accepted_still_occurs(pattern: str, code: str, findings: set[tuple[str, str]]) -> None:
    occurs = any(fnmatch(path, pattern) and rule == code for path, rule in findings)
    assert occurs, f"{code} does not occur in {pattern} any more: remove it from pyproject.toml"


def test_all_that_is_accepted_is_in_one_place(findings: set[tuple[str, str]]) -> None:
    unlisted = {
        (path, code)
        for path, code in findings
        if not any(fnmatch(path, pattern) and code == accepted for pattern, accepted in ACCEPTED)
    }
    assert unlisted == set()
