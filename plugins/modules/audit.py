#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: audit
short_description: Say what clusters have in an account and region
version_added: 1.0.0
description:
  - Lists all that bears a cluster's tag, or is known to be its own by its name or its security group. Records of what
    is dead, such as terminated instances, are left aside.
  - Nothing is changed.
options:
  cluster:
    description: The cluster's name, or V(all).
    type: str
    required: true
extends_documentation_fragment: [deeplearning.aws._aws]
attributes:
  check_mode:
    description: Runs in check mode and changes nothing.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on.
    support: full
"""

EXAMPLES = r"""
- name: See that nothing is left of any cluster
  deeplearning.aws.audit:
    region: us-east-1
    cluster: all
  register: found
  failed_when: found.clusters.values() | rejectattr('clean') | list | length > 0
"""

RETURN = r"""
clusters:
  description: By name, what exists, and whether that is nothing (a file system that was kept left aside).
  returned: success
  type: dict
  sample: {deeplearning: {clean: true, exists: []}}
"""
