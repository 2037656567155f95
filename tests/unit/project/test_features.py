"""docs/features.md: tests that exist and are run, by what and when they were, and with their stand-ins, by its tool."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from tests import run
from tests.layers.records import Recorded
from tools import features_docs
from tools.features_docs import Collected

OWN = "tests/unit/project/test_features.py"
TODAY = Recorded(True, 1.0, "2026-11-24")


def test_the_page_shows_what_runs_each_test_that_it_names() -> None:
    page = features_docs.PAGE.read_text(encoding="utf-8")
    features = [line for line in page.splitlines() if line.startswith("| ") and line.count("|") >= 5]
    unnamed = [row for row in features if not features_docs.ROW.match(row)]
    # The heads of tables.
    assert {row.split("|")[1] for row in unnamed} == {" feature ", " --- "} and len(features) > 150
    assert page == features_docs.renewed(), "run .venv/bin/python tools/features_docs.py"


@pytest.mark.parametrize(
    ("collected", "cells"),
    [
        ([Collected(frozenset({"unit"}))], " unit: 2026-11-24 | – |"),
        (
            [Collected(frozenset({"long runs"}), ("a: b",)), Collected(frozenset({"unit"}), ("a: b", "c: d"))],
            " unit: 2026-11-24; long runs: not recorded | a: b; c: d |",
        ),
        ([Collected(frozenset({"long account"}))], " long account: 2026-11-22, failed | – |"),
    ],
)
def test_layers_stand_in_their_order_with_dates_and_stand_ins_once(collected: list[Collected], cells: str) -> None:
    runs = {"unit": TODAY, "long account": Recorded(False, 2.0, "2026-11-22")}
    assert features_docs.ending(collected, runs) == cells


@pytest.mark.parametrize(
    ("name", "problem"),
    [("molecule/none", "molecule/none: no such scenario"), (f"{OWN}::test_none", "not found: "), (OWN, "by no layer")],
)
def test_what_does_not_exist_or_is_not_run_is_refused(name: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SHORT", {})
    with pytest.raises(ValueError, match=problem):
        features_docs.collect([name])


@pytest.mark.parametrize(
    ("tests", "cells"),
    [
        ("`tests/gpu/test_environments.py::test_what_is_published", "| long gpu-environments: *| NVIDIA's driver: "),
        ("`tests/account/test_logs.py` |", "account: *| ssh: "),
        ("test_bad_luck.py::test_a_used_up_quota_is_explained` |", "account: *; long account: *| – |"),
        ("`molecule/default` |", "| molecule: *| – |"),
    ],
    ids=["a function", "a file", "a parameter", "a scenario"],
)
def test_markers_are_those_of_functions_files_and_parameters(tests: str, cells: str) -> None:
    (row,) = [line for line in features_docs.PAGE.read_text(encoding="utf-8").splitlines() if tests in line]
    assert fnmatchcase(row, f"*{cells}*"), row
