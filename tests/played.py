"""What tests play: recorded while they run, and kept in tests/played.json for those that pages name by `run by`.

python -m tests.played      merge the records of build/tests into tests/played.json
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "build/tests"
FILE = ROOT / "tests/played.json"
UPDATE = ".venv/bin/python -m tests.played"
VARIABLE = "PLAYED"
"""In the environment of a layer: the file that it records in."""
MARK = re.compile(r"^<!-- run by (.+) -->$", re.MULTILINE)

Plays = dict[str, dict[str, list[list[str]]]]
"""Tests, as in PYTEST_CURRENT_TEST, to playbooks and the names of -e of each play."""


def record(playbook: str, names: Iterable[str], test: str = "") -> None:
    """Append a play of a test, by default the current one. One write of one line: several processes do this.

    A playbook that a test wrote itself has another path in each run, and no page names it.
    """
    playbook = playbook.removeprefix(f"{ROOT}/")
    if Path(playbook).is_absolute():
        return
    test = test or os.environ.get("PYTEST_CURRENT_TEST", "")
    file = Path(os.environ.get(VARIABLE) or RECORDS / "by-hand.jsonl")
    file.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"test": test, "playbook": playbook, "names": sorted(names)}) + "\n"
    with file.open("ab", buffering=0) as output:
        output.write(line.encode())


def read(files: Iterable[Path]) -> Plays:
    """Return what records hold, without plays whose names another play of the same playbook has as well."""
    sets: dict[str, dict[str, set[frozenset[str]]]] = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            play = json.loads(line)
            sets.setdefault(play["test"], {}).setdefault(play["playbook"], set()).add(frozenset(play["names"]))
    return {
        test: {
            playbook: sorted(sorted(names) for names in plays if not any(names < other for other in plays))
            for playbook, plays in playbooks.items()
        }
        for test, playbooks in sets.items()
    }


def committed() -> Plays:
    plays: Plays = json.loads(FILE.read_text(encoding="utf-8"))
    return plays


def belongs(test: str, named: str) -> bool:
    """Return whether a recorded test is the named one. Plays of fixtures belong to all tests of their file."""
    file = named.partition("::")[0]
    return re.match(rf"{re.escape(named)}(\[|::| )", test) is not None or (
        test.startswith(f"{file}::") and test.endswith(" (setup)")
    )


def of_marks(plays: Mapping[str, dict[str, list[list[str]]]]) -> Plays:
    """Return the plays of tests that a page names and that still exist."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = {test for mark in MARK.findall(text) for test in mark.split(", ")}
    return {
        test: dict(sorted(plays[test].items()))
        for test in sorted(plays)
        if exists(test) and any(belongs(test, name) for name in named)
    }


def exists(test: str) -> bool:
    path, _, name = test.partition("::")
    function = re.split(r"[\[ ]", name)[0]
    return (ROOT / path).is_file() and f"\ndef {function}(" in (ROOT / path).read_text(encoding="utf-8")


def covers(plays: Mapping[str, list[list[str]]], kept: Mapping[str, list[list[str]]]) -> bool:
    """Return whether each kept play was made, with its names or more."""
    return all(
        any(set(names) <= set(others) for others in plays.get(playbook, ()))
        for playbook, names_of_plays in kept.items()
        for names in names_of_plays
    )


def stale(file: Path) -> list[str]:
    """Return the tests that did not play what tests/played.json has of them.

    Which test sets a fixture up depends on the run, and so may what a test plays in addition.
    """
    kept = committed()
    return [
        test
        for test, plays in of_marks(read([file])).items()
        if test.endswith(" (call)") and not covers(plays, kept.get(test, {}))
    ]


def merge() -> None:
    """Replace the entries of the tests that were recorded, drop those that no page names, and consume the records."""
    files = sorted(RECORDS.glob("*.jsonl"))
    plays = of_marks(committed() | read(files))
    FILE.write_text(json.dumps(plays, indent=1) + "\n", encoding="utf-8")
    for file in files:
        file.unlink()


if __name__ == "__main__":
    merge()
