"""The trainers' options as docs have them."""

from __future__ import annotations

import re
from pathlib import Path

import common
import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_options import TABLE

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setattr("sys.argv", ["trainer", "--data-dir", "d", "--run-dir", "r"])
    return {f"--{name.replace('_', '-')}" for name in vars(common.arguments("A trainer.", ("ddp",), "ddp"))}


def test_the_trainers_page_lists_their_options(options: set[str]) -> None:
    page = (ROOT / "files/trainers/README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(--[a-z-]+)`", page, re.M)) == options


def test_what_old_arguments_have_become_exists(options: set[str]) -> None:
    page = (ROOT / "docs/old-arguments.md").read_text(encoding="utf-8")
    held = page.partition("<!-- held by")[2].partition("<!-- end -->")[0]
    cells = [re.split(r" \| ", line.strip("| "))[-1] for line in held.splitlines() if line.startswith("|")][2:]

    def find(pattern: str) -> set[str]:
        return {name for cell in cells for name in re.findall(pattern, cell)}

    names = {option.name for option in TABLE}
    assert find(r"`(--[a-z-]+)`") <= options and find(r"-e '?(?:\{\")?([a-z_]+)") <= names
    assert len(cells) > 30
