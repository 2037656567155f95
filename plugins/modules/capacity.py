#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: capacity
short_description: Wait until Auto Scaling groups have the machines that they want, or know why not
version_added: 1.0.0
description:
  - Watches one or several Auto Scaling groups until they have settled, and tells of the progress meanwhile.
  - A group has settled when all that is wanted is in service, or when it is clear that no more will come.
  - Launch failures are told apart. No capacity and quotas are waited for during O(settle_seconds); an instance
    profile that is not in effect yet is tried again for 180 seconds; throttled launches are tried again; wrong
    settings fail at once.
  - What does not come is taken off the group's desired capacity, so that Auto Scaling stops asking for it. This is
    never done while a launch is in flight. Launching is suspended, what is pending resolves, the number is set,
    launching is resumed.
  - After a failure each group is back at the machines that it had when this began, which is none in a new cluster.
  - With all in service and all wanted, nothing is written. With fewer wanted by the group than O(groups[].wanted),
    the group is asked for them again, which is how a second run tries once more after a shortfall.
options:
  groups:
    description: The groups to wait for, all at once. One that fails fails all.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: The group's name.
        type: str
        required: true
      wanted:
        description: So many machines shall be in service.
        type: int
        required: true
      least:
        description: So many must be, with the policy V(at_least).
        type: int
        default: 0
      essential:
        description: All of them must be, whatever the policy.
        type: bool
        default: false
  policy:
    description: What to do when not all come.
    type: str
    default: at_least
    choices:
      at_least: go on with those that came, if they are no fewer than O(groups[].least)
      all_or_nothing: give back those that came, and fail
      best_effort: go on with those that came
  timeout_seconds:
    description: When to end the wait, whatever the groups are doing.
    type: float
    default: 3300
  settle_seconds:
    description: What is missing is given up so long after the last machine came, or the first failed to.
    type: float
    default: 120
  since:
    description:
      - Launches that failed before this time (seconds since the epoch, by the clock of this machine) are history.
      - Give the time before the groups were made or changed, so that their first failures count. By default it is
        now.
    type: float
extends_documentation_fragment: [deeplearning.aws._aws]
attributes:
  check_mode:
    description: In check mode it says what it would wait for, and asks AWS nothing.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on.
    support: full
"""

EXAMPLES = r"""
- name: Wait for all machines
  deeplearning.aws.capacity:
    region: us-east-1
    policy: at_least
    groups:
      - name: deeplearning-master
        wanted: 1
        essential: true
      - name: deeplearning-workers
        wanted: 5
        least: 2
  register: machines
"""

RETURN = r"""
outcome:
  description: How the wait has ended (V(full), V(degraded) or V(failed)).
  returned: always
  type: str
  sample: degraded
wanted:
  description: How many machines were wanted, all groups together.
  returned: when groups were watched
  type: int
  sample: 6
in_service:
  description: How many are in service.
  returned: when groups were watched
  type: int
  sample: 4
groups:
  description: By name, what was wanted, what is in service, and the ids of the instances.
  returned: when groups were watched
  type: dict
  sample: {deeplearning-workers: {wanted: 5, in_service: 3, instances: [i-0abc]}}
missing:
  description:
    - What did not come, why (V(capacity), V(zone), V(quota), V(not_yet), V(throttled), V(configuration), V(unknown),
      V(late)), and AWS's own words.
  returned: when groups were watched
  type: list
  elements: dict
  sample:
    - group: deeplearning-workers
      count: 2
      why: capacity
      message: We currently do not have sufficient g5.xlarge capacity …
      explained: AWS has no capacity for 2 of deeplearning-workers …
elsewhere:
  description: It failed, and another zone may have what this one has not.
  returned: always, but in check mode
  type: bool
waited_seconds:
  description: How long it took.
  returned: when groups were watched
  type: float
"""
