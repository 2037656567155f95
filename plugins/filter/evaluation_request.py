# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: evaluation_request
short_description: Request the evaluation of a run
version_added: 1.0.0
description:
  - Returns the request for a run that evaluates a checkpoint of another one, with the same script and data.
positional: checked, run_dir
options:
  _input:
    description: The run to evaluate and its checkpoints, as the node program shows them.
    type: dict
    required: true
  checked:
    description: The result of M(deeplearning.aws.check_input) for evaluate.yml.
    type: dict
    required: true
  run_dir:
    description: The run's folder on the nodes.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Print the request
  ansible.builtin.debug:
    msg: "{{ (shown['answer'] | deeplearning.aws.evaluation_request(checked, '/efs/runs/red/lenet-1'))['request'] }}"
"""

RETURN = r"""
_value:
  description: C(request), and C(problem), which is a sentence if there is no such checkpoint.
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_request import evaluation_request


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"evaluation_request": evaluation_request}
