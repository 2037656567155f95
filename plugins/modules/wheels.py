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
  - A wheel is known by all that it fits, and in the bucket none is ever replaced. What is there is not brought or kept
    again.
  - Of the wheels in the bucket it brings those that the nodes can use, that is, for the pinned version of the
    framework and the nodes' kind of machine.
  - Each wheel is kept with its SHA-256, and nothing is brought that has another; such a wheel is a warning, and is
    skipped. In the folder, one that has another is replaced, as any node can write there. Nodes compare it again before
    they install a wheel.
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
  built:
    description: The wheel that a node has built in this play, as M(deeplearning.aws.framework_env) returns it.
    type: dict
    default: {}
  state:
    description:
      - With V(brought), the folder has what the bucket has for these nodes.
      - With V(kept), the bucket has what was built now (O(built)). What else is in the folder is not kept.
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
  description:
    - The SHA-256 of wheels, by their path in O(folder).
    - With O(state=brought), of what the bucket has for these nodes, for
      O(deeplearning.aws.framework_env#module:horovod_checksums). With O(state=kept), of those that were kept now.
  returned: success
  type: dict
  sample:
    horovod-0.28.1_torch-2.13.0+cpu_cp311_openmpi-4.1.4_x86_64/horovod-0.28.1-cp311-cp311-linux_x86_64.whl:
      6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
"""
