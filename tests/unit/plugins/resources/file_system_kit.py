"""File systems of an account in this process, and the module that makes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Run = Callable[..., dict[str, Any]]
TAGS = {"deeplearning:cluster": "c"}


class Place:
    """A VPC with two subnets in two zones, and security groups."""

    def __init__(self, aws: Any, cidr: str = "10.0.0.0/16") -> None:
        self.ec2 = aws.client("ec2")
        self.efs = aws.client("efs")
        self.clock = aws.cloud.clock
        base = cidr.split(".0.0/")[0]
        self.vpc = self.ec2.create_vpc(CidrBlock=cidr)["Vpc"]["VpcId"]
        self.subnets = [
            self.ec2.create_subnet(VpcId=self.vpc, CidrBlock=f"{base}.{number}.0/24", AvailabilityZone=zone)["Subnet"][
                "SubnetId"
            ]
            for number, zone in enumerate(("us-east-1a", "us-east-1b"))
        ]
        self.ours = self.group("c-efs")
        self.members = self.group("c-members")

    def group(self, name: str) -> str:
        answer = self.ec2.create_security_group(GroupName=name, Description=name, VpcId=self.vpc)
        return str(answer["GroupId"])

    def options(self, **more: Any) -> dict[str, Any]:
        return {
            "name": "c-efs",
            "creation_token": "c",
            "tags": TAGS,
            "subnet_id": self.subnets[0],
            "security_groups": [self.ours],
            "clients": [self.members],
        } | more

    def systems(self) -> list[Any]:
        return list(self.efs.describe_file_systems()["FileSystems"])

    def targets(self, file_system_id: str) -> list[Any]:
        return list(self.efs.describe_mount_targets(FileSystemId=file_system_id)["MountTargets"])

    def policy(self, file_system_id: str) -> dict[str, Any] | None:
        try:
            answer = self.efs.describe_file_system_policy(FileSystemId=file_system_id)
        except self.efs.exceptions.PolicyNotFound:
            return None
        policy: dict[str, Any] = json.loads(answer["Policy"])
        return policy

    def groups_of(self, target_id: str) -> set[str]:
        return set(self.efs.describe_mount_target_security_groups(MountTargetId=target_id)["SecurityGroups"])

    def foreign(self, subnet: int = 0, groups: list[str] | None = None) -> tuple[str, str]:
        """Create another user's file system with a mount target."""
        system = self.efs.create_file_system(CreationToken="theirs")["FileSystemId"]
        self.clock.advance(1)
        extra = {"SecurityGroups": groups} if groups else {}
        target = self.efs.create_mount_target(FileSystemId=system, SubnetId=self.subnets[subnet], **extra)
        self.clock.advance(1)
        return str(system), str(target["MountTargetId"])


def writes(aws: Any) -> list[str]:
    return [record["operation"] for record in aws.cloud.calls.since() if record["writes"]]
