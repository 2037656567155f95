"""Write the table of options in docs/training.md.

.venv/bin/python tools/training_docs.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.made_part import MadePart  # noqa: E402

PART = MadePart(ROOT / "docs/training.md", "arguments", "training_docs")


def default(option: Any) -> str:
    return "" if option.may_be_empty else f"`{json.dumps(option.default).strip(chr(34))}`"


def table() -> str:
    from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import run_options

    lines = ["| option | of | what it is | default | example |", "| --- | --- | --- | --- | --- |"]
    for option in run_options.TABLE:
        if not set(option.playbooks) & set(run_options.RUN_PLAYBOOKS):
            continue
        playbooks = " ".join(option.playbooks)
        example = f"`{option.argument()}`"
        row = (f"`{option.name}`", playbooks, option.help, default(option), example)
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in row).replace("|  |", "| |") + " |")
    return "\n".join(lines)


def renewed() -> str:
    return PART.renewed(table())


if __name__ == "__main__":
    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader([str(ROOT / "collections")])
    PART.write(renewed())
