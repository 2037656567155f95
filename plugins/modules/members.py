#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: members
short_description: Meet the members of a cluster before the first connection
version_added: 1.0.0
description:
  - Finds the machines of a cluster and their host keys, and writes them down for ssh, so that nobody is ever connected
    to whose key was not known before.
  - A machine's host keys are those in its own report in the cluster's bucket, which AWS lets no other machine write. A
    machine that has not reported yet shows them on its console (C(GetConsoleOutput)). The network is never asked.
  - The files are made anew each time. So a host key that has changed is refused by ssh until AWS has told of it.
  - Machines that have only just been started are waited for, and named meanwhile.
options:
  cluster:
    description: The cluster's name.
    type: str
    required: true
  folder:
    description:
      - The files are C(cluster.known_hosts) and C(cluster.ssh_config) in this folder of the machine that Ansible runs
        on.
    type: path
    default: .deeplearning
  user:
    description: The user to log in as; without one, what the machines' tag C(deeplearning:user) says.
    type: str
    default: ""
  private_key_file:
    description: The private key to log in with; without one, what ssh finds by itself.
    type: path
    default: ""
  connection:
    description:
      - How machines are reached. V(jump) through the master's public address, V(direct) at their private addresses,
        V(ssm) through AWS Systems Manager. The inventory plugin deeplearning.aws.cluster tells what each needs.
    type: str
    choices: [jump, direct, ssm]
    default: jump
  wait_seconds:
    description: How long to wait for a master, and for host keys of machines that boot.
    type: int
    default: 600
extends_documentation_fragment: [deeplearning.aws._aws]
notes:
  - It needs the permissions C(ec2:DescribeInstances), C(ec2:DescribeNetworkInterfaces), C(ec2:DescribeSecurityGroups),
    C(ec2:DescribeVpcs), C(ec2:GetConsoleOutput), C(iam:GetRole) on the roles of members, and C(s3:GetObject) with
    C(s3:ListBucket) on the cluster's bucket.
attributes:
  check_mode:
    description: In check mode nothing is written and nobody is waited for.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
  action:
    description: Runs on the machine that Ansible runs on.
    support: full
"""

EXAMPLES = r"""
- name: Meet the members
  deeplearning.aws.members:
    region: us-east-1
    cluster: deeplearning
    private_key_file: ~/.ssh/id_ed25519
  register: met

# From now on the inventory connects with pinned host keys, and so does
# ssh -F .deeplearning/deeplearning.ssh_config deeplearning-worker2
- name: Let the inventory know
  ansible.builtin.meta: refresh_inventory
"""

RETURN = r"""
cluster:
  description:
    - What the machines are to know of their cluster. C(cluster_id) is the id of the security group of its members,
      C(master_role_id) begins the user id of the master's sessions, C(efs_name) is the file system's name in DNS.
  returned: success
  type: dict
  sample:
    schema: 1
    cluster: deeplearning
    cluster_id: sg-0123456789abcdef0
    region: us-east-1
    bucket: deeplearning-123456789012-us-east-1
    vpc_cidrs: [10.0.0.0/16]
    master_role_id: AROA0123456789EXAMPLE
    efs_name: fs-0123456789abcdef0.efs.us-east-1.amazonaws.com
    user: ubuntu
members:
  description:
    - The machines, the master first. The rank is 0, and the name the instance id, until the master has given a rank;
      GPUs are known of machines that have reported.
  returned: success
  type: list
  elements: dict
  sample:
    - name: deeplearning-master
      instance_id: i-0123456789abcdef0
      role: master
      rank: 1
      private_address: 10.0.0.10
      gpus: 4
"""
