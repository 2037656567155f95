# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Render the IAM policy of a cluster's members. The statements are in module_utils/resources/member_policy.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.resources.member_policy import MemberAccess, policy_for


def member_policy(role: str, *, read: Iterable[str] = (), write: Iterable[str] = (), **access: Any) -> dict[str, Any]:
    return policy_for(role, MemberAccess(read=_locations(read), write=_locations(write), **access))


def _locations(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(value).rstrip("/") for value in values)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"member_policy": member_policy}
