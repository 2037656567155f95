# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Renders what members may do in S3. The decisions are in module_utils/_member_policy.py."""

from __future__ import annotations

DOCUMENTATION = r"""
name: bucket_statements
short_description: Render what members of a cluster may do in S3
version_added: 1.0.0
description:
  - Returns the statements of an IAM policy, which let a member read the cluster's bucket, write its own report there,
    and use further places.
  - Members may write in the cluster's own bucket below C(results) at most. Other places in it are left out of what is
    allowed, and everything that is not allowed is denied, whatever other policies the role has.
positional: account
options:
  _input:
    description: The cluster's own bucket.
    type: str
    required: true
  account:
    description: The account that the cluster's bucket has to belong to.
    type: str
    required: true
  read:
    description: Further C(bucket) or C(bucket/prefix) to read.
    type: list
    elements: str
    default: []
  write:
    description: Further C(bucket) or C(bucket/prefix) to read and write.
    type: list
    elements: str
    default: []
  partition:
    description: The partition of AWS.
    type: str
    default: aws
"""

EXAMPLES = r"""
- name: Show what members may do in S3
  ansible.builtin.debug:
    msg: "{{ 'red-123456789012-us-east-1' | deeplearning.aws.bucket_statements('123456789012') }}"
"""

RETURN = r"""
_value:
  description: The statements.
  type: list
  elements: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils._member_policy import bucket_statements


def _rendered(
    bucket: str, account: str, read: Any = (), write: Any = (), partition: str = "aws"
) -> list[dict[str, Any]]:
    return bucket_statements(bucket, account, _places(read), _places(write), partition)


def _places(given: Any) -> list[str]:
    return [str(place).rstrip("/") for place in given]


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"bucket_statements": _rendered}
