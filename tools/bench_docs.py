"""Write the tables of measurements in docs/benchmarks.md from bench/results.json.

.venv/bin/python tools/bench_docs.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.report import FIGURES, formatted  # noqa: E402
from tools.made_part import MadePart  # noqa: E402

PART = MadePart(ROOT / "docs/benchmarks.md", "figures", "bench_docs")


def section(key: str, measurement: dict[str, Any]) -> list[str]:
    name, _, part = key.partition(": ")
    conditions = measurement["conditions"]
    lines = [
        f"### {measurement['title']}{f' ({part})' if part else ''}",
        "",
        f"[{name}](../bench/results/{name}.md), at commit `{conditions['commit']}` on {conditions['date']}: "
        f"{conditions['processors']} cores, Linux {conditions['kernel']}, Python {conditions['python']}, "
        f"load {conditions['load']} at the end.",
        "",
        "| figure | measured | should be at most |",
        "| --- | --- | --- |",
    ]
    for figure in measurement["figures"]:
        value, target = figure["value"], figure["target"]
        limit = "" if target is None else formatted(target, figure["unit"]) + (" (missed)" if value > target else "")
        lines.append(f"| {figure['what']} | {formatted(value, figure['unit'])} | {limit} |".replace("|  |", "| |"))
    return [*lines, ""]


def tables() -> str:
    measurements = json.loads(FIGURES.read_text(encoding="utf-8"))["measurements"]
    return "\n".join(line for key, measurement in measurements.items() for line in section(key, measurement))


def renewed() -> str:
    return PART.renewed(tables())


if __name__ == "__main__":
    PART.write(renewed())
