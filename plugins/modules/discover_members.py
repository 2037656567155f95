#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the action plugin of the same name; this never runs."""

DOCUMENTATION = r"""
module: discover_members
short_description: Discover the members of a cluster and their host keys
version_added: 1.0.0
description:
  - Finds the machines of a cluster and their host keys, and writes both to files for ssh. So ssh verifies a machine on
    the first connection too.
  - A machine's host keys are in its report in the cluster's bucket, which AWS lets no other machine write. The keys of
    a machine without a report are read from its console (C(GetConsoleOutput)), and never from the network.
  - The files are replaced each time, so ssh refuses a key that has changed until AWS shows the new one.
  - If a machine is in service, deletes the scheduled end of the setup, which site.yml sets before it requests machines.
    That of a group which has no machine in service stays while it has machines that could not configure themselves.
  - Waits for machines that boot, and prints their names meanwhile.
options:
  cluster:
    description: The cluster's name.
    type: str
    required: true
  folder:
    description:
      - Where to write the files C(cluster.known_hosts) and C(cluster.ssh_config), on the machine that Ansible runs on.
        The inventory looks for them in O(deeplearning.aws.cluster#inventory:folder).
    type: path
    required: true
  user:
    description: The user to log in as; by default the one in the machines' tag C(deeplearning:user).
    type: str
    default: ""
  private_key_file:
    description: The private key to log in with; by default the keys that ssh tries by itself.
    type: path
    default: ""
  connection:
    description:
      - How to reach machines. V(jump) through the master, at its public address if it has one, V(direct) at their
        private addresses, V(ssm) by AWS Systems Manager. See O(deeplearning.aws.cluster#inventory:connection) for what
        each needs.
    type: str
    choices: [jump, direct, ssm]
    default: jump
  bastion:
    description: The host of the user's own that leads to the master, as C(ssh) takes it; by default none.
    type: str
    default: ""
  wait_seconds:
    description: How long to wait for a master, and for host keys of machines that boot.
    type: int
    default: 600
  wait_for_ranks:
    description: Whether to wait until the master has assigned a rank to each machine.
    type: bool
    default: false
  delete_setup_end:
    description: Whether to delete the scheduled end of the setup. It is never deleted in check mode.
    type: bool
    default: true
  with_prices:
    description: Whether to ask for the prices of the machines, which needs C(pricing:GetProducts).
    type: bool
    default: false
extends_documentation_fragment:
  - deeplearning.aws._aws
  - deeplearning.aws._attributes
  - deeplearning.aws._attributes.action
notes:
  - Without C(autoscaling:DescribeScheduledActions), C(autoscaling:DescribeAutoScalingGroups) and
    C(autoscaling:DeleteScheduledAction) it warns that the end of the setup may come.
  - It needs the permissions C(ec2:DescribeInstances), C(ec2:DescribeNetworkInterfaces), C(ec2:DescribeSecurityGroups),
    C(ec2:DescribeVpcs), C(ec2:GetConsoleOutput), C(iam:GetRole) on the roles of members, and C(s3:GetObject) with
    C(s3:ListBucket) on the cluster's bucket.
attributes:
  check_mode:
    details: Does not write files or wait in check mode.
"""

EXAMPLES = r"""
- name: Discover the members
  deeplearning.aws.discover_members:
    region: us-east-1
    cluster: deeplearning
    folder: "{{ deeplearning_folder }}"
    private_key_file: ~/.ssh/id_ed25519

# After this, the inventory connects with pinned host keys, and so does
# ssh -F .deeplearning/deeplearning.ssh_config deeplearning-worker2
- name: Refresh the inventory
  ansible.builtin.meta: refresh_inventory
"""

RETURN = r"""
cluster:
  description:
    - What the machines need to know about their cluster. C(cluster_id) is the id of the security group of its members,
      C(master_role_id) begins the user id of the master's sessions, C(job_flow) is the id of the EMR cluster and empty
      for Auto Scaling groups, C(domain) is that of AWS's services. C(deeplearning.aws.cluster_record) takes it.
  returned: success
  type: dict
  sample:
    cluster_id: sg-0123456789abcdef0
    bucket: deeplearning-123456789012-us-east-1
    vpc_cidrs: [10.0.0.0/16]
    master_role_id: AROA0123456789EXAMPLE
    job_flow: ""
    file_system_id: fs-0123456789abcdef0
    domain: amazonaws.com
    user: ubuntu
data_bucket:
  description: The name of the bucket of data sets of this account and region. It may not exist.
  returned: success
  type: str
  sample: 123456789012-us-east-1-deeplearning-data
prices:
  description: What the machines cost an hour in USD on demand, by their types, as far as AWS's price list answers.
  returned: if O(with_prices=true)
  type: dict
  sample: {m5.xlarge: 0.192}
members:
  description:
    - The machines, the master first. Until the master has assigned a rank, it is 0 and the name is the instance id.
      The number of GPUs is null until the machine has reported. C(bundle) is the SHA-256 of the bundle that
      configured it, empty if none did. C(held) is true if it is kept out of runs.
  returned: success
  type: list
  elements: dict
  sample:
    - name: deeplearning-master
      instance_id: i-0123456789abcdef0
      role: master
      rank: 1
      private_address: 10.0.0.10
      type: g5.12xlarge
      gpus: 4
      bundle: ""
      held: false
"""
