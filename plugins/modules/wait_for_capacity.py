#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: wait_for_capacity
short_description: Wait until Auto Scaling groups or an EMR cluster have their machines, or report why not
version_added: 1.0.0
description:
  - Watches one or several Auto Scaling groups until they have settled, and reports the progress.
  - A group has settled when all its machines are in service, or when no more are to be expected.
  - The reaction depends on the launch failure. Missing capacity and exhausted quotas are waited for during
    O(settle_seconds); an instance profile that is not in effect yet is retried for 180 seconds; throttled launches are
    retried; wrong settings fail at once.
  - Machines that cannot be launched are subtracted from the group's desired capacity, so that Auto Scaling stops
    trying. This is never done during a launch. Launching is suspended, pending launches end, the number is set, and
    launching is resumed.
  - After a failure each group again has the machines that it had at the start, which is none in a new cluster. Machines
    that the launch lifecycle hook holds are terminated by abandoning their lifecycle action.
  - With O(emr) it watches an EMR cluster instead, until all its instances are configured. One that does not become
    ready in time is terminated. After a failure the message has EMR's reason and the end of the failing bootstrap
    action's log.
  - With O(baking) it watches a machine that turns itself into the source of an image, until it has stopped.
  - If all machines are in service and desired, nothing is written. If the group's desired capacity is less than
    O(groups[].desired_capacity), it is raised, which is how a second run retries after a shortfall.
options:
  lock_version:
    description:
      - The version of the cluster's lock, as M(deeplearning.aws.cluster_lock) has returned it.
      - Once another playbook has held the lock, the task only watches, and fails in place of terminating or requesting
        machines.
    type: str
    default: ""
  groups:
    description:
      - The groups to wait for, all at once. If one fails, all fail. Give them and O(reports), or O(emr), or O(baking).
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The group's name.
        type: str
        required: true
      desired_capacity:
        description: How many machines to wait for.
        type: int
        required: true
      minimum:
        description: How many must be in service with the policy V(at_least).
        type: int
        default: 0
      essential:
        description: Whether all must be in service, regardless of the policy.
        type: bool
        default: false
      role_id:
        description: The unique id of the IAM role of the group's machines.
        type: str
        required: true
      address:
        description:
          - The allocation id of the Elastic IP address of the group's only machine. It is associated with its primary
            network interface as soon as the machine runs.
        type: str
        default: ""
  cluster:
    description:
      - The cluster's name. After a success its scheduled end of the setup is deleted, as
        M(deeplearning.aws.discover_members) does.
    type: str
    default: ""
  emr:
    description: The EMR cluster to wait for. Of the other options, only O(timeout_seconds) applies.
    type: dict
    suboptions:
      id:
        description: Its id.
        type: str
        required: true
      logs:
        description: Where it stores its logs, as C(bucket) or C(bucket/prefix).
        type: str
        required: true
      poll_seconds:
        description: Seconds between two polls. EMR asks for 30.
        type: float
        default: 30
  baking:
    description:
      - The machine to wait for, which installs frameworks, removes what belongs to it alone, and stops. Of the other
        options, only O(timeout_seconds) applies.
    type: dict
    suboptions:
      id:
        description: Its id.
        type: str
        required: true
      role_id:
        description: The unique id of its IAM role.
        type: str
        required: true
      bucket:
        description: The bucket with its report.
        type: str
        required: true
      account:
        description: The account that the bucket must belong to.
        type: str
        required: true
  reports:
    description:
      - Where the machines of O(groups) report how they configure themselves, which they do before they are in service.
        The reports are read for the progress and for the reason of a failure.
      - A machine that could not configure itself counts as missing. A machine that failed and keeps its place ends the
        wait if it is needed; if it failed with another bundle, it is terminated at the start, and another one is
        launched.
    type: dict
    suboptions:
      bucket:
        description: The cluster's bucket.
        type: str
        required: true
      account:
        description: The account that the bucket must belong to.
        type: str
        required: true
      bundle:
        description: The SHA-256 of the bundle by which machines configure themselves.
        type: str
        required: true
  policy:
    description: What to do if not all machines start.
    type: str
    default: at_least
    choices:
      at_least: continue with those that started, if they are at least O(groups[].minimum)
      all_or_nothing: terminate those that started, and fail
      best_effort: continue with those that started
  timeout_seconds:
    description: Seconds to wait at most.
    type: float
    default: 3300
  settle_seconds:
    description: Seconds after the last start, or after the first failure, until missing machines are given up.
    type: float
    default: 120
  since:
    description:
      - Launches that failed before this time (seconds since the epoch, by the clock of this machine) are ignored.
      - Pass the time before the groups were created or changed, so that their first failures count. The default is
        now.
    type: float
extends_documentation_fragment:
  - deeplearning.aws._aws
  - deeplearning.aws._attributes
  - deeplearning.aws._attributes.action
attributes:
  check_mode:
    details: In check mode it reports what it would wait for, without calls to AWS.
"""

EXAMPLES = r"""
- name: Wait for all machines
  deeplearning.aws.wait_for_capacity:
    region: us-east-1
    policy: at_least
    groups:
      - name: deeplearning-master
        desired_capacity: 1
        essential: true
        role_id: "{{ master_role_id }}"
      - name: deeplearning-workers
        desired_capacity: 5
        minimum: 2
        role_id: "{{ worker_role_id }}"
    reports:
      bucket: deeplearning-123456789012-us-east-1
      account: "123456789012"
      bundle: "{{ bundle_sha256 }}"
  register: machines
"""

RETURN = r"""
outcome:
  description: How the wait has ended (V(full), V(degraded) or V(failed)).
  returned: always
  type: str
  sample: degraded
desired:
  description: How many machines were desired, in all groups together.
  returned: when groups were watched
  type: int
  sample: 6
in_service:
  description: How many are in service.
  returned: when groups were watched
  type: int
  sample: 4
groups:
  description: By name, how many machines were desired, how many are in service, and the ids of the instances.
  returned: when groups were watched
  type: dict
  sample: {deeplearning-workers: {desired: 5, in_service: 3, instances: [i-0abc]}}
missing:
  description:
    - The machines that did not start, why (V(capacity), V(zone), V(not_yet), V(throttled),
      V(configuration), V(setup), V(unknown), V(late)), and AWS's own message. C(details) are the ends of the
      logs of some machines.
  returned: when groups were watched
  type: list
  elements: dict
  sample:
    - group: deeplearning-workers
      count: 2
      why: capacity
      message: We currently do not have sufficient g5.xlarge capacity …
      details: []
      placement_group: ''
      explained: AWS has no capacity for 2 of deeplearning-workers …
elsewhere:
  description: Whether the failure does not rule out another availability zone.
  returned: always, but in check mode
  type: bool
waited_seconds:
  description: How long it took.
  returned: when groups were watched
  type: float
"""
