# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Test whether AWS denied what a task did."""

from __future__ import annotations

DOCUMENTATION = r"""
name: failed_denied
short_description: Did a module fail because AWS does not allow a call?
version_added: 1.0.0
description:
  - A policy that allows calls by the tags of resources may deny one right after a resource was created, because its
    tags take some seconds to count. So a denial is worth one more attempt.
  - A policy that limits the caller's own, such as one of the organization, denies later as well, so its denials do not
    count.
  - Of a loop it is the first item that failed.
options:
  _input:
    description: The registered result of the task.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Fail at once unless AWS denied the call
  ansible.builtin.fail:
  when: result is not deeplearning.aws.failed_denied
"""

RETURN = r"""
_value:
  description:
    - True if the task failed and AWS's error code, or the message of a module of this collection, means that it is
      not allowed, and AWS names no explicit deny, permissions boundary or the like.
    - True as well if M(amazon.aws.ec2_security_group) fails to change rules, as it hides the code.
  type: bool
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import is_denial, limit_in

_CODE = re.compile(r"An error occurred \(([\w.]+)\)")
_OWN = "AWS does not allow "
_WITHOUT_CODE = ("Failed to authorize security group", "Failed to revoke security group")
"""What amazon.aws makes of any refusal, without the code."""


def failed_denied(result: Mapping[str, Any]) -> bool:
    if not result.get("failed"):
        return False
    failed = next((item for item in result.get("results") or () if item.get("failed")), result)
    message = str(failed.get("msg", ""))
    written = _CODE.search(message)
    code = str((failed.get("error") or {}).get("code") or (written[1] if written else ""))
    is_denied = is_denial(code) or message.startswith(_OWN) or any(text in message for text in _WITHOUT_CODE)
    return is_denied and not limit_in(message)


class TestModule:
    def tests(self) -> dict[str, Callable[..., bool]]:
        return {"failed_denied": failed_denied}
