# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Test whether AWS does not know a resource that a task named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils.failures import error_of

_NOT_LISTED = ("list index out of range", "'NoneType' object", "Failed to modify subnet", "No auto scaling group found")


def failed_not_found(result: Mapping[str, Any]) -> bool:
    if not result.get("failed"):
        return False
    code, message = error_of(result)
    return code.endswith(("NotFound", "NotFoundException")) or any(text in message for text in _NOT_LISTED)


class TestModule:
    def tests(self) -> dict[str, Callable[..., bool]]:
        return {"failed_not_found": failed_not_found}
