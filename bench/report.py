"""Results of a measurement: printed, and kept in bench/results with the conditions that they were taken under."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import date
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    what: str
    value: float
    unit: str
    target: float | None
    """it should be no more than this; None where nothing was promised"""


def write(name: str, title: str, rows: list[Row], more: str = "") -> None:
    load = os.getloadavg()[0]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    conditions = (
        f"Measured on {date.today()} at {commit.strip() or 'no commit'}: {os.cpu_count()} cores, "
        f"Linux {platform.release()}, Python {platform.python_version()}, load at the end {load:.1f}."
    )
    lines = [f"# {title}", "", conditions, "", "| what | measured | target |", "| --- | --- | --- |"]
    lines += [f"| {row.what} | {_value(row.value, row.unit)} | {_target(row)} |" for row in rows]
    text = "\n".join([*lines, *([more] if more else [])]) + "\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)


def _target(row: Row) -> str:
    if row.target is None:
        return "none"
    return f"≤ {_value(row.target, row.unit)}{'' if row.value <= row.target else ': missed'}"


def _value(value: float, unit: str) -> str:
    places = 0 if float(value).is_integer() else 2 if value < 10 else 1
    return f"{value:,.{places}f} {unit}".rstrip()
