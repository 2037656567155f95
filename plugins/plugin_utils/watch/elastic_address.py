# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Associate an Elastic IP address with the machine of a group as soon as it runs, before it is in service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils.aws.client import Aws, AwsError
from ...module_utils.contract.hosts import primary_interface

_NOT_YET = frozenset({"IncorrectInstanceState", "InvalidInstanceID", "InvalidInstanceID.NotFound"})
"""AWS associates no address with an instance that is not running yet."""


@dataclass
class ElasticAddress:
    aws: Aws
    group: str
    """The Auto Scaling group of one machine."""
    allocation: str
    _machine: str = field(default="", init=False)

    def is_associated(self, machines: Sequence[str]) -> bool:
        """Return whether one of the group's machines has the address; a group without machines needs none."""
        return not machines or self._machine in machines

    def associate(self, machines: Sequence[str]) -> bool:
        """Associate the address with the first machine that runs, and return whether it was with another one."""
        if not machines or self._machine in machines:
            return False
        try:
            running = self._running(machines)
            if not running:
                return False
            interface = primary_interface(running)
            (address,) = self.aws.call("ec2", "describe_addresses", AllocationIds=[self.allocation])["Addresses"]
            moved = bool(address.get("NetworkInterfaceId") != interface)
            if moved:
                # AWS refuses an instance's id if it has several interfaces.
                target = {"NetworkInterfaceId": interface, "AllowReassociation": True}
                self.aws.call("ec2", "associate_address", AllocationId=self.allocation, **target)
        except AwsError as error:
            if error.code not in _NOT_YET:
                raise
            return False
        self._machine = str(running["InstanceId"])
        return moved

    def _running(self, machines: Sequence[str]) -> dict[str, Any]:
        instances = self.aws.instances(InstanceIds=list(machines))
        return next((instance for instance in instances if instance["State"]["Name"] == "running"), {})
