"""The tests' own scripts with an old interface have each option and habit of the published ones that is recorded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.old_scripts import EMR_SCRIPTS, SCRIPTS
from tests.published.programs import ACCELERATE_SCRIPT, DDP_REQUIREMENTS, LIGHTNING_DEMO, OWN, PROGRAMS, SNAPSHOTS

OWN_SCRIPTS = {**SCRIPTS, **EMR_SCRIPTS}


@pytest.mark.parametrize("name", OWN_SCRIPTS)
def test_an_own_script_has_the_options_of_the_published_one(name: str) -> None:
    recorded = [text for program in OWN[name] for text in program.lines]
    assert recorded and [text for text in recorded if text not in OWN_SCRIPTS[name]] == []


def test_each_program_is_named_by_repository_commit_and_sha256() -> None:
    assert OWN.keys() == OWN_SCRIPTS.keys()
    assert all(len(snapshot.commit) == 40 for snapshot in SNAPSHOTS)
    assert len({snapshot.folder for snapshot in SNAPSHOTS}) == len(SNAPSHOTS)
    assert all(len(program.sha256) == 64 and program.snapshot in SNAPSHOTS for program in PROGRAMS)


def test_programs_get_the_packages_that_their_authors_name() -> None:
    folder = Path(__file__).resolve().parents[2] / "published"
    pins = {
        name: set(
            re.findall(r"^(\S+) ", (folder / f"requirements-{name}.txt").read_text(encoding="utf-8"), re.MULTILINE)
        )
        for name in ("ddp", "lightning")
    }
    assert set(" ".join(DDP_REQUIREMENTS.lines).split()) <= pins["ddp"]
    for file in (ACCELERATE_SCRIPT, LIGHTNING_DEMO):
        assert "==".join(file.wheel.split("-")[:2]) in pins["lightning"] and len(file.sha256) == 64


def test_the_page_brings_each_snapshot() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/testing.md").read_text(encoding="utf-8")
    brought = [line.split()[1:] for line in page.splitlines() if line.startswith("get ")]
    assert brought == [[snapshot.repository, snapshot.commit] for snapshot in SNAPSHOTS]
