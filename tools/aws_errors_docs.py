"""Write into docs/limits.md which of AWS's errors no recorded answer confirms.

.venv/bin/python tools/aws_errors_docs.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from localcloud.testing.errors import RECORDED, Entry, entries  # noqa: E402
from tools.made_part import MadePart  # noqa: E402

PART = MadePart(ROOT / "docs/limits.md", "errors", "aws_errors_docs")


def rows() -> Iterator[str]:
    """Yield a row for each service: how many of its errors are recorded, and the codes that are read and are not."""
    for service in sorted({entry.service for entry in entries()}):
        listed = [entry for entry in entries() if entry.service == service]
        recorded = {entry.code for entry in listed if entry.evidence == RECORDED}
        read = {entry.code for entry in listed if entry.means and entry.status != 200}
        codes = ", ".join(f"`{code}`" for code in sorted(read - recorded))
        yield f"| {service} | {sum(map(_is_recorded, listed))} of {len(listed)} | {codes or '–'} |"


def _is_recorded(entry: Entry) -> bool:
    return entry.evidence == RECORDED


def table() -> str:
    return "\n".join(["| service | recorded | read, without a recorded answer |", "| --- | --- | --- |", *rows()])


if __name__ == "__main__":
    PART.write(PART.renewed(table()))
