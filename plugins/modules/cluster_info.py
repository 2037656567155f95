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
  - Logs are collected however little answers. Nodes are asked by ssh, with the configuration that
    M(deeplearning.aws.discover_members) has written. Secrets of known form or name are removed.
  - With O(show=status) it also asks the master, by ssh with the configuration that M(deeplearning.aws.discover_members)
    has written, and describes members, runs and problems. That the master does not answer is one of the problems.
options:
  cluster:
    description: The cluster's name, or V(all) to list the resources of all clusters.
    type: str
    required: true
  show:
    description:
      - Print a summary, which is also saved as JSON, or a list of the resources, which is not; or write an archive with
        the logs of the cluster and its nodes; or print nothing.
      - V(status) is the summary with members, runs and problems.
    type: str
    choices: [summary, status, resources, logs, none]
    default: summary
  format:
    description: Print a summary as text, or the JSON that is saved.
    type: str
    choices: [text, json]
    default: text
  watch:
    description: Print it again every few seconds, until Ansible is interrupted. Not in check mode.
    type: bool
    default: false
  file:
    description:
      - Where to save the JSON. By default F(<cluster>.json) in O(deeplearning.aws.cluster#inventory:folder).
      - With O(show=logs) where to write the archive. By default F(logs/<cluster>-logs-<time>.tar.gz) in that folder.
      - With O(show=resources) the file with such JSON, which records the cluster's region and account. If nothing
        exists here, and a cluster of this name exists or may exist there, the task fails.
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
      - Why the cluster could not be created, which the task that fails for it prints. The summary then says what
        still costs money, how to continue and how to remove it. Its file has all lines of the reason.
      - With it the task never fails, so that it does not hide the reason. It names what could not be read.
    type: str
    default: ""
  node:
    description: With O(show=logs) the only node to ask, by its name or instance id. Without it, all.
    type: str
    default: ""
  run_id:
    description: With O(show=logs) the only run whose files to collect. Without it, the newest runs.
    type: str
    default: ""
  efs_mount:
    description: With O(show=logs) where the nodes have mounted the file system.
    type: str
    default: /efs
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
archive:
  description: The file with the logs.
  returned: with O(show=logs)
  type: str
answered:
  description: The nodes that have answered.
  returned: with O(show=logs)
  type: list
problems:
  description: Sentences about what could not be read.
  returned: with O(show=logs)
  type: list
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
    active_runs:
      description: How many runs use machines, by the machines' tag; null without a master that keeps it, and on EMR.
      type: int
    groups:
      description: The same for each Auto Scaling group, and its name.
      type: dict
    master:
      description: The master's instance id, its public address and name, its private address.
      type: dict
    ssh:
      description: The command to log in with. Playbooks that log in write the file that it names.
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
    billed:
      description: What is billed now, by kind, with its hourly price in USD, or null if that is not known.
      type: list
    cost_so_far:
      description:
        - What its machines and its NAT gateway have cost at on-demand prices since the first of them that is known.
          Machines that have ended count as far back as Auto Scaling reports them, which is six weeks. C(note) says what
          is not counted, and C(source) where the prices come from.
      type: dict
      sample: {"amount": 12.3, "currency": "USD", "since": "2026-11-23T03:10:00+00:00", "note": "…", "source": "…"}
    ends:
      description:
        - When AWS ends machines next (C(at), empty if never), the C(reason) for it, V(cluster_ttl_hours), V(idle) or
          V(setup), O(idle_minutes), when all end by C(cluster_ttl_hours) (C(ttl_at)), and when those end that no
          playbook has met in service (C(setup_at)). While something works, the master postpones an idle end.
      type: dict
    again:
      description: The options of this command line that select the cluster, which each other command needs too.
      type: str
    next:
      description: The command to continue with.
      type: str
    destroy:
      description: The command that removes the cluster.
      type: str
    members:
      description:
        - With O(show=status), each machine with its name, rank, addresses, type, C(health) and C(load). The load is
          what the machine wrote about itself in the last minutes, or null.
      type: list
    runs:
      description: With O(show=status), the runs that have not ended, and the last that have, according to the master.
      type: list
    problems:
      description: With O(show=status), what needs attention, a sentence each.
      type: list
    master_problem:
      description: With O(show=status), why the master does not answer, or an empty text.
      type: str
    untagged:
      description:
        - What is in the VPC that the cluster created and does not have its tag, in the same form as C(resources).
          RV(clusters) counts it in C(billed) and C(cost_so_far), unless it has another cluster's tag.
      type: list
    resources:
      description: All that the cluster has, each with its kind, id, name, state and how it is billed.
      type: list
"""
