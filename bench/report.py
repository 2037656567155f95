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


def write(name: str, title: str, rows: list[Row], more: str = "", part: str = "") -> None:
    """Write the file of a measurement. With `part`, replace the section of that heading, and keep the others."""
    load = os.getloadavg()[0]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    conditions = (
        f"Measured on {date.today()} at {commit.strip() or 'no commit'}: {os.cpu_count()} cores, "
        f"Linux {platform.release()}, Python {platform.python_version()}, load at the end {load:.1f}."
    )
    lines = [conditions, "", "| what | measured | target |", "| --- | --- | --- |"]
    lines += [f"| {row.what} | {_value(row.value, row.unit)} | {_target(row)} |" for row in rows]
    text = "\n".join([*lines, *([more] if more else [])]) + "\n"
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.md"
    if part:
        sections = _sections(path.read_text(encoding="utf-8") if path.exists() else "")
        text = "\n".join(f"## {heading}\n\n{content}" for heading, content in sorted((sections | {part: text}).items()))
    path.write_text(f"# {title}\n\n{text}", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


def _sections(text: str) -> dict[str, str]:
    """The sections of a file by their headings."""
    found = (section.partition("\n\n") for section in f"\n{text}".split("\n## ")[1:])
    return {heading: content.rstrip("\n") + "\n" for heading, _blank, content in found}


def _target(row: Row) -> str:
    if row.target is None:
        return "none"
    return f"≤ {_value(row.target, row.unit)}{'' if row.value <= row.target else ': missed'}"


def _value(value: float, unit: str) -> str:
    places = 0 if float(value).is_integer() else 2 if value < 10 else 1
    return f"{value:,.{places}f} {unit}".rstrip()
