"""Write into the rows of docs/features.md what runs their tests, when that was last recorded, and their stand-ins.

.venv/bin/python tools/features_docs.py

pytest collects the tests, and loads this file as a plugin for that.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import run  # noqa: E402
from tests.layers.records import Recorded, recorded_runs  # noqa: E402

PAGE = ROOT / "docs/features.md"
TEST = r"`(?:tests|localcloud|molecule)/[\w./-]+(?:::\w+)?`"
ROW = re.compile(rf"^(?P<said>\| .* \| (?P<tests>{TEST}(?:, {TEST})*) \|).*$", re.MULTILINE)
"""What a person writes of a row: the feature, the command and the tests. What follows is made."""
FILE = "COLLECTED_TESTS"
"""The environment variable that names the file for what pytest collects."""


@dataclass(frozen=True)
class Collected:
    """A function or a file of tests; one that has parameters may be run by both sizes."""

    layers: frozenset[str]
    stand_ins: tuple[str, ...] = ()


def pytest_collection_finish(session: Any) -> None:
    """Write each test with its markers."""
    tests = []
    for item in session.items:
        marker = item.get_closest_marker("stand_in")
        words = marker.args if marker else ()
        tests.append((item.nodeid.partition("[")[0], bool(item.get_closest_marker("long")), words))
    Path(os.environ[FILE]).write_text(json.dumps(tests), encoding="utf-8")


def collect(named: Iterable[str]) -> dict[str, Collected]:
    """Return what pytest collects of these functions and files, and scenarios. What does not exist is an error."""
    scenarios = {name for name in named if name.startswith("molecule/")}
    if missing := [name for name in scenarios if not (ROOT / name / "molecule.yml").is_file()]:
        raise ValueError(f"{', '.join(missing)}: no such scenario")
    functions = sorted(set(named) - scenarios)
    with TemporaryDirectory() as folder:
        file = Path(folder, "tests.json")
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        words = ("--collect-only", "-q", "-p", "no:cacheprovider", "-p", "tools.features_docs")
        pytest = [sys.executable, "-m", "pytest", *words, *functions]
        done = subprocess.run(
            pytest, cwd=ROOT, env=environment | {FILE: str(file)}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ValueError(done.stdout[-2000:] + done.stderr[-2000:])
        tests = json.loads(file.read_text(encoding="utf-8"))
    collected = {name: Collected(frozenset(run.layers_of(name, False))) for name in scenarios}
    for name in functions:
        own = [test for test in tests if name in (test[0], test[0].partition("::")[0])]
        layers = frozenset(layer for test, long, _words in own for layer in run.layers_of(test, long))
        if not layers:
            raise ValueError(f"{name} is run by no layer and no part.")
        collected[name] = Collected(layers, tuple(dict.fromkeys(word for *_test, words in own for word in words)))
    return collected


def ending(tests: list[Collected], runs: dict[str, Recorded]) -> str:
    """Return the cells that are made."""
    order = [*run.LAYERS, *(f"long {part}" for part in run.PARTS)]
    layers = sorted(set[str]().union(*(test.layers for test in tests)), key=order.index)
    stand_ins = dict.fromkeys(words for test in tests for words in test.stand_ins)
    return f" {'; '.join(f'{layer}: {date(runs.get(layer))}' for layer in layers)} | {'; '.join(stand_ins) or '–'} |"


def date(recorded: Recorded | None) -> str:
    if recorded is None:
        return "not recorded"
    return recorded.date if recorded.ok else f"{recorded.date}, failed"


def named_by(row: re.Match[str]) -> list[str]:
    return re.findall(r"`([^`]+)`", row["tests"])


def renewed() -> str:
    page, runs = PAGE.read_text(encoding="utf-8"), recorded_runs()
    collected = collect({name for row in ROW.finditer(page) for name in named_by(row)})
    return ROW.sub(lambda row: row["said"] + ending([collected[name] for name in named_by(row)], runs), page)


if __name__ == "__main__":
    PAGE.write_text(renewed(), encoding="utf-8")
