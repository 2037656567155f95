# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: node_config
short_description: Make the file that tells a node which cluster it belongs to
version_added: 1.0.0
description:
  - Returns the text of C(/etc/deeplearning/cluster.json). Fails if a field is missing, unknown or malformed.
positional: role, gpus
options:
  _input:
    description: The fields that all nodes of the cluster share.
    type: dict
    required: true
  role:
    description: What the node is in the cluster.
    type: str
    choices: [master, worker]
    required: true
  gpus:
    description: How many GPUs machines of its type have. Without it, that is unknown.
    type: int
"""

EXAMPLES = r"""
- name: Tell the node which cluster it belongs to
  ansible.builtin.copy:
    content: "{{ cluster | deeplearning.aws.node_config('worker', 8) }}"
    dest: /etc/deeplearning/cluster.json
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The text of the file.
  type: str
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.cluster_config import build
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError


def node_config(cluster: Mapping[str, Any], role: str, gpus: int | str | None = None) -> str:
    try:
        content = build(json.loads(json.dumps(dict(cluster))), role, None if gpus is None else int(gpus))
    except UserError as error:
        raise AnsibleFilterError(str(error)) from None
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"node_config": node_config}
