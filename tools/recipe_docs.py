"""The command of the recipe maskrcnn as docs/from-the-old-scripts.md has it, for tests to hold it against."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ONE_NODE, FOUR_NODES = 2, 3
"""columns of the tables"""


def documented(column: int) -> tuple[list[str], dict[str, str]]:
    """Arguments of the example and environment, as docs has them."""
    page = (ROOT / "docs/from-the-old-scripts.md").read_text()
    held = page.partition("<!-- held by")[2].partition("<!-- end -->")[0]
    tables = [
        [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
        for table in re.findall(r"(?:^\|.*\n)+", held, re.M)
    ]
    (folder, *settings), environment = tables
    words = ["--logdir", folder[column], "--config", *(f"{row[0]}={row[column]}" for row in settings)]
    return words, {row[0]: row[column] for row in environment}
