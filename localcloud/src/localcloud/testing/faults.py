"""Failures on request: `account.faults.add("throttle", {"action": "ec2:*"}, 0.2)`; the README lists the kinds."""

from localcloud.core.faults import Fault as Fault
from localcloud.core.faults import Faults as Faults
