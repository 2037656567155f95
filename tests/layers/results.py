"""What runs took: kept under build/, and committed where documents are made from it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from tests.layers.commands import ROOT

REPORTS = ROOT / "build/tests"
"""pytest's reports and the output of lanes, by layer."""
TIMES = ROOT / "build/test-times.json"
"""The last run of `make test` or of some of its layers."""
RECORDED = ROOT / "bench/results/test-times.json"
"""The run of all layers that documents are made from."""
LONG = ROOT / "bench/results/test-long.md"
SLOWEST = 25


@dataclass(frozen=True)
class Result:
    ok: bool
    detail: str
    processor_seconds: float = 0
    slowest: tuple[tuple[float, str], ...] = ()
    """Seconds and name of tests."""

    def __add__(self, other: Result) -> Result:
        return Result(
            self.ok and other.ok,
            f"{self.detail}, {other.detail}",
            self.processor_seconds + other.processor_seconds,
            tuple(sorted(self.slowest + other.slowest, reverse=True)[:SLOWEST]),
        )


@dataclass(frozen=True)
class Outcome:
    """A layer that has ended."""

    result: Result
    minutes: float
    load: float = 0
    """The load average of 15 minutes at its end."""
    python: str = ""
    """The version that it ran on; empty if it did not run."""


@dataclass
class Times:
    """A run of layers."""

    commit: str
    date: str
    python: str
    processors: int
    conditions: str
    minutes: float
    """with the setup"""
    processor_minutes: float
    """of the whole machine, booted machines included"""
    layers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, outcome: Outcome) -> None:
        self.layers[name] = {
            "ok": outcome.result.ok,
            "minutes": round(outcome.minutes, 1),
            "processor_minutes": round(outcome.result.processor_seconds / 60, 1),
            "load": round(outcome.load, 1),
            "detail": outcome.result.detail,
            "slowest": [[round(seconds, 1), test] for seconds, test in outcome.result.slowest],
        }

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    def lines(self) -> Iterable[str]:
        """Describe the slowest tests, and the whole run."""
        for name, layer in self.layers.items():
            if layer["slowest"]:
                yield f"\nslowest tests of {name}"
                yield from (f"  {seconds:6.1f} s  {test}" for seconds, test in layer["slowest"])
        layers = sum(layer["processor_minutes"] for layer in self.layers.values())
        yield ""
        yield (
            f"{self.minutes:.1f} min, {self.processor_minutes:.1f} min of processor on {self.processors} cores: "
            f"{layers:.1f} of the layers' commands, the rest of machines, servers and other programs"
        )


@dataclass(frozen=True)
class Recorded:
    """The last recorded run of a layer or part."""

    ok: bool
    minutes: float
    date: str


def recorded_runs() -> dict[str, Recorded]:
    """Return those of layers by their names, and those of parts with `long ` before theirs."""
    runs = {}
    if RECORDED.exists():
        run = json.loads(RECORDED.read_text(encoding="utf-8"))
        for name, layer in run["layers"].items():
            runs[name] = Recorded(layer["ok"], layer["minutes"], run["date"])
    for row in re.finditer(
        r"^\| ([\w-]+) \| (ok|FAILED) \| ([\d.]+) \| [^|]+ \| [^|]+ \| ([\d-]+) \|", _text(LONG), re.MULTILINE
    ):
        runs[f"long {row[1]}"] = Recorded(row[2] == "ok", float(row[3]), row[4])
    return runs


def processor_minutes() -> float:
    """Return what all processors of this machine have worked since it booted."""
    user, nice, system, _idle, _waiting, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split()[1:11])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK") / 60


def counted(code: int, report: Path, processor_seconds: float = 0) -> Result:
    """What pytest's report says. A run that ended without one, or that passed nothing, has failed."""
    if not report.exists():
        return Result(False, f"ended with {code} before its end", processor_seconds)
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
    return Result(code == 0 and passed > 0, detail, processor_seconds, slowest)


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def commit() -> str:
    """Return what was tested. Results of measurements, which a part itself may write, do not count as changes."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
        return str(done.stdout).strip()

    changed = git("status", "--porcelain", "--", ".", ":!bench/results", ":!bench/results.json")
    return (git("rev-parse", "--short", "HEAD") or "no commit") + (" with changes" if changed else "")


HEAD = """# The latest run of `make test-long`

Each part was run on its own or with others: `tests/run.py --long [PART…]` replaces the rows of the parts that it runs.

| part | outcome | minutes | Python | commit | date | result |
| --- | --- | --- | --- | --- | --- | --- |
"""


def record_part(name: str, parts: Iterable[str], outcome: Outcome, file: Path) -> None:
    """Replace one row of the table of results, and keep the others. A part that did not run has no result."""
    if not outcome.python:
        return
    rows = {row[1]: row[0] for row in re.finditer(r"^\| ([\w-]+) \| (?:ok|FAILED) \|.*$", _text(file), re.MULTILINE)}
    result = outcome.result
    verdict = "ok" if result.ok else "FAILED"
    cells = (name, verdict, f"{outcome.minutes:.1f}", outcome.python, commit(), date.today(), result.detail)
    rows[name] = f"| {' | '.join(map(str, cells))} |"
    file.write_text(HEAD + "".join(f"{rows[part]}\n" for part in parts if part in rows), encoding="utf-8")


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""
