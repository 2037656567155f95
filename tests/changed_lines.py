"""Lines of old scripts that read S3 in place, and what they become, as docs/emr.md has them."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs/emr.md"
ROW = re.compile(r"^\| `([^`]*s3://[^`]*)` \| `([^`]*)` \|$", re.MULTILINE)


def changed_lines() -> dict[str, str]:
    return dict(ROW.findall(PAGE.read_text(encoding="utf-8")))


def changed(script: str) -> str:
    """Return a script with its lines that read S3 in place as the page has them."""
    lines = changed_lines()

    def line(old: str) -> str:
        text = old.strip()
        return old.replace(text, lines[text]) if text in lines else old

    return "\n".join(line(old) for old in script.split("\n"))
