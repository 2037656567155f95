"""Write into docs/limits.md the operations that no recorded answer of AWS confirms.

.venv/bin/python tools/operations_docs.py

The operations are those of tests/operations.json. A record is a file of tests/recorded, one JSON object a line; a line
with `call` (`ec2:DescribeVpcs`) and `answer` confirms the operation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.models import operations  # noqa: E402
from tools.made_part import MadePart  # noqa: E402

PART = MadePart(ROOT / "docs/limits.md", "operations", "operations_docs")
RECORDED = ROOT / "tests/recorded"


def confirmed(folder: Path = RECORDED) -> set[str]:
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_text(encoding="utf-8").splitlines()]
    return {entry["call"] for entry in map(json.loads, lines) if "call" in entry and "answer" in entry}


def table(called: Iterable[str], known: set[str]) -> str:
    calls = sorted(called)
    left = [call for call in calls if call not in known]
    services: dict[str, list[str]] = {}
    for call in left:
        service, operation = call.split(":")
        services.setdefault(service, []).append(operation)
    return "\n".join(
        [
            f"{len(left)} of the {len(calls)} operations that playbooks and nodes call have no recorded answer of AWS:",
            "",
            "| service | operations |",
            "| --- | --- |",
            *(f"| {service} | {', '.join(names)} |" for service, names in services.items()),
        ]
    )


def renewed() -> str:
    return PART.renewed(table(operations(), confirmed()))


if __name__ == "__main__":
    PART.write(renewed())
