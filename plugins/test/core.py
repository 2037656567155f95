# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Tests of why a task failed, and of modules. What each does is documented in the YAML file of its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.parsing.plugin_docs import read_docstring
from ansible.plugins.loader import module_loader
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import is_denial, limit_in
from ansible_collections.deeplearning.aws.plugins.plugin_utils.failures import error_of

_OWN = "AWS does not allow "
_WITHOUT_CODE = ("Failed to authorize security group", "Failed to revoke security group")
"""What amazon.aws makes of any refusal, without the code."""
_NOT_LISTED = ("list index out of range", "'NoneType' object", "Failed to modify subnet", "No auto scaling group found")


def failed_denied(result: Mapping[str, Any]) -> bool:
    if not result.get("failed"):
        return False
    code, message = error_of(result)
    is_denied = is_denial(code) or message.startswith(_OWN) or any(text in message for text in _WITHOUT_CODE)
    return is_denied and not limit_in(message)


def failed_not_found(result: Mapping[str, Any]) -> bool:
    if not result.get("failed"):
        return False
    code, message = error_of(result)
    return code.endswith(("NotFound", "NotFoundException")) or any(text in message for text in _NOT_LISTED)


def module_option(module: str, option: str) -> bool:
    located = module_loader.find_plugin_with_context(module)
    if not located.resolved:
        raise AnsibleError(f"The module {module} is not installed.")
    documentation = read_docstring(located.plugin_resolved_path, verbose=False, ignore_errors=False)["doc"]
    return option in documentation["options"]


class TestModule:
    def tests(self) -> dict[str, Callable[..., bool]]:
        return {
            "failed_denied": failed_denied,
            "failed_not_found": failed_not_found,
            "module_option": module_option,
        }
