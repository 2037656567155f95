# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Test whether AWS does not know a resource that a task named."""

from __future__ import annotations

DOCUMENTATION = r"""
name: failed_not_found
short_description: Did a module of amazon.aws fail because AWS does not find a resource?
version_added: 1.0.0
description:
  - AWS does not show a new resource everywhere at once, so a task that names one may fail with this error at first.
  - Of a loop it is the first item that failed.
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
  description:
    - True if the task failed and AWS's error code ends with C(NotFound).
    - True as well if the module stumbled over an empty answer, as M(amazon.aws.ec2_security_group),
      M(amazon.aws.ec2_vpc_endpoint) and M(amazon.aws.ec2_launch_template) do when they read a new resource back, or if
      it leaves the code out, as M(amazon.aws.ec2_vpc_subnet) does with C(map_public).
  type: bool
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

_NOT_LISTED = ("list index out of range", "'NoneType' object", "Failed to modify subnet", "No auto scaling group found")
_CODE = re.compile(r"An error occurred \(([\w.]+)\)")


def failed_not_found(result: Mapping[str, Any]) -> bool:
    if not result.get("failed"):
        return False
    failed = next((item for item in result.get("results") or () if item.get("failed")), result)
    error = failed.get("error") or {}
    written = _CODE.search(str(failed.get("msg", "")))
    code = str(error.get("code") or (written[1] if written else ""))
    message = str(failed.get("msg", ""))
    return code.endswith(("NotFound", "NotFoundException")) or any(text in message for text in _NOT_LISTED)


class TestModule:
    def tests(self) -> dict[str, Callable[..., bool]]:
        return {"failed_not_found": failed_not_found}
