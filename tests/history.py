"""A plugin for pytest that keeps which tests failed: one line of JSON for each, which CI stores as an artifact.

A test that fails once in a while shows up in the lines of many runs.
"""

from __future__ import annotations

import functools
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests import git

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "build/test-history.jsonl"


def pytest_configure(config: pytest.Config) -> None:
    # pytest-xdist sends the reports of its workers to the process that started them.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(), "test-history")


class _Recorder:
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            _append(report.nodeid, report.when, report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            _append(report.nodeid, "collect", None)


def _append(test: str, phase: str, seconds: float | None) -> None:
    line = {
        "commit": _commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "test": test,
        "phase": phase,
        "seconds": None if seconds is None else round(seconds, 2),
        "load": round(os.getloadavg()[0], 2),
    }
    FILE.parent.mkdir(exist_ok=True)
    with FILE.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


@functools.cache
def _commit() -> str:
    """Return the commit of the checkout, or nothing if git or its data is missing."""
    return git.output(ROOT, "rev-parse", "HEAD")
