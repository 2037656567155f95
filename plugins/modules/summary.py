#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: summary
short_description: Say what a cluster is, and how it is
version_added: 1.0.0
description:
  - Reads from AWS all that bears the cluster's tag or is known to be its own, and says what a person needs to use the
    cluster, to pay for it and to end it. The same is written to a file as JSON.
  - The state is V(absent), V(creating) (something is not there yet), V(ready), V(degraded) (fewer machines than asked
    for, and why) or V(failed).
  - The file's C(user), C(private_key_file) and C(hourly) are kept where they are not given anew, so that one who only
    looks gets the whole summary too.
options:
  cluster:
    description: The cluster's name.
    type: str
    required: true
  file:
    description: Where to write the JSON. By default F(.deeplearning/<cluster>.json) in the current folder.
    type: str
    default: ""
  user:
    description: Who logs in to the master.
    type: str
    default: ""
  private_key_file:
    description: The private key to log in with.
    type: str
    default: ""
  hourly:
    description: What all machines cost an hour, as M(deeplearning.aws.plan) returns it.
    type: dict
    default: {}
  next:
    description: The command to go on with.
    type: str
    default: ""
  failure:
    description:
      - Why the cluster could not be made. With it, the summary is what exists, what goes on costing and how to remove
        it.
    type: str
    default: ""
extends_documentation_fragment: [deeplearning.aws._aws]
attributes:
  check_mode:
    description: In check mode no file is written.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on.
    support: full
"""

EXAMPLES = r"""
- name: Say what stands
  deeplearning.aws.summary:
    region: us-east-1
    cluster: deeplearning
    user: ubuntu
  register: said

- name: Go on only if it stands
  ansible.builtin.assert:
    that: said.summary.state in ["ready", "degraded"]
"""

RETURN = r"""
summary:
  description: What is written to the file.
  returned: success
  type: dict
  contains:
    state:
      description: V(absent), V(creating), V(ready), V(degraded) or V(failed).
      type: str
    why:
      description: Why it is not V(ready), a sentence each.
      type: list
    machines:
      description: How many were asked for and how many are in service, the master among them.
      type: dict
    groups:
      description: The same for each group, and its name.
      type: dict
    master:
      description: The master's instance id, its public address and name, its private address.
      type: dict
    ssh:
      description: The command to log in with.
      type: str
    ssh_security_group_id:
      description: The security group that says who may log in.
      type: str
    efs:
      description: The file system and the cluster's mount targets on it.
      type: dict
    hourly:
      description: What it costs an hour, as far as that is known.
      type: dict
    next:
      description: The command to go on with.
      type: str
    destroy:
      description: The command that removes the cluster.
      type: str
    exists:
      description:
        - All that the cluster has, each with its kind, id, name and state, and with what makes it cost something.
      type: list
"""
