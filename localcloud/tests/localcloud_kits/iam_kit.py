"""What the tests of the IAM table share: an account that is nothing but dictionaries, and calls with any parameters."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import botocore.loaders
import botocore.model

ACCOUNT, REGION = "123456789012", "us-east-1"
EC2 = f"arn:aws:ec2:{REGION}:{ACCOUNT}:"
IAM = f"arn:aws:iam::{ACCOUNT}:"


@dataclass
class FakeWorld:
    """An account that is nothing but dictionaries."""

    account: str = ACCOUNT
    partition: str = "aws"
    lookups: Mapping[tuple[str, str], str] = field(default_factory=dict)
    tagged: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    known: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    templates: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    linked: tuple[str, ...] = ("autoscaling.amazonaws.com", "elasticfilesystem.amazonaws.com", "spot.amazonaws.com")

    def lookup(self, kind: str, key: str, region: str) -> str | None:
        return self.lookups.get((kind, key))

    def tags(self, arn: str) -> Mapping[str, str]:
        return self.tagged.get(arn, {})

    def facts(self, arn: str) -> Mapping[str, Any]:
        return self.known.get(arn, {})

    def launch_template(self, name_or_id: str, version: str, region: str) -> Mapping[str, Any] | None:
        return self.templates.get((name_or_id, version))

    def auto_scaling_group(self, name: str, region: str) -> Mapping[str, Any] | None:
        return self.groups.get(name)

    def has_service_linked_role(self, service: str) -> bool:
        return service in self.linked


@functools.cache
def model(service: str) -> Any:
    return botocore.model.ServiceModel(botocore.loaders.Loader().load_service_model(service, "service-2"), service)


SAMPLES = {
    "Path": "/x/",
    "PolicyArn": f"{IAM}policy/x",
    "CapacityReservationResourceGroupArn": f"arn:aws:resource-groups:{REGION}:{ACCOUNT}:group/x",
    "CopySource": "bucket/key",
    "Resources": ["vpc-1"],
}
"""values of members that mean something to the table"""


def minimal(shape: Any, depth: int = 0, *, everything: bool = False) -> Any:
    """The least that a shape allows; or, with `everything`, a value for each member."""
    match shape.type_name:
        case "structure":
            names = shape.members if everything and depth < 5 else shape.required_members
            arns = {name: f"{IAM}role/x" for name in names if name.lower().endswith(("arn", "role"))}
            values = {name: minimal(shape.members[name], depth + 1, everything=everything) for name in names}
            return values | arns | {name: SAMPLES[name] for name in names if name in SAMPLES}
        case "list":
            return [minimal(shape.member, depth + 1, everything=everything)]
        case "map":
            return {"key": minimal(shape.value, depth + 1, everything=everything)}
        case "boolean":
            return True
        case "integer" | "long" | "float" | "double":
            return 1
        case _:
            return shape.enum[0] if getattr(shape, "enum", None) else "x-1"
