#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: Hold the settings of a cluster against AWS
version_added: 1.0.0
description:
  - Looks up whatever the settings name (instance types, zones, image, key pair, network, file system, quotas) and fails
    with a sentence for each that AWS does not have or that does not fit, all of them at once.
  - Returns what follows from both, with which the cluster can be made, and what it costs an hour as far as known.
  - It only reads. An image that the cluster was made with is kept until another one is asked for.
extends_documentation_fragment:
  - deeplearning.aws._aws
options:
  cluster:
    description: The settings, as M(deeplearning.aws.settings) returns them.
    type: dict
    required: true
attributes:
  check_mode:
    description: Runs in check mode and changes nothing.
    support: full
  diff_mode:
    description: Shows differences.
    support: none
notes:
  - It needs the permissions C(sts:GetCallerIdentity), C(autoscaling:DescribeAutoScalingGroups),
    C(ec2:DescribeAvailabilityZones), C(ec2:DescribeImages), C(ec2:DescribeInstances), C(ec2:DescribeInstanceTypes),
    C(ec2:DescribeInstanceTypeOfferings), C(ec2:DescribeKeyPairs), C(ec2:DescribeLaunchTemplates),
    C(ec2:DescribeLaunchTemplateVersions), C(ec2:DescribeRouteTables), C(ec2:DescribeSecurityGroups),
    C(ec2:DescribeSubnets), C(ec2:DescribeVpcs), C(elasticfilesystem:DescribeFileSystems),
    C(elasticfilesystem:DescribeMountTargets), C(servicequotas:GetServiceQuota),
    C(servicequotas:GetAWSDefaultServiceQuota), C(ssm:GetParameters) and C(ssm:GetParametersByPath).
"""

EXAMPLES = r"""
- name: Make the plan
  deeplearning.aws.plan:
    region: "{{ cluster.region }}"
    profile: "{{ cluster.profile }}"
    role_arn: "{{ cluster.role_arn }}"
    cluster: "{{ cluster }}"
  register: __plan
"""

RETURN = r"""
plan:
  description: What is to be, and what AWS knows of it.
  returned: success
  type: dict
  contains:
    account:
      description: The AWS account.
      type: str
      sample: "123456789012"
    partition:
      description: The part of AWS that the account belongs to.
      type: str
      sample: aws
    region:
      description: The region.
      type: str
      sample: us-east-1
    exists:
      description: Whether the cluster exists already, if only in part.
      type: bool
    zones:
      description: The zones to try, in order.
      type: list
      elements: str
      sample: [us-east-1a, us-east-1b]
    vpc:
      description:
        - The network. C(id) is empty where it is to be made. C(subnets) has a C(public) and a C(private) one for each
          zone of a network that was given.
      type: dict
      sample: {"given": false, "id": "", "cidr": "10.0.0.0/16", "public_cidr": "10.0.0.0/17",
        "private_cidr": "10.0.128.0/17", "subnets": {}}
    image:
      description: The image. C(kept) if the cluster was pinned to it earlier.
      type: dict
      sample: {"id": "ami-0123456789abcdef0", "name": "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)",
        "family": "base-oss-nvidia-driver-gpu-ubuntu-22.04", "root_device": "/dev/sda1", "root_gib": 75,
        "architecture": "x86_64", "kept": false}
    user:
      description: The user to log in as.
      type: str
      sample: ubuntu
    type:
      description: The workers' instance type.
      type: dict
      sample: {"name": "g5.xlarge", "vcpus": 4, "memory_mib": 16384, "gpus": 1, "gpu_name": "A10G",
        "gpu_maker": "NVIDIA", "gpu_memory": 24576, "efa_interfaces": 0, "network_cards": 1, "placement": true,
        "spot": true, "architectures": ["x86_64"]}
    master_type:
      description: The master's, in the same form.
      type: dict
    placement_group:
      description: Whether there is to be a placement group.
      type: bool
    efa:
      description: Whether the machines get EFA.
      type: bool
    key_name:
      description: The EC2 key pair.
      type: str
    import_key:
      description: Whether it is to be made of the public key file.
      type: bool
    bucket:
      description: The cluster's bucket.
      type: str
      sample: red-123456789012-us-east-1
    names:
      description: What the cluster's things are called.
      type: dict
    efs:
      description: The file system that exists; C(id) is empty where it is to be made.
      type: dict
      sample: {"id": "", "given": false, "zone": "", "mount_targets": []}
    kept_efs_id:
      description: The file system that this cluster has kept.
      type: str
    quotas:
      description: The quotas that it counts towards, in vCPUs.
      type: list
      elements: dict
    hourly:
      description: What it costs an hour.
      type: dict
      sample: {"amount": 2.09, "currency": "USD", "known": true, "parts": []}
    notes:
      description: What a person should know and what stops nothing.
      type: list
      elements: str
    lines:
      description: All of it for a person to read.
      type: list
      elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._plan import make
from ansible_collections.deeplearning.aws.plugins.module_utils._telling import told


def main() -> None:
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, "cluster": {"type": "dict", "required": True}}, supports_check_mode=True
    )
    try:
        plan, problems = make(Aws.of(module), module.params["cluster"])
    except AwsProblem as problem:
        module.fail_json(msg=str(problem))
    if problems:
        module.fail_json(msg=told(problems, "{} things stand in the way:"))
    module.exit_json(changed=False, plan=plan)


if __name__ == "__main__":
    main()
