"""The table: (service, operation) → the needed permissions. The rows are in services/, in the language of rules.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .rules import Call, Need, Row
from .services import autoscaling, ec2, efs, emr, iam, others, s3, ssm
from .world import World

TABLE: Mapping[tuple[str, str], Row] = {
    **ec2.ROWS,
    **autoscaling.ROWS,
    **iam.ROWS,
    **s3.ROWS,
    **efs.ROWS,
    **emr.ROWS,
    **ssm.ROWS,
    **others.ROWS,
}


# IAM is global. This is its region in aws:RequestedRegion.
_GLOBAL = {"iam": "us-east-1"}


class UnknownOperation(Exception):
    """The table has no row for the operation, so the call must be refused."""

    def __init__(self, service: str, operation: str) -> None:
        super().__init__(f"no row for {service}:{operation} in the IAM table")
        self.service = service
        self.operation = operation


def required(service: str, operation: str, params: Mapping[str, Any], world: World, region: str) -> list[Need]:
    """Return the permissions that this call needs, each once. `service` is botocore's name, `params` are boto3's."""
    row = TABLE.get((service, operation))
    if row is None:
        raise UnknownOperation(service, operation)
    call = Call(service, operation, params, world, _GLOBAL.get(service, region))
    needs: list[Need] = []
    for rule in row:
        needs += (need for need in rule(call) if need not in needs)
    return needs
