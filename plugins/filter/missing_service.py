# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Recognize that a task failed because AWS does not offer a service in the availability zone."""

from __future__ import annotations

DOCUMENTATION = r"""
name: missing_service
short_description: Name the service that AWS does not offer in the availability zone
version_added: 1.0.0
description:
  - A few zones have no file systems or no NAT gateways. AWS lists neither, and refuses to create them there.
  - Reads AWS's error code in the message of a failed task, as modules of C(amazon.aws) and of this collection write it.
options:
  _input:
    description: The result of the task, such as C(ansible_failed_result).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Fail unless another zone may have the service
  ansible.builtin.fail:
    msg: The NAT gateway could not be created.
  when: ansible_failed_result | deeplearning.aws.missing_service | length == 0
"""

RETURN = r"""
_value:
  description: The service, such as V(NAT gateways); empty if the task did not fail for this reason.
  type: str
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

_SERVICES = {"UnsupportedAvailabilityZone": "EFS", "NotAvailableInZone": "NAT gateways"}
"""By the codes of efs:CreateMountTarget and ec2:CreateNatGateway."""
_CODE = re.compile(rf"\(({'|'.join(_SERVICES)})\)")


def missing_service(result: Mapping[str, Any]) -> str:
    code = _CODE.search(str(result.get("msg", ""))) if result.get("failed") else None
    return _SERVICES[code[1]] if code else ""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"missing_service": missing_service}
