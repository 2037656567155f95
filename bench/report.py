"""Print the results of a measurement and write its page in bench/results, with its commit and conditions."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

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
    conditions = _conditions()
    sentence = (
        f"Measured on {conditions['date']} at {conditions['commit']}: {conditions['processors']} cores, "
        f"Linux {conditions['kernel']}, Python {conditions['python']}, load at the end {conditions['load']:.1f}."
    )
    lines = [sentence, "", "| what | measured | target |", "| --- | --- | --- |"]
    lines += [f"| {row.what} | {formatted(row.value, row.unit)} | {_target(row)} |" for row in rows]
    text = "\n".join([*lines, *([more] if more else [])]) + "\n"
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.md"
    if part:
        sections = _sections(path.read_text(encoding="utf-8") if path.exists() else "")
        text = "\n".join(f"## {heading}\n\n{content}" for heading, content in sorted((sections | {part: text}).items()))
    path.write_text(f"# {title}\n\n{text}", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


def _conditions() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    return {
        "date": date.today().isoformat(),
        "commit": commit.strip() or "no commit",
        "processors": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def _sections(text: str) -> dict[str, str]:
    """The sections of a file by their headings."""
    sections = (section.partition("\n\n") for section in f"\n{text}".split("\n## ")[1:])
    return {heading: content.rstrip("\n") + "\n" for heading, _blank, content in sections}


def _target(row: Row) -> str:
    if row.target is None:
        return "none"
    return f"≤ {formatted(row.target, row.unit)}{'' if row.value <= row.target else ': missed'}"


def formatted(value: float, unit: str) -> str:
    """Return a figure as people read it."""
    places = 0 if float(value).is_integer() else 2 if value < 10 else 1
    return f"{value:,.{places}f} {unit}".rstrip()
