"""The facts about the account that the table needs in addition to the parameters of the call.

A row uses the tags of an ARN, or the launch template of a name; the World knows them. It returns None or nothing for
what does not exist. The row then checks the wildcard resource (`route-table/*`), and the service reports the missing
resource.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from .patterns import Value

# The kinds of keys that `lookup` takes → what it returns.
Lookup = Literal[
    "launch-template-name",  # → lt-…
    "key-pair-id",  # → the pair's name
    "placement-group-id",  # → the group's name
    "address-association",  # eipassoc-… → eipalloc-…
    "address-association-interface",  # eipassoc-… → eni-…
    "route-table-association",  # rtbassoc-… → rtb-…
    "route-table-association-subnet",  # rtbassoc-… → subnet-…
    "route-table-association-gateway",  # rtbassoc-… → igw-…
    "network-interface-attachment-instance",  # eni-attach-… → i-…
    "mount-target",  # fsmt-… → fs-…
    "mount-target-interface",  # fsmt-… → eni-…
    "role",  # name → ARN (with its path)
    "user",  # name → ARN
    "instance-profile",  # name → ARN
    "instance-profile-role",  # name or ARN of the profile → ARN of the role in it
    "auto-scaling-group",  # name → ARN
    "auto-scaling-instance",  # i-… → name of its group
]


class World(Protocol):
    @property
    def account(self) -> str: ...

    @property
    def partition(self) -> str: ...

    def lookup(self, kind: Lookup, key: str, region: str) -> str | None:
        """Return what a name or an association refers to; None if it does not exist."""

    def tags(self, arn: str) -> Mapping[str, str]:
        """Return the current tags of a resource; nothing if it does not exist."""

    def facts(self, arn: str) -> Mapping[str, Value]:
        """Return the known condition keys of an existing resource: ec2:Vpc of a subnet or a security group
        (an ARN), ec2:InstanceType and ec2:AvailabilityZone of an instance, iam:PermissionsBoundary of a role …"""

    def launch_template(self, name_or_id: str, version: str, region: str) -> Mapping[str, Any] | None:
        """Return LaunchTemplateData of that version (a number, $Latest or $Default)."""

    def auto_scaling_group(self, name: str, region: str) -> Mapping[str, Any] | None:
        """Return the group as DescribeAutoScalingGroups does."""

    def has_service_linked_role(self, service: str) -> bool:
        """Return whether the account has the role linked to a service such as `autoscaling.amazonaws.com`."""
