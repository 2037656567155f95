# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: run_plan
short_description: Plan what train.yml does
version_added: 1.0.0
description:
  - Chooses the nodes of a run, and says what must be installed on them and which runs are started.
positional: members, resumed
options:
  _input:
    description: The result of M(deeplearning.aws.check_input) for train.yml.
    type: dict
    required: true
  members:
    description: The cluster's members, each with its C(name), C(rank) and C(role).
    type: list
    elements: dict
    required: true
  resumed:
    description: The run to resume, as the node program shows it. Empty for a new run.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Choose the nodes
  ansible.builtin.set_fact:
    plan: "{{ checked | deeplearning.aws.run_plan(discovered['members'], {}) }}"
"""

RETURN = r"""
_value:
  description:
    - C(problem) is a sentence if there are not enough nodes. C(nodes) are the nodes' names.
    - C(framework) is what trains.
    - C(preflight) says whether to test the connections of the nodes first.
    - C(processor) says whether to train on the processors of nodes with GPUs.
    - C(installs_framework) and C(uses_horovod) say what the nodes need.
    - C(runs) has for each run what changes in its request.
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_request import run_plan


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"run_plan": run_plan}
