"""What the table has to ask about the account, beside the parameters of the call.

A row says "the tags of this ARN" or "the template that this name means"; the World answers. Every answer may be "I
do not know" (None or nothing): then the row checks the wildcard resource (`route-table/*`), and it is the service
itself that says that the thing does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from .patterns import Value

# What `lookup` can be asked: the kind of key that is given → what comes back.
Lookup = Literal[
    "launch-template-name",  # → lt-…
    "security-group-name",  # → sg-…
    "key-pair-id",  # → the pair's name
    "placement-group-id",  # → the group's name
    "public-ip",  # → eipalloc-…
    "public-ip-interface",  # → eni-…
    "address-association",  # eipassoc-… → eipalloc-…
    "address-association-interface",  # eipassoc-… → eni-…
    "route-table-association",  # rtbassoc-… → rtb-…
    "route-table-association-subnet",  # rtbassoc-… → subnet-…
    "route-table-association-gateway",  # rtbassoc-… → igw-…
    "network-interface-attachment",  # eni-attach-… → eni-…
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
        """What a name or a connection means; None if there is no such thing."""

    def tags(self, arn: str) -> Mapping[str, str]:
        """The tags that the resource bears now; nothing if it does not exist."""

    def facts(self, arn: str) -> Mapping[str, Value]:
        """Condition keys that describe an existing resource, as far as known: ec2:Vpc of a subnet or a security group
        (an ARN), ec2:InstanceType and ec2:AvailabilityZone of an instance, iam:PermissionsBoundary of a role …"""

    def launch_template(self, name_or_id: str, version: str, region: str) -> Mapping[str, Any] | None:
        """LaunchTemplateData of that version (a number, $Latest or $Default)."""

    def auto_scaling_group(self, name: str, region: str) -> Mapping[str, Any] | None:
        """The group as DescribeAutoScalingGroups shows it."""

    def has_service_linked_role(self, service: str) -> bool:
        """Whether the account has the role linked to `autoscaling.amazonaws.com` and the like."""
