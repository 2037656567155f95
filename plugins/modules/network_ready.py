#!/usr/bin/python
# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: network_ready
short_description: The rest of a cluster's network, once its master is there
version_added: 1.0.0
description:
  - Waits for the NAT gateway that M(deeplearning.aws.network) has started, and gives the master its address.
options:
  nat_gateway_id:
    description: The NAT gateway; empty where there is none to wait for.
    type: str
    default: ""
  allocation_id:
    description: The Elastic IP address.
    type: str
    required: true
  instance_id:
    description: The instance whose first network interface gets it. It is taken from whatever else has it.
    type: str
    required: true
  wait_timeout:
    description: How many seconds to wait at most.
    type: int
    default: 600
extends_documentation_fragment: [deeplearning.aws._aws]
attributes:
  check_mode:
    description: Can run in check mode and say what it would change; it does not wait then.
    support: full
  diff_mode:
    description: Says what it has changed or would change, in diff mode.
    support: full
"""

EXAMPLES = r"""
- name: Wait for the NAT gateway, and give the master its address
  deeplearning.aws.network_ready:
    region: us-east-1
    nat_gateway_id: nat-0123456789abcdef0
    allocation_id: eipalloc-0123456789abcdef0
    instance_id: i-0123456789abcdef0
"""

RETURN = r""" # """

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deeplearning.aws.plugins.module_utils._aws import ARGUMENTS, Aws, AwsProblem
from ansible_collections.deeplearning.aws.plugins.module_utils._waiting import until


def wait_for_nat(aws: Aws, gateway_id: str, seconds: float) -> None:
    def look() -> bool | None:
        found = aws.call("ec2", "describe_nat_gateways", NatGatewayIds=[gateway_id])["NatGateways"][0]
        if found["State"] not in ("pending", "available"):
            why = f" ({found['FailureMessage']})" if found.get("FailureMessage") else ""
            raise AwsProblem(
                f"The NAT gateway {gateway_id} is {found['State']}{why}: run it again, it makes another one."
            )
        return True if found["State"] == "available" else None

    if until(look, seconds) is None:
        raise AwsProblem(f"After {seconds:g} s the NAT gateway {gateway_id} is still pending: run it again later.")


class Address:
    def __init__(self, aws: Aws, allocation_id: str, check: bool) -> None:
        self._aws = aws
        self._allocation_id = allocation_id
        self._check = check
        self.before = ""
        self.after = ""

    def give(self, instance_id: str) -> None:
        """By its first interface, as AWS takes an instance only if that is its only one."""
        found = self._aws.call("ec2", "describe_addresses", AllocationIds=[self._allocation_id])["Addresses"][0]
        self.before, self.after = str(found.get("InstanceId") or ""), instance_id
        if self.before != self.after and not self._check:
            self._aws.call(
                "ec2",
                "associate_address",
                AllocationId=self._allocation_id,
                NetworkInterfaceId=self._first_interface(instance_id),
                AllowReassociation=True,
            )

    def _first_interface(self, instance_id: str) -> str:
        answer = self._aws.call("ec2", "describe_instances", InstanceIds=[instance_id])
        interfaces = answer["Reservations"][0]["Instances"][0]["NetworkInterfaces"]
        return str(next(one["NetworkInterfaceId"] for one in interfaces if one["Attachment"]["DeviceIndex"] == 0))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "nat_gateway_id": {"type": "str", "default": ""},
            "allocation_id": {"type": "str", "required": True},
            "instance_id": {"type": "str", "required": True},
            "wait_timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        aws = Aws.of(module)
        if given["nat_gateway_id"] and not module.check_mode:
            wait_for_nat(aws, given["nat_gateway_id"], given["wait_timeout"])
        address = Address(aws, given["allocation_id"], module.check_mode)
        address.give(given["instance_id"])
    except AwsProblem as problem:
        module.fail_json(msg=str(problem))
    changed = address.before != address.after
    module.exit_json(changed=changed, diff={"before": address.before, "after": address.after})


if __name__ == "__main__":
    main()
