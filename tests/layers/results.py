"""What a layer's run returns, and pytest's report as such a result."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from tests.layers.commands import ROOT

REPORTS = ROOT / "build/tests"
"""pytest's reports and the output of lanes, by layer."""

SLOWEST = 25
"""So many of a layer's slowest tests are printed."""


@dataclass(frozen=True)
class Result:
    """What the commands of a layer have shown."""

    ok: bool
    detail: str
    command_seconds: float = 0
    """CPU seconds of the commands and of their children"""
    slowest: tuple[tuple[float, str], ...] = ()
    """Seconds and name of tests, the slowest first."""

    def __add__(self, other: Result) -> Result:
        return Result(
            self.ok and other.ok,
            f"{self.detail}, {other.detail}",
            self.command_seconds + other.command_seconds,
            tuple(sorted(self.slowest + other.slowest, reverse=True)[:SLOWEST]),
        )


@dataclass(frozen=True)
class Outcome:
    """A layer that has ended."""

    result: Result
    wall_seconds: float = 0
    cpu_seconds: float = 0
    """of everything that the layer started: its commands, and machines and servers in the background"""

    @property
    def background_seconds(self) -> float:
        """CPU seconds of booted machines and of servers that commands left in the background."""
        return max(0.0, self.cpu_seconds - self.result.command_seconds)


def counted(code: int, report: Path, command_seconds: float = 0) -> Result:
    """Convert pytest's report. A run that ended without one, or in which no test passed, has failed."""
    if not report.exists():
        return Result(False, f"ended with {code} before its end", command_seconds)
    root = ElementTree.parse(report).getroot()
    suites = list(root.iter("testsuite"))
    total, failed, errors, skipped = (
        sum(int(suite.get(key, "0")) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    passed = total - failed - errors - skipped
    numbers = {"passed": passed, "failed": failed, "errors": errors, "expected to fail": skipped}
    detail = ", ".join(f"{number} {what}" for what, number in numbers.items() if number or what == "passed")
    cases = ((float(case.get("time", "0")), _name(case)) for case in root.iter("testcase"))
    slowest = tuple(sorted(cases, reverse=True)[:SLOWEST])
    return Result(code == 0 and passed > 0, detail, command_seconds, slowest)


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
