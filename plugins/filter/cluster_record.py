# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: cluster_record
short_description: Make the record of a cluster that all its nodes share
version_added: 1.0.0
description:
  - Returns what C(deeplearning.aws.node_config) takes, while the cluster is created and when it exists.
positional: facts, emr
options:
  _input:
    description: The settings of the cluster.
    type: dict
    required: true
  facts:
    description: What the cluster has in AWS, as M(deeplearning.aws.discover_members) returns it.
    type: dict
    required: true
  emr:
    description: Whether the cluster is one of EMR.
    type: bool
    required: true
"""

EXAMPLES = r"""
- name: Set the record of the cluster
  ansible.builtin.set_fact:
    record: "{{ checked['cluster'] | deeplearning.aws.cluster_record(discovered['cluster'], false) }}"
"""

RETURN = r"""
_value:
  description: The record.
  type: dict
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.cluster_config import shared


def cluster_record(cluster: Mapping[str, Any], facts: Mapping[str, Any], emr: bool | str) -> dict[str, Any]:
    return shared(cluster, facts, bool(emr))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"cluster_record": cluster_record}
