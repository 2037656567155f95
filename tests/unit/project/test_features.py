"""docs/features.md: each test that it names exists, and `make test` runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAMED = re.findall(
    r"\| `((?:tests|localcloud|molecule)/[\w./:-]+)` \|$", (ROOT / "docs/features.md").read_text(), re.MULTILINE
)


@pytest.mark.parametrize("named", NAMED)
def test_each_feature_names_a_test_that_exists(named: str) -> None:
    path, _colons, function = named.partition("::")
    place = ROOT / path
    assert place.exists()
    assert not function or f"\ndef {function}(" in place.read_text()
    assert not function or f".mark.long\ndef {function}(" not in place.read_text()


def test_every_row_names_one() -> None:
    rows = [line for line in (ROOT / "docs/features.md").read_text().splitlines() if line.startswith("| ")]
    assert len(NAMED) == len([row for row in rows if not row.startswith(("| feature", "| ---"))])
