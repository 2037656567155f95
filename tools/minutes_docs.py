"""Write the minutes of layers and parts into docs/testing.md, from the last recorded runs.

.venv/bin/python tools/minutes_docs.py
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.layers.records import RECORDED, recorded_runs  # noqa: E402
from tools.made_part import MadePart  # noqa: E402

PART = MadePart(ROOT / "docs/testing.md", "minutes", "minutes_docs")
LONG = "\n## What takes longer: `make test-long`\n"


def renewed() -> str:
    """Return the page with the recorded minutes in the second column of both tables, and the sentence on the run."""
    runs = recorded_runs()

    def fill(text: str, prefix: str) -> str:
        def row(match: re.Match[str]) -> str:
            recorded = runs.get(prefix + match[1])
            return f"| {match[1]} | {f'{recorded.minutes:g}' if recorded else '–'} |"

        return re.sub(r"^\| ([\w-]+) \| (?:[\d.]+|–) \|", row, text, flags=re.MULTILINE)

    short, _, long = PART.read().partition(LONG)
    return PART.renewed(sentence(), fill(short, "") + LONG + fill(long, "long "))


def sentence() -> str:
    run = json.loads(RECORDED.read_text(encoding="utf-8"))
    return (
        f"The last recorded run took {run['minutes']:g} minutes with setup, and {run['processor_minutes']:g} minutes "
        f"of processor on {run['processors']} cores: commit {run['commit']}, {run['date']}, {run['conditions']}."
    )


if __name__ == "__main__":
    PART.write(renewed())
