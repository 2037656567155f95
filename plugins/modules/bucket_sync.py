#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: bucket_sync
short_description: Copy wheels of Horovod between a bucket and a node
version_added: 1.0.0
description:
  - Pulls the wheels of Horovod that were built before from a bucket to a folder that all nodes share, or pushes the
    wheel that was built now from there to the bucket. Existing wheels are not copied again.
  - The name of a wheel holds all that it depends on, and a wheel in the bucket is never replaced.
  - It pulls only the wheels that the nodes can use, that is, for the pinned version of the framework and the nodes'
    architecture.
  - Each wheel is stored with its SHA-256. A wheel in the bucket that has another one is skipped with a warning. One in
    the folder is replaced, as any node can write there. Nodes compare the SHA-256 again before they install a wheel.
  - If the bucket cannot be used, it warns and the task succeeds, as the nodes can build the wheel themselves.
  - It uses the AWS credentials of the machine that Ansible runs on. Nodes need no permission for the bucket.
options:
  cluster:
    description: The cluster's name, for its bucket.
    type: str
    required: true
  bucket:
    description: Another bucket that clusters share, as C(bucket) or C(bucket/prefix), with or without C(s3://).
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
  direction:
    description:
      - V(pull) copies from the bucket what these nodes can use.
      - V(push) copies what was built now (O(built)) to the bucket, and nothing else from the folder.
    type: str
    choices: [pull, push]
    required: true
extends_documentation_fragment:
  - deeplearning.aws._aws
  - deeplearning.aws._attributes
  - deeplearning.aws._attributes.action
attributes:
  check_mode:
    details: Returns in check mode what it would copy.
  action:
    details: Uses the connection to the node.
"""

EXAMPLES = r"""
- name: Pull the wheels that were built before
  deeplearning.aws.bucket_sync:
    region: us-east-1
    cluster: deeplearning
    folder: /efs/.deeplearning/wheels
    framework: pytorch
    direction: pull
"""

RETURN = r"""
wheels:
  description:
    - The SHA-256 of wheels, by their path in O(folder).
    - With O(direction=pull), of what the bucket has for these nodes, for
      O(deeplearning.aws.framework_env#module:horovod_checksums). With O(direction=push), of those that were copied now.
  returned: success
  type: dict
  sample:
    horovod-0.28.1_torch-2.13.0+cpu_cp311_openmpi-4.1.4_x86_64/horovod-0.28.1-cp311-cp311-linux_x86_64.whl:
      6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
"""
