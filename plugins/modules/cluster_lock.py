#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: cluster_lock
short_description: Let only one playbook change a cluster at a time
version_added: 1.0.0
description:
  - Takes the lock of a cluster by a conditional write of the object C(lock.json) in the cluster's bucket, or releases
    it.
  - A process in the background renews the lock until it is released, or until C(ansible-playbook) has ended.
  - If another playbook holds the lock, the task names it and waits. A lock that was not renewed for three minutes is
    taken over, and at once if its playbook ran on this machine and has ended.
options:
  cluster:
    description: The cluster's name.
    type: str
    required: true
  region:
    description: The AWS region.
    type: str
    required: true
  profile:
    description: The profile of the AWS configuration to take credentials from.
    type: str
    default: ""
  role_arn:
    description: A role to assume first.
    type: str
    default: ""
  state:
    description:
      - What is to be done with the lock. V(held) takes it, V(free) releases it.
      - V(unchanged) takes nothing, and fails if the cluster was removed since its lock had the O(version).
      - V(idle) takes nothing, and returns RV(blocked).
    type: str
    choices: [held, free, unchanged, idle]
    default: held
  kind:
    description:
      - What is locked. V(image_machine) is the machine that C(image.yml) makes images on, whose lock is held while the
        machine prepares itself. Its object in the bucket is C(image_machine_lock.json).
    type: str
    choices: [cluster, image_machine]
    default: cluster
  playbook:
    description: The playbook's name, which others read while they wait.
    type: str
    default: ""
  lock:
    description: The lock that an earlier task has returned.
    type: dict
    default: {}
  version:
    description: The version of the lock that an earlier task has returned. See RV(others_wrote).
    type: str
    default: ""
  must_be_unchanged:
    description: Fail if another playbook has held the lock since it had the O(version).
    type: bool
    default: false
  bucket_may_vanish:
    description: Return RV(bucket_exists) if the bucket does not exist, in place of failing.
    type: bool
    default: false
  wait_seconds:
    description: How long to wait for another playbook.
    type: int
    default: 300
  break_lock:
    description: The id of a lock that is to be taken over although its holder may still run.
    type: str
    default: ""
extends_documentation_fragment:
  - deeplearning.aws._attributes
  - deeplearning.aws._attributes.action
requirements:
  - boto3 >= 1.35.69
  - botocore >= 1.35.69
attributes:
  check_mode:
    details: In check mode it takes and releases nothing.
"""

EXAMPLES = r"""
- name: Take the lock
  deeplearning.aws.cluster_lock:
    cluster: red
    region: us-east-1
    playbook: site
  register: cluster_lock

- name: Release the lock
  deeplearning.aws.cluster_lock:
    cluster: red
    region: us-east-1
    state: free
    lock: "{{ cluster_lock['lock'] }}"
"""

RETURN = r"""
lock:
  description: What later tasks need to verify and to release the lock. Empty if it is not held.
  returned: always
  type: dict
version:
  description: Identifies this holding of the lock. It stays until another playbook takes the lock.
  returned: always
  type: str
others_wrote:
  description: Whether another playbook has held the lock since it had the O(version).
  returned: always
  type: bool
blocked:
  description: Why no run may start now, as another playbook changes the number of nodes. Empty if a run may start.
  returned: O(state=idle)
  type: str
bucket_exists:
  description: Whether the cluster's bucket exists.
  returned: always
  type: bool
"""
