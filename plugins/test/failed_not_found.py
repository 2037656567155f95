# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Tells whether AWS does not know a resource that a task named."""

from __future__ import annotations

DOCUMENTATION = r"""
name: failed_not_found
short_description: Did a module of amazon.aws fail because AWS does not find a resource?
version_added: 1.0.0
description:
  - AWS does not show a new resource everywhere at once. A task that names one repeats while this test is true.
options:
  _input:
    description: The registered result of the task.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Create the public subnet
  amazon.aws.ec2_vpc_subnet:
    vpc_id: vpc-0123456789abcdef0
    cidr: 10.0.0.0/24
  register: subnet
  until: subnet is not deeplearning.aws.failed_not_found
  retries: 10
"""

RETURN = r"""
_value:
  description: True if the task failed and AWS's error code ends with C(NotFound).
  type: bool
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

_CODE = re.compile(r"An error occurred \(([\w.]+)\)")


def failed_not_found(result: Mapping[str, Any]) -> bool:
    if not result.get("failed"):
        return False
    error = result.get("error") or {}
    written = _CODE.search(str(result.get("msg", "")))
    code = str(error.get("code") or (written[1] if written else ""))
    return code.endswith("NotFound")


class TestModule:
    def tests(self) -> dict[str, Callable[..., bool]]:
        return {"failed_not_found": failed_not_found}
