"""The table: (service, operation) → what must be allowed. The rows are in services/, in the language of rules.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .rules import Call, Need, Row
from .services import autoscaling, ec2, efs, iam, others, s3, ssm
from .world import World

TABLE: Mapping[tuple[str, str], Row] = {
    **ec2.ROWS,
    **autoscaling.ROWS,
    **iam.ROWS,
    **s3.ROWS,
    **efs.ROWS,
    **ssm.ROWS,
    **others.ROWS,
}


# IAM is one for all regions, and its calls are said to be made here (aws:RequestedRegion).
_GLOBAL = {"iam": "us-east-1"}


class UnknownOperation(Exception):
    """No row: what the call needs is not known, so it must be refused."""

    def __init__(self, service: str, operation: str) -> None:
        super().__init__(f"no row for {service}:{operation} in the IAM table")
        self.service = service
        self.operation = operation


def required(service: str, operation: str, params: Mapping[str, Any], world: World, region: str) -> list[Need]:
    """All that must be allowed for this call, each once. `service` is botocore's name, `params` what boto3 takes."""
    row = TABLE.get((service, operation))
    if row is None:
        raise UnknownOperation(service, operation)
    call = Call(service, operation, params, world, _GLOBAL.get(service, region))
    found: list[Need] = []
    for needs in row:
        found += (need for need in needs(call) if need not in found)
    return found
