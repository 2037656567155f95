# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Render the IAM policy of a cluster's members. The statements are in module_utils/resources/member_policy.py."""

from __future__ import annotations

DOCUMENTATION = r"""
name: member_policy
short_description: Render the IAM policy of a cluster's members
version_added: 1.0.0
description:
  - Returns an IAM policy that lets members read the cluster's bucket and the account's bucket of data sets, write their
    own report to the cluster's, and use further buckets. The master may also list members and set their tag
    C(deeplearning:rank).
  - In the cluster's own bucket, members may write below C(results) at most. All other writing is denied, whatever other
    policies the role has.
options:
  _input:
    description: The role of the members, V(master) or V(worker); of EMR's machines, V(node); of EMR itself, V(emr).
    type: str
    required: true
  cluster:
    description: The name of the cluster.
    type: str
    required: true
  region:
    description: The region of the cluster.
    type: str
    required: true
  account:
    description: The account that the cluster's bucket has to belong to.
    type: str
    required: true
  bucket:
    description: The cluster's own bucket.
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
  logs:
    description: Where EMR's machines store EMR's logs, as C(bucket) or C(bucket/prefix). If empty, in C(bucket).
    type: str
    default: ""
  emr_subnets:
    description: The user's own subnets that EMR launches machines in. Those of the cluster have its tag.
    type: list
    elements: str
    default: []
  emr_security_groups:
    description: The user's own security groups of EMR's machines. Those of the cluster have its tag.
    type: list
    elements: str
    default: []
  partition:
    description: The partition of AWS.
    type: str
    default: aws
  idle_end:
    description: Whether the master may schedule the end of the cluster's machines.
    type: bool
    default: false
  workers_associate:
    description: Whether workers associate the address of a new master, which gets none at its launch.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Print the policy of the workers
  ansible.builtin.debug:
    msg: "{{ 'worker' | deeplearning.aws.member_policy(cluster='red', region='us-east-1', account='123456789012',
      bucket='red-123456789012-us-east-1') }}"
"""

RETURN = r"""
_value:
  description: The policy.
  type: dict
"""

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
