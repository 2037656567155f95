#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: network_info
short_description: What exists of a cluster's network
version_added: 1.0.0
description:
  - Finds everything of a cluster's network by the tag C(deeplearning:cluster), in one run.
  - It takes the place of eight info modules, and of the searches in C(amazon.aws) that would make a second thing where
    one exists that is in use (an address) or bears other tags by now (a route table).
options:
  cluster:
    description: The cluster's name.
    type: str
    required: true
  ssh_locations:
    description: Blocks of addresses to let in by ssh.
    type: list
    elements: str
    default: []
  ssh_exact:
    description: Whether RV(ssh_rules) leaves out rules that somebody has added by hand.
    type: bool
    default: false
  wait_for_nat:
    description:
      - Whether to wait until the NAT gateways are available, or those that are being deleted have gone.
    type: bool
    default: false
  nat_gateway_id:
    description: The NAT gateway that is waited for; that it could not be made is an error.
    type: str
    default: ""
  wait_timeout:
    description: How many seconds to wait at most.
    type: int
    default: 600
extends_documentation_fragment: [deeplearning.aws._aws]
attributes:
  check_mode:
    description: Can run in check mode; it never changes anything.
    support: full
"""

EXAMPLES = r"""
- name: Find the cluster's network
  deeplearning.aws.network_info:
    region: us-east-1
    cluster: deeplearning
"""

RETURN = r"""
vpcs:
  description: The VPCs, each with C(id) and C(cidr). There should be one at most.
  returned: always
  type: list
  elements: dict
internet_gateways:
  description: The internet gateways, each with C(id) and C(vpc_id).
  returned: always
  type: list
  elements: dict
subnets:
  description: The subnets by their names (C(public), C(private)), each with C(id), C(vpc_id), C(zone), C(cidr).
  returned: always
  type: dict
route_tables:
  description: The route tables by their names, each with C(id) and C(vpc_id).
  returned: always
  type: dict
nat_gateways:
  description: The NAT gateways that exist or are going, each with C(id), C(subnet_id), C(state).
  returned: always
  type: list
  elements: dict
addresses:
  description:
    - The Elastic IP addresses by their names (C(nat), C(master)), each with C(id), C(public_ip)
      and the C(instance_id) that has it.
  returned: always
  type: dict
endpoints:
  description: The gateway endpoints, each with C(id), C(vpc_id), C(route_tables).
  returned: always
  type: list
  elements: dict
security_groups:
  description: The security groups by their names (C(ssh), C(members), C(efs)), each with C(id) and C(vpc_id).
  returned: always
  type: dict
ssh_rules_by_hand:
  description: The inbound rules of the security group for ssh that somebody has added by hand.
  returned: always
  type: list
  elements: dict
ssh_rules:
  description: The rules that it shall have, as M(amazon.aws.ec2_security_group) takes them.
  returned: always
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._network import network_of, ssh_rules
from ansible_collections.deeplearning.aws.plugins.module_utils._waiting import until


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "cluster": {"type": "str", "required": True},
            "ssh_locations": {"type": "list", "elements": "str", "default": []},
            "ssh_exact": {"type": "bool", "default": False},
            "wait_for_nat": {"type": "bool", "default": False},
            "nat_gateway_id": {"type": "str", "default": ""},
            "wait_timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    given = module.params
    found: dict[str, Any] = {}

    def look() -> bool | None:
        found.update(network_of(aws, given["cluster"]))
        settled = all(gateway["state"] == "available" for gateway in found["nat_gateways"])
        return True if settled or module.check_mode or not given["wait_for_nat"] else None

    try:
        aws = Aws.of(module)
        if until(look, given["wait_timeout"]) is None:
            states = ", ".join(f"{gateway['id']} is {gateway['state']}" for gateway in found["nat_gateways"])
            module.fail_json(msg=f"After {given['wait_timeout']} s the NAT gateway {states}: run it again later.")
    except AwsProblem as problem:
        module.fail_json(msg=str(problem))
    wanted = given["nat_gateway_id"]
    if wanted and not module.check_mode and wanted not in [gateway["id"] for gateway in found["nat_gateways"]]:
        module.fail_json(msg=f"AWS could not make the NAT gateway {wanted}: run it again, it makes another one.")
    rules = ssh_rules(given["ssh_locations"], found["ssh_rules_by_hand"], given["ssh_exact"])
    module.exit_json(changed=False, ssh_rules=rules, **found)


if __name__ == "__main__":
    main()
