"""Deprecation warnings in the output of a program: which ones our own code or content causes."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SHOW_DEPRECATIONS = {
    "ANSIBLE_DEPRECATION_WARNINGS": "1",
    # Ansible forks its workers while it has a thread, in all versions.
    "PYTHONWARNINGS": "default::DeprecationWarning,default::PendingDeprecationWarning,ignore:This process",
}
"""What makes a program and the playbooks that it runs print deprecation warnings."""

_ANSIBLE = "[DEPRECATION WARNING]: "
_UNNAMED = "Passing `warnings` to `exit_json` or `fail_json` is deprecated"
"""Ansible does not name the module that does this. None of ours does (tests/unit/project/test_deprecations.py)."""
_LINES = 4
"""An Ansible warning in a narrow terminal takes no more lines before it names the collection and the origin."""
_COLLECTION = re.compile(r"from collection '([a-z0-9_.]+)'")
_PYTHON = re.compile(r"^(\S+?):\d+: (?:Pending)?DeprecationWarning: ")


def our_deprecations(output: str) -> list[str]:
    """Return each warning that no other collection and no installed package causes, once."""
    lines = re.sub(r"\x1b\[[0-9;]*m|\r", "", output).splitlines()
    warnings = {
        line: _ansible(lines, number) if _ANSIBLE in line else _python(line) for number, line in enumerate(lines)
    }
    return [warning for warning in warnings.values() if warning]


def _ansible(lines: list[str], number: int) -> str:
    block = [lines[number]]
    for line in lines[number + 1 : number + _LINES]:
        if "WARNING]: " in line:
            break
        block.append(line)
    text = " ".join(" ".join(block).split())
    if _UNNAMED in text:
        return ""
    collection = _COLLECTION.search(text)
    if (collection and collection[1] != "deeplearning.aws") or "Origin: /" in text and "/site-packages/" in text:
        return ""
    return text


def _python(line: str) -> str:
    """Return the line if it is Python's warning about one of our files. Ansible runs modules from an archive."""
    match = _PYTHON.match(line.strip())
    ours = match and (match[1].startswith(f"{ROOT}/") or "/ansible_collections/deeplearning/" in match[1])
    return line.strip() if ours and match and "/site-packages/" not in match[1] else ""
