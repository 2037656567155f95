"""tools/made_part.py: what a tool makes replaces its part of a page and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.made_part import MadePart

BEGIN, END = "<!-- rows: made by tools/rows_docs.py -->", "<!-- end of rows -->"


@pytest.fixture
def part(tmp_path: Path) -> MadePart:
    return MadePart(tmp_path / "page.md", "rows", "rows_docs")


def test_only_the_part_is_replaced(part: MadePart) -> None:
    part.write(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert part.renewed("new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


@pytest.mark.parametrize("page", ["", BEGIN, END, f"{END}\n{BEGIN}"])
def test_a_page_without_both_comments_loses_nothing(part: MadePart, page: str) -> None:
    part.write(page)
    with pytest.raises(ValueError, match="end of rows"):
        part.renewed("new")
