#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: dataset
short_description: Stage a data set on a node
version_added: 1.0.0
description:
  - Brings a data set to the shared file system or to a node's own disk, and tells how far it is.
  - It is fetched and unpacked beside its place, checked, and then there at once. What is there is left alone; what was
    interrupted goes on from where it was.
author:
  - The deeplearning.aws contributors (@deeplearning)
options:
  data:
    description:
      - V(cifar10), V(mnist), V(generated), a folder of the node, or C(s3://bucket/prefix).
      - V(generated) is made on the node, in the form of CIFAR-10, and is labelled as generated wherever it is named.
      - A folder stays where it is, or is copied to the node's own disk.
    type: str
    required: true
  source:
    description: Where a named set is taken from, if not from its publisher. A file of this machine, or an address.
    type: str
    default: ""
  where:
    description: The shared file system, or the node's own disk.
    type: str
    choices: [efs, node]
    default: efs
attributes:
  check_mode:
    description: In check mode it says whether it would be staged.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on, over a connection to the node.
    support: full
"""

EXAMPLES = r"""
- name: Have CIFAR-10 on the shared file system
  deeplearning.aws.dataset:
    data: cifar10
    source: ~/cifar-10-binary.tar.gz
  register: staged
"""

RETURN = r"""
path:
  description: Where it is on the node.
  returned: success
  type: str
  sample: /efs/data/cifar10
generated:
  description: Whether it was generated, so that accuracies on it say nothing about real data.
  returned: success
  type: bool
"""
