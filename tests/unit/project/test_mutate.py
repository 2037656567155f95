"""tools/mutate.py on a tiny checkout: what it chooses, what it counts as noticed, and that it changes only a copy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import mutate
from tools.mutation.changes import Places
from tools.mutation.trial import Outcome

ROOT = Path(__file__).parents[3]
MODULE = "files/node/deeplearning/sums.py"
SOURCE = '''"""Sums of 3 numbers."""

from __future__ import annotations

DOCUMENTATION = "yes"
Pair = tuple[int, int]
LEAST = 1


def total(first: int, second: int = 2) -> "int":
    """Return 5."""
    if first < LEAST:
        raise ValueError("too small a number")
    return first + second


def unused(names: list[str]) -> str:
    return f"{len(names)} {1 + 1}" if names else "none"


def wait(left: int) -> None:
    while left > 0:
        left -= 1
'''
TESTS = """import pytest
from deeplearning.sums import total, wait

def test_total():
    assert total(5) == 7

def test_small():
    with pytest.raises(ValueError):
        total(0)

def test_wait():
    wait(2)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        MODULE: SOURCE,
        "files/node/deeplearning/__init__.py": "",
        "tests/unit/node/test_sums.py": TESTS,
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["files/node"]\n',
        ".gitignore": ".cache/\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def mutated(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools/mutate.py", "--root", checkout, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def place(text: str, kind: str) -> str:
    """Return the only place with this change in the module."""
    [only] = [
        change.place
        for change in Places(MODULE, SOURCE.encode()).all()
        if (change.kind, change.description) == (kind, text)
    ]
    return only


def contents(checkout: Path) -> dict[Path, bytes]:
    files = (path for path in checkout.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path: path.read_bytes() for path in files if ".cache" not in path.parts}


def test_changes_are_tried_in_a_copy(checkout: Path) -> None:
    before = contents(checkout)
    caught, default = place("+ → -", "arithmetic"), place("2 → 3", "default")
    missed, run_by_none = place("< → <=", "compare"), place("\"none\" → 'nonex'", "string")
    endless = place("left -= 1 → pass", "statement")
    done = mutated(checkout, "--patience", "1", "--only", caught, default, missed, run_by_none, endless)
    verdicts = {line.partition(": ")[0]: line.rpartition(": ")[2] for line in done.stdout.splitlines()}
    assert verdicts[caught] == verdicts[default] == "killed by tests/unit/node/test_sums.py::test_total", done
    assert verdicts[missed] == "SURVIVED 3 tests"
    assert verdicts[run_by_none] == "SURVIVED 3 tests, none of which runs it"
    assert verdicts[endless] == "timeout by tests/unit/node/test_sums.py::test_wait"
    assert contents(checkout) == before


def test_tests_that_fail_without_a_change_are_left_out(checkout: Path) -> None:
    tests = checkout / "tests/unit/node/test_sums.py"
    tests.write_text(tests.read_text().replace("== 7", "== 8"))
    done = mutated(checkout, "--only", place("+ → -", "arithmetic"))
    assert "left out: tests/unit/node/test_sums.py::test_total\n" in done.stdout
    assert "SURVIVED 2 tests" in done.stdout


def test_a_sample_depends_on_its_seed_alone(checkout: Path) -> None:
    places = [change.place for change in mutate.sample(checkout, 5, 8)]
    assert len(set(places)) == 8
    assert [change.place for change in mutate.sample(checkout, 5, 8)] == places
    assert [change.place for change in mutate.sample(checkout, 6, 8)] != places


def test_a_line_more_changes_the_sample_little(checkout: Path) -> None:
    chosen = [change.identity for change in mutate.sample(checkout, 5, 8)]
    (checkout / MODULE).write_text(SOURCE.replace("LEAST = 1", "MOST = 9\nLEAST = 1"))
    again = [change.identity for change in mutate.sample(checkout, 5, 8)]
    assert len(set(chosen) & set(again)) >= 6


def test_documentation_types_and_formatted_texts_stay(checkout: Path) -> None:
    lines = SOURCE.splitlines()
    changes = list(Places(MODULE, SOURCE.encode()).all())
    assert len(changes) > 15
    assert {lines[change.line - 1] for change in changes}.isdisjoint(lines[:6])
    assert not [change for change in changes if "int" in change.before and change.line == 10]
    assert not [change for change in changes if change.line == 18 and change.kind in ("number", "arithmetic")]


def test_lines_keep_their_numbers() -> None:
    source = b"value = call(\n    1,\n    name=2,\n)\nlast = 1\n"
    for change in Places("plugins/x.py", source).all():
        assert change.apply(source).count(b"\n") == source.count(b"\n")


def test_a_record_is_compared_with_what_comes_later(checkout: Path) -> None:
    [change] = mutate.named(checkout, [place("+ → -", "arithmetic")])
    [other] = mutate.named(checkout, [place("< → <=", "compare")])
    rows = [
        mutate.Row(change, Outcome("killed", "a test", 1)),
        mutate.Row(change, Outcome("timeout", "a test", 1)),
        mutate.Row(other, Outcome("survived", "", 3)),
        mutate.Row(other, Outcome("survived", "", 0), "it cannot matter"),
    ]
    (checkout / mutate.RESULTS).parent.mkdir(parents=True)
    (checkout / mutate.RESULTS).write_text(mutate.report(checkout, 7, rows, 1.0))
    assert mutate.recorded(checkout) == (7, 4, 0.667)
    assert "it cannot matter" in (checkout / mutate.RESULTS).read_text()


@pytest.mark.parametrize(("verdict", "code"), [("killed", 1), ("survived", 0)])
def test_a_lower_rate_than_the_recorded_one_fails(checkout: Path, verdict: str, code: int) -> None:
    tests = "import deeplearning.sums\n\ndef test_nothing():\n    pass\n"
    (checkout / "tests/unit/node/test_sums.py").write_text(tests)
    [change] = mutate.sample(checkout, 5, 1)
    rows = [mutate.Row(change, Outcome(verdict, "", 1))]
    (checkout / mutate.RESULTS).parent.mkdir(parents=True)
    (checkout / mutate.RESULTS).write_text(mutate.report(checkout, 5, rows, 1.0))
    done = mutated(checkout, "--check")
    assert done.returncode == code, done
    assert ("the tests notice less than they did" in done.stdout) is (code == 1)


def test_what_is_accepted_does_not_count(checkout: Path) -> None:
    [change] = mutate.named(checkout, [place("< → <=", "compare")])
    (checkout / "tests").mkdir(exist_ok=True)
    mutate.accept(checkout, [change], "both are small")
    (checkout / MODULE).write_text("\n" + SOURCE)
    assert mutate.accepted(checkout) == {(MODULE, change.identity): "both are small"}
