# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A failed task as text: its sentence, and of other programs' output the few lines that explain it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MOST_LINES = 4
"""Of a message or of a command's output, after the first line. One more line names the task."""
LONGEST_LINE = 1000
UNKNOWN = "Unknown error."
"""ansible-core 2.19's message of a result without one."""
_ANSIBLES = re.compile(r"\ATask failed: (?:(?:Module|Action) failed: )?")
_OWN = ("deeplearning.aws.", "ansible.builtin.fail", "ansible.builtin.assert", "fail", "assert")
_CODE = re.compile(r"An error occurred \(([\w.]+)\)")
"""In the messages of botocore."""
_LIST = re.compile(r"\d+ .*:")
"""The title of module_utils.messages.join_problems, such as "3 settings are wrong:"."""


def failure_text(result: Mapping[str, Any], action: str) -> str:
    """Return why a task failed: its sentence and a few lines more. A list of problems is whole: each is a sentence."""
    message = result.get("msg") or result.get("censored") or result.get("reason") or UNKNOWN
    messages = message if isinstance(message, list) else [message]
    lines = [line for item in messages for line in _ANSIBLES.sub("", str(item)).splitlines()]
    if lines in ([], [UNKNOWN]):
        lines = ["It failed without a message."]
    if _LIST.fullmatch(lines[0]) and all(line.startswith("- ") for line in lines[1:]):
        return "\n".join(lines)
    output: list[str] = []
    if not action.startswith(_OWN):
        output = str(result.get("stderr") or result.get("module_stderr") or result.get("stdout") or "").splitlines()
    rest = [line for line in [*lines[1:], *output] if line.strip()]
    return "\n".join(line[:LONGEST_LINE] for line in [*lines[:1], *rest[-MOST_LINES:]])


def error_of(result: Mapping[str, Any]) -> tuple[str, str]:
    """Return AWS's error code and the message of a failed task, or of the first item that failed in its loop."""
    failed = next((item for item in result.get("results") or () if item.get("failed")), result)
    message = str(failed.get("msg", ""))
    written = _CODE.search(message)
    return str((failed.get("error") or {}).get("code") or (written[1] if written else "")), message


def is_rescued(task: Any) -> bool:
    """Return whether the task is in a block with a rescue, whose tasks report the failure or settle it."""
    child, parent = task, task._parent
    while parent is not None:
        inside = any(child._uuid == other._uuid for other in getattr(parent, "block", None) or [])
        if inside and getattr(parent, "rescue", None):
            return True
        child, parent = parent, parent._parent
    return False
