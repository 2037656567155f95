#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: Validate the settings of a cluster against AWS
version_added: 1.0.0
description:
  - Looks up what the settings name (instance types, zones, image, key pair, network, file system, quotas). It fails
    with a message about all that AWS does not have or that does not fit together.
  - Returns what is needed to create the cluster, and the hourly costs as far as they are known.
  - It only reads. The cluster keeps the image that it was created with until the setting names another one.
extends_documentation_fragment: [deeplearning.aws._aws, deeplearning.aws._attributes]
options:
  cluster:
    description: The settings, as M(deeplearning.aws.check_input) returns them.
    type: dict
    required: true
  emr:
    description: Whether the machines are to be EMR's.
    type: bool
    default: false
  pins:
    description: The versions of the frameworks, as P(deeplearning.aws.framework_pins#filter) returns them.
    type: dict
    default: {}
  gpu_tables:
    description:
      - For which GPUs the frameworks have kernels, as P(deeplearning.aws.gpu_tables#filter) returns it. A framework
        that is missing is not compared with the instance types.
    type: dict
    default: {}
  dataset:
    description: A data set to compare with the nodes' own disks, by its name.
    type: str
    default: ""
  data_on:
    description: Whether these disks have to be instance store.
    type: str
    choices: [node, instance_store]
    default: node
  delete_actions:
    description:
      - Names of scheduled actions of the cluster's Auto Scaling groups to delete, as RV(plan.notes) or an error of this
        module shows them. Those of this collection stay.
    type: list
    elements: str
    default: []
  specified:
    description: The names of the settings that are given now. The others are as the cluster was made.
    type: list
    elements: str
    default: []
  before:
    description: What the cluster was made with, of the settings that change.
    type: dict
    default: {}
  recorded:
    description:
      - Whether the settings that the cluster was made with are known. Without them, O(before) is what AWS shows, and
        defaults that differ from it are refused.
    type: bool
    default: true
  remove_workers:
    description: How many workers may be removed.
    type: int
    default: 0
  remove_in_use:
    description: The ids of workers that may be removed although a run uses them.
    type: list
    elements: str
    default: []
  remove_end:
    description: Whether a scheduled end may be removed.
    type: bool
    default: false
  remove_duplicates:
    description:
      - The ids of duplicates to delete, as an error of this module shows them. These are NAT gateways and Elastic IP
        addresses that the cluster has more than once and that nothing uses. Ids of other resources are refused.
    type: list
    elements: str
    default: []
notes:
  - It needs the permissions C(sts:GetCallerIdentity), C(autoscaling:DescribeAutoScalingGroups),
    C(ec2:DescribeAddresses), C(ec2:DescribeAvailabilityZones), C(ec2:DescribeImages), C(ec2:DescribeInstances),
    C(ec2:DescribeInstanceTypes),
    C(ec2:DescribeInstanceTypeOfferings), C(ec2:DescribeKeyPairs), C(ec2:DescribeLaunchTemplates),
    C(ec2:DescribeLaunchTemplateVersions), C(ec2:DescribeNatGateways), C(ec2:DescribeRouteTables),
    C(ec2:DescribeSecurityGroups), C(ec2:DescribeSubnets), C(ec2:DescribeVpcs),
    C(elasticfilesystem:DescribeFileSystems),
    C(elasticmapreduce:ListClusters), for O(emr) also C(elasticmapreduce:DescribeCluster),
    C(elasticmapreduce:DescribeReleaseLabel), C(elasticmapreduce:ListInstanceGroups),
    C(elasticmapreduce:ListReleaseLabels), C(elasticmapreduce:ListSupportedInstanceTypes) and without O(recorded)
    C(elasticmapreduce:GetAutoTerminationPolicy),
    C(elasticfilesystem:DescribeMountTargets), C(servicequotas:GetServiceQuota),
    C(servicequotas:GetAWSDefaultServiceQuota), C(ssm:GetParameters) and C(ssm:GetParametersByPath). Without
    C(pricing:GetProducts) the prices are unknown, and a limit of the costs refuses types with GPUs. Without
    C(ec2:GetEbsEncryptionByDefault) and C(ec2:GetEbsDefaultKmsKeyId) there is no note about the grant that Auto Scaling
    needs where an own KMS key encrypts all new disks.
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
  description: The plan.
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
        - The VPC. C(id) is empty if it does not exist yet. C(external) is true for a VPC of the user's own. C(subnets)
          then has a C(public) and a C(private) subnet for each zone.
      type: dict
      sample: {"external": false, "id": "", "cidr": "10.0.0.0/16", "public_cidr": "10.0.0.0/17",
        "private_cidr": "10.0.128.0/17", "subnets": {}}
    image:
      description: The image. C(kept) is true if the cluster has been pinned to it earlier.
      type: dict
      sample: {"id": "ami-0123456789abcdef0", "name": "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)",
        "root_device": "/dev/sda1", "kept": false}
    emr:
      description: For a cluster of EMR's machines, its C(release), C(cluster_id) if it exists, and the place of its
        C(logs).
      type: dict
      sample: {}
    ends:
      description: When each Auto Scaling group is scheduled to end its machines, in seconds since the epoch.
      type: dict
      sample: {"ttl": {"red-master": 1767225600.0, "red-workers": 1767225600.0}, "idle": {}, "setup": {}}
    delete_actions:
      description: The C(group) and C(name) of scheduled actions that are not the collection's and that
        O(delete_actions) names.
      type: list
      elements: dict
      sample: [{"group": "red-workers", "name": "zz"}]
    user:
      description: The user to log in as.
      type: str
      sample: ubuntu
    type:
      description: The workers' instance type.
      type: dict
      sample: {"name": "g5.xlarge", "vcpus": 4, "memory_mib": 16384, "gpus": 1, "accelerated": true,
        "gpu_name": "A10G", "gpu_maker": "NVIDIA", "neuron_name": "", "efa_cards": [],
        "instance_store_gib": 232.8, "placement": true, "spot": true, "architectures": ["x86_64"]}
    master_type:
      description: The master's, in the same form.
      type: dict
    placement_group:
      description: Whether to use a placement group.
      type: bool
    efa:
      description: Whether to use EFA.
      type: bool
    key_name:
      description: The EC2 key pair.
      type: str
    import_key:
      description: Whether to import the public key as this key pair.
      type: bool
    groups:
      description: The names of the cluster's Auto Scaling groups, by the role of their machines. EMR has none of them.
      type: dict
      sample: {"master": red-master, "worker": red-workers}
    bucket:
      description: The cluster's bucket.
      type: str
      sample: red-123456789012-us-east-1
    efs:
      description:
        - The file system. C(id) is empty if it does not exist yet. C(external) is true for one of the user's own.
          C(throughput) is the throughput mode that it will have, empty if that is unknown.
      type: dict
      sample: {"id": "", "external": false, "zone": "", "throughput": "elastic", "mount_targets": []}
    file_system_changes:
      description: What changes for a file system that exists, as lines of text. RV(plan.changes) has them too.
      type: list
      elements: str
      sample: ["throughput mode of file system fs-0123456789abcdef0 bursting → elastic"]
    quotas:
      description: The quotas that the machines count towards, in vCPUs.
      type: list
      elements: dict
    hourly:
      description:
        - The hourly costs, and where their prices come from. C(file_system_gb_month), C(file_system_gb_read) and
          C(file_system_gb_written) are the prices of a GB in the file system, null if they are unknown.
      type: dict
      sample: {"amount": 2.09, "currency": "USD", "known": true, "parts": [],
        "source": "AWS's Price List API, 2026-11-20"}
    changes:
      description: What changes for a cluster that exists, as lines of text.
      type: list
      elements: str
      sample: ["workers 4 → 1: 3 to be terminated"]
    duplicates:
      description: The duplicates to delete, which O(remove_duplicates) names, with C(lines) that describe them.
      type: dict
      sample:
        nat_gateways: [nat-0123456789abcdef0]
        addresses: [{"id": "eipalloc-0123456789abcdef0", "public_ip": 198.51.100.4}]
        lines: ["NAT gateway nat-0123456789abcdef0 (0.045 USD an hour)"]
    notes:
      description: Remarks that do not prevent the plan.
      type: list
      elements: str
    lines:
      description: The plan as lines of text.
      type: list
      elements: str
    brief:
      description: The same without what follows from the settings, and with the costs in one line.
      type: list
      elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.module import run_module
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.messages import join_problems
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.planner import make_plan


def run(aws: Aws, module: AnsibleModule) -> dict[str, Any]:
    plan, problems = make_plan(aws, module.params)
    if problems:
        raise UserError(join_problems(problems, "{} problems prevent the plan:"))
    return {"changed": False, "plan": plan}


def main() -> None:
    run_module(DOCUMENTATION, run)


if __name__ == "__main__":
    main()
