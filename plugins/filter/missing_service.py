# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Recognize that a task failed because AWS does not offer a service in the availability zone."""

from __future__ import annotations

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
