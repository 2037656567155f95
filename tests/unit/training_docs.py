"""Writes the table of arguments in docs/training.md.

.venv/bin/python tests/unit/training_docs.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/training.md"
BEGIN, END = "<!-- arguments: made by tests/unit/training_docs.py -->", "<!-- end of arguments -->"


def default(argument: Any) -> str:
    return "" if argument.default in (None, "", [], {}) else f"`{json.dumps(argument.default).strip(chr(34))}`"


def table() -> str:
    from ansible_collections.deeplearning.aws.plugins.plugin_utils import _arguments

    lines = ["| argument | of | what it is | default | example |", "| --- | --- | --- | --- | --- |"]
    for argument in _arguments.TABLE:
        playbooks = " ".join(argument.playbooks)
        row = (f"`{argument.name}`", playbooks, argument.help, default(argument), f"`{_arguments.as_option(argument)}`")
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in row).replace("|  |", "| |") + " |")
    return "\n".join(lines)


def renewed() -> str:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader([str(ROOT / "collections")])
    PAGE.write_text(renewed(), encoding="utf-8")
    sys.exit(0)
