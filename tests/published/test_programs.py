"""The published programs are those that the facts were taken of, and have each option at its recorded line."""

from __future__ import annotations

import pytest

from tests.published.conftest import Sources
from tests.published.programs import Program

pytestmark = pytest.mark.long


def test_options_stand_at_their_lines(sources: Sources, program: Program) -> None:
    lines = sources.file(program).read_text(encoding="utf-8").splitlines()
    assert [f"{number}: {text}" for text, number in program.lines.items() if text not in lines[number - 1]] == []
