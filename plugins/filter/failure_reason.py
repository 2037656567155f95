# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Explain why a task failed, also where a module of amazon.aws passes on AWS's own text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import iam_action, refusal

_ERROR = re.compile(r"An error occurred \(([\w.]+)\) when calling the (\w+) operation[^:]*: ?(.*)", re.DOTALL)


def failure_reason(result: Mapping[str, Any], action: str = "") -> str:
    failed = next((item for item in result.get("results") or () if item.get("failed")), result)
    message = str(failed.get("msg") or "The task failed without a message: -v prints its result.")
    error = _ERROR.search(message)
    if not error or not action.startswith("amazon.aws."):
        return message
    code, operation, words = error.groups()
    service = action.removeprefix("amazon.aws.").split("_")[0]
    return str(refusal(code, " ".join(words.split()), iam_action(service, operation)))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"failure_reason": failure_reason}
