#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: wheels
short_description: Keep wheels of Horovod in a bucket
version_added: 1.0.0
description:
  - Brings the wheels of Horovod that were built before from a bucket to a folder that all nodes share, and what was
    built now from there to the bucket.
  - A wheel is known by all that it fits, so none is ever replaced. What is there is not brought or kept again.
  - When the bucket cannot be used it warns and goes on, as this costs no more than a build.
  - The bucket is used with the login of whoever runs Ansible. Nodes need no right to it.
options:
  cluster:
    description: The cluster's name, for its bucket.
    type: str
    required: true
  bucket:
    description: Another bucket, as C(bucket) or C(bucket/prefix), that clusters share.
    type: str
    default: ""
  folder:
    description: The folder on the node.
    type: str
    required: true
  framework:
    description: The framework that Horovod is for.
    type: str
    choices: [tensorflow, tensorpack, pytorch]
    required: true
  state:
    description:
      - With V(brought), the folder has what the bucket has. Where the node's environment has Horovod, none is sought.
      - With V(kept), the bucket has what the folder has.
    type: str
    choices: [brought, kept]
    required: true
extends_documentation_fragment: [deeplearning.aws._aws]
author:
  - The deeplearning.aws contributors (@deeplearning)
attributes:
  check_mode:
    description: In check mode it says what it would bring or keep.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on, over the connection to the node.
    support: full
"""

EXAMPLES = r"""
- name: Have what was built before
  deeplearning.aws.wheels:
    region: us-east-1
    cluster: deeplearning
    folder: /efs/.deeplearning/wheels
    framework: pytorch
    state: brought
"""

RETURN = r"""
wheels:
  description: Which were brought or kept.
  returned: success
  type: list
  elements: str
  sample: [horovod-0.28.1_torch-2.13.0+cpu_cp311_openmpi-4.1.4_x86_64/horovod-0.28.1-cp311-cp311-linux_x86_64.whl]
"""
