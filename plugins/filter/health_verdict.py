# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: health_verdict
short_description: Judge the health of a cluster
version_added: 1.0.0
description:
  - Combines the results of all nodes' health checks (C(deeplearning health check)) into one verdict, with advice on
    each failing check.
  - Training code may be root on a node, so a result may hold anything. A node that does not answer in the expected
    form has a failing check, and texts lose their control characters.
options:
  _input:
    description: The registered result of each node's checks, by the node's name.
    type: dict
    required: true
  cluster:
    description: The cluster's name.
    type: str
    required: true
  joining:
    description: Machines of the cluster that are not members yet.
    type: list
    elements: str
    default: []
  training:
    description:
      - The registered result of a short run on all nodes (C(deeplearning health training)). A skipped task counts as
        none.
    type: dict
"""

EXAMPLES = r"""
- name: Print the verdict
  ansible.builtin.debug:
    msg: "{{ (results | deeplearning.aws.health_verdict('red'))['lines'] }}"
  vars:
    results: "{{ dict(groups['cluster'] | zip(groups['cluster'] | map('extract', hostvars, 'health_checked'))) }}"
"""

RETURN = r"""
_value:
  description: The verdict.
  type: dict
  contains:
    ok:
      description: Whether every check passes.
      type: bool
    checks:
      description: Each check with its C(node), C(name), whether it is C(ok), its C(detail) and its C(fix).
      type: list
    lines:
      description: The verdict as text, of which the last line is the conclusion.
      type: list
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils.views import health


def health_verdict(
    results: Mapping[str, Any],
    cluster: str,
    joining: Sequence[str] = (),
    training: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    run = training if training and not training.get("skipped") else None
    verdict = health.verdict(results, joining, run)
    return {**verdict, "lines": health.verdict_lines(cluster, verdict)}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"health_verdict": health_verdict}
