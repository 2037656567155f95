#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: health
short_description: Say how well a cluster is
version_added: 1.0.0
description:
  - Makes one verdict of what each node has said of itself (C(deeplearning health check)), shows it as a table, writes
    it to a file as JSON, and fails if any check does. Every failing check says what to do.
options:
  cluster:
    description: The cluster's name.
    type: str
    required: true
  seen:
    description:
      - What was registered of each node's own look, by the node's name. A node that could not be reached has a failing
        check that says so.
    type: dict
    required: true
  training:
    description: What was registered of the master's short run over all nodes (C(deeplearning health training)).
    type: dict
  joining:
    description: Machines of the cluster that are no members yet.
    type: list
    elements: str
    default: []
  file:
    description: Where to write the JSON. By default F(.deeplearning/<cluster>.health.json) in the current folder.
    type: str
    default: ""
attributes:
  check_mode:
    description: It looks and says, so it does the same in check mode.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on.
    support: full
author:
  - The deeplearning.aws contributors (@deeplearning)
"""

EXAMPLES = r"""
- name: Give a verdict
  deeplearning.aws.health:
    cluster: deeplearning
    seen: "{{ dict(groups['cluster'] | zip(groups['cluster'] | map('extract', hostvars, 'health_check_seen'))) }}"
"""

RETURN = r"""
health:
  description: The verdict, as it is written to the file.
  returned: success
  type: dict
  contains:
    ok:
      description: Whether every check passes.
      type: bool
    checks:
      description: Each check with its C(node), C(name), whether it is C(ok), its C(detail) and its C(fix).
      type: list
"""
