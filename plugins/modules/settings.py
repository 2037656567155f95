#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: settings
short_description: Check the settings of a cluster
version_added: 1.0.0
description:
  - Takes all variables whose names begin with C(cluster_), gives each its type, and fails with a sentence for each that
    is wrong, all of them at once. What is not set gets its default.
  - Names that are no settings are refused, and the one that was probably meant is named.
  - Nothing is asked of AWS; that is what M(deeplearning.aws.plan) does.
  - The settings are listed in the collection's F(docs/settings.md).
author:
  - The deeplearning.aws contributors (@deeplearning)
options:
  creating:
    description: Whether the cluster is to be made or changed. If not, what only its making needs may be absent.
    type: bool
    default: true
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
- name: Check the settings
  deeplearning.aws.settings:
  register: __settings

- name: Keep them
  ansible.builtin.set_fact:
    cluster: "{{ __settings.cluster }}"
"""

RETURN = r"""
cluster:
  description:
    - The settings by their names less the prefix, each of its type, those included that follow from others (such as
      C(worker_min), C(master_instance_type) and C(public_key)).
  returned: success
  type: dict
  sample: {"name": "red", "region": "eu-west-1", "worker_count": 2, "worker_min": 1}
"""
