#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: network
short_description: The network of a cluster, in one zone
version_added: 1.0.0
description:
  - Keeps a VPC with DNS, a public and a private subnet, an internet gateway, a NAT gateway on an address of its own,
    routes, a gateway endpoint for S3, the master's Elastic IP address, and three security groups.
  - Security group C(members) lets members reach each other and the world, C(ssh) lets the given locations reach the
    master, C(efs) lets members reach mount targets.
  - The NAT gateway is only started; M(deeplearning.aws.network_ready) waits for it.
  - Everything is found by the tag C(deeplearning:cluster), and bears it from the call on that makes it.
  - There is this module because it takes the place of a dozen in C(amazon.aws), which took half a minute, sleep after
    each change, and make route tables and internet gateways without tags.
options:
  cluster:
    description: The cluster's name.
    type: str
    required: true
  zone:
    description: The zone. Where subnets exist already, theirs counts.
    type: str
    required: true
  cidr:
    description: The VPC's block of addresses.
    type: str
  public_cidr:
    description: The public subnet's, within it.
    type: str
  private_cidr:
    description: The private subnet's, within it.
    type: str
  vpc_id:
    description: A VPC that exists and is to be used, with its subnets, gateways and routes.
    type: str
    default: ""
  public_subnet_id:
    description: The public subnet in that VPC.
    type: str
    default: ""
  private_subnet_id:
    description: The private subnet in that VPC.
    type: str
    default: ""
  ssh_locations:
    description: Blocks of addresses that may reach the master by ssh.
    type: list
    elements: str
    default: []
  ssh_exact:
    description: Whether rules for ssh that somebody has added by hand are removed.
    type: bool
    default: false
  tags:
    description: Further tags, on everything.
    type: dict
    default: {}
extends_documentation_fragment: [deeplearning.aws._aws]
attributes:
  check_mode:
    description: Says what it would change; what is yet to be made has a placeholder for its id.
    support: full
  diff_mode:
    description: Says what it has changed or would change, in diff mode.
    support: full
"""

EXAMPLES = r"""
- name: Make the network
  deeplearning.aws.network:
    region: us-east-1
    cluster: deeplearning
    zone: us-east-1a
    cidr: 10.0.0.0/16
    public_cidr: 10.0.0.0/17
    private_cidr: 10.0.128.0/17
    ssh_locations: [198.51.100.7/32]
"""

RETURN = r"""
network:
  description: What it is.
  returned: always
  type: dict
  contains:
    vpc_id:
      description: The VPC.
      type: str
    zone:
      description: The zone.
      type: str
    public_subnet_id:
      description: The public subnet.
      type: str
    private_subnet_id:
      description: The private subnet.
      type: str
    nat_gateway_id:
      description: The NAT gateway; empty in a VPC that was given.
      type: str
    nat_address:
      description: Its public address; empty in a VPC that was given.
      type: str
    ssh_security_group_id:
      description: The security group that lets ssh in.
      type: str
    members_security_group_id:
      description: The security group of all members.
      type: str
    efs_security_group_id:
      description: The security group of mount targets.
      type: str
    master_address:
      description: The master's Elastic IP address, as C(allocation_id) and C(public_ip).
      type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._network import Network, Wanted


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "cluster": {"type": "str", "required": True},
            "zone": {"type": "str", "required": True},
            "cidr": {"type": "str"},
            "public_cidr": {"type": "str"},
            "private_cidr": {"type": "str"},
            "vpc_id": {"type": "str", "default": ""},
            "public_subnet_id": {"type": "str", "default": ""},
            "private_subnet_id": {"type": "str", "default": ""},
            "ssh_locations": {"type": "list", "elements": "str", "default": []},
            "ssh_exact": {"type": "bool", "default": False},
            "tags": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        network = Network(Aws.of(module), _wanted(given), module.check_mode)
        made = network.present()
    except AwsProblem as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(changed=network.changed, network=made, diff={"before": network.before, "after": network.after})


def _wanted(given: dict[str, Any]) -> Wanted:
    return Wanted(
        cluster=given["cluster"],
        zone=given["zone"],
        cidr=given["cidr"] or "",
        public_cidr=given["public_cidr"] or "",
        private_cidr=given["private_cidr"] or "",
        vpc_id=given["vpc_id"],
        public_subnet_id=given["public_subnet_id"],
        private_subnet_id=given["private_subnet_id"],
        ssh_locations=given["ssh_locations"],
        ssh_exact=given["ssh_exact"],
        tags={key: str(value) for key, value in given["tags"].items()},
    )


if __name__ == "__main__":
    main()
