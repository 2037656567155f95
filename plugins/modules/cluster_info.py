#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: cluster_info
short_description: Describe a cluster, or all clusters of an account and region
version_added: 1.0.0
description:
  - Reads from AWS every resource that has the cluster's tag or is known to belong to it, and prints how to use the
    cluster, what it costs and how to remove it. It saves the same as JSON.
  - The state is V(absent), V(creating) (something is not ready yet), V(ready), V(degraded) (fewer machines than
    requested, with the reason) or V(failed).
  - Records of deleted resources, such as terminated instances, are left out.
options:
  cluster:
    description: The cluster's name, or V(all) to list the resources of all clusters.
    type: str
    required: true
  show:
    description: Print a summary, which is also saved as JSON, a list of the resources, which is not, or nothing.
    type: str
    choices: [summary, resources, none]
    default: summary
  file:
    description:
      - Where to save the JSON. By default F(<cluster>.json) in O(deeplearning.aws.cluster#inventory:folder).
    type: str
    default: ""
  user:
    description: The user to log in to the master as; by default the one in the machines' tag C(deeplearning:user).
    type: str
    default: ""
  private_key_file:
    description: The private key to log in with.
    type: str
    default: ""
  hourly:
    description:
      - What all machines cost an hour, as M(deeplearning.aws.plan) returns it. Without it the summary lists what is
        billed.
    type: dict
    default: {}
  idle_minutes:
    description: After how many minutes without work AWS ends the machines, for the summary; 0 for never.
    type: int
    default: 0
  next:
    description: The command to continue with.
    type: str
    default: ""
  failure:
    description:
      - Why the cluster could not be created. The summary then says what exists, what still costs money and how to
        remove it.
    type: str
    default: ""
extends_documentation_fragment:
  - deeplearning.aws._aws
  - deeplearning.aws._attributes
  - deeplearning.aws._attributes.action
attributes:
  check_mode:
    details: In check mode no file is written.
"""

EXAMPLES = r"""
- name: Describe the cluster
  deeplearning.aws.cluster_info:
    region: us-east-1
    cluster: deeplearning
    user: ubuntu
  register: info

- name: Stop unless the cluster can be used
  ansible.builtin.assert:
    that: info['clusters']['deeplearning']['state'] in ['ready', 'degraded']

- name: Fail if any cluster has left anything
  deeplearning.aws.cluster_info:
    region: us-east-1
    cluster: all
  register: info
  failed_when: info['clusters'].values() | rejectattr('clean') | list | length > 0
"""

RETURN = r"""
clusters:
  description: A summary of each cluster, by its name.
  returned: success
  type: dict
  contains:
    state:
      description: V(absent), V(creating), V(ready), V(degraded) or V(failed).
      type: str
    reasons:
      description:
        - Why it is not V(ready), line by line, with the last lines of machines that failed to configure themselves.
      type: list
    clean:
      description: Whether nothing exists, apart from a file system that was kept.
      type: bool
    machines:
      description: How many machines are desired and how many are in service, including the master.
      type: dict
    groups:
      description: The same for each Auto Scaling group, and its name.
      type: dict
    master:
      description: The master's instance id, its public address and name, its private address.
      type: dict
    ssh:
      description: The command to log in with.
      type: str
    ssh_security_group_id:
      description: The security group that decides who may log in.
      type: str
    efs:
      description: The file system and the cluster's mount targets on it.
      type: dict
    hourly:
      description: What it costs an hour, as far as that is known.
      type: dict
    ends:
      description:
        - When AWS ends all machines next (C(at), empty if never), the C(reason) for it, V(cluster_ttl_hours) or
          V(idle), O(idle_minutes), and when they end by C(cluster_ttl_hours) (C(ttl_at)). While something works, the
          master postpones an idle end.
      type: dict
    next:
      description: The command to continue with.
      type: str
    destroy:
      description: The command that removes the cluster.
      type: str
    resources:
      description: All that the cluster has, each with its kind, id, name, state and how it is billed.
      type: list
"""
