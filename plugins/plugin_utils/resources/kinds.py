# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The kinds of resources that a cluster has: in words, how they are deleted, and how they are billed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ResourceKind(NamedTuple):
    one: str
    """In words."""
    after: frozenset[str] = frozenset()
    """The kinds that must be deleted before."""
    delete: str = ""
    """The call that deletes one; without it, the teardown has its own calls for the kind."""
    id: str = ""
    """The key of an id in AWS's answers, and the parameter of this call."""
    service: str = "ec2"
    costs: str = ""
    """How it is billed. Empty: it is free."""
    several: str = ""
    """In words, if that takes more than an s or es."""

    def in_words(self, number: int) -> str:
        several = self.several or self.one + ("es" if self.one.endswith("s") else "s")
        return f"{number} {self.one if number == 1 else several}"


_SOURCES = frozenset({"auto_scaling_group", "emr_cluster"})
_MACHINES = _SOURCES | {"instance"}
_HOLD_A_SUBNET = _MACHINES | {"nat_gateway", "mount_target", "network_interface"}
_PARTS_OF_A_VPC = frozenset({"subnet", "security_group", "route_table", "internet_gateway", "endpoint"})
_BEFORE_THE_BUCKET = (
    _HOLD_A_SUBNET
    | _PARTS_OF_A_VPC
    | {"vpc", "launch_template", "placement_group", "key_pair", "mount_target_access", "file_system", "address"}
    | {"volume", "instance_profile", "role"}
)
_SECOND, _HOUR, _GIGABYTE = "by the second", "by the hour", "by the gigabyte"

KINDS: Mapping[str, ResourceKind] = {
    # These two end their machines by themselves, and go when they have gone.
    "auto_scaling_group": ResourceKind("Auto Scaling group"),
    "emr_cluster": ResourceKind("EMR cluster"),
    "instance": ResourceKind("instance", _SOURCES, id="InstanceId", costs=_SECOND),
    # By its template a machine that was detached from its group is known.
    "launch_template": ResourceKind("launch template", _MACHINES, "delete_launch_template", "LaunchTemplateId"),
    "placement_group": ResourceKind("placement group", _MACHINES, id="GroupId"),
    "key_pair": ResourceKind("key pair", _SOURCES, "delete_key_pair", "KeyPairId"),
    # A machine whose file server has vanished hangs for minutes when it shuts down.
    "mount_target": ResourceKind("mount target", _MACHINES, "delete_mount_target", "MountTargetId", "efs"),
    "mount_target_access": ResourceKind(
        "security group on a mount target of others", _MACHINES, several="security groups on mount targets of others"
    ),
    "file_system": ResourceKind(
        "file system", _MACHINES | {"mount_target"}, "delete_file_system", "FileSystemId", "efs", _GIGABYTE
    ),
    "nat_gateway": ResourceKind("NAT gateway", frozenset(), "delete_nat_gateway", "NatGatewayId", costs=_HOUR),
    "address": ResourceKind(
        "Elastic IP address", _MACHINES | {"nat_gateway"}, "release_address", "AllocationId", costs=_HOUR
    ),
    "endpoint": ResourceKind("VPC endpoint", id="VpcEndpointId"),
    "network_interface": ResourceKind("network interface", _MACHINES, "delete_network_interface", "NetworkInterfaceId"),
    "volume": ResourceKind("volume", _MACHINES, "delete_volume", "VolumeId", costs=_GIGABYTE),
    "subnet": ResourceKind("subnet", _HOLD_A_SUBNET, "delete_subnet", "SubnetId"),
    "route_table": ResourceKind("route table", frozenset({"subnet", "endpoint"}), "delete_route_table", "RouteTableId"),
    "internet_gateway": ResourceKind(
        "internet gateway", _MACHINES | {"nat_gateway", "address"}, "delete_internet_gateway", "InternetGatewayId"
    ),
    "security_group": ResourceKind(
        "security group", _HOLD_A_SUBNET | {"mount_target_access"}, "delete_security_group", "GroupId"
    ),
    "vpc": ResourceKind("VPC", _HOLD_A_SUBNET | _PARTS_OF_A_VPC, "delete_vpc", "VpcId"),
    "instance_profile": ResourceKind(
        "instance profile", _MACHINES, "delete_instance_profile", "InstanceProfileName", "iam"
    ),
    "role": ResourceKind("IAM role", _MACHINES | {"instance_profile"}, "delete_role", "RoleName", "iam"),
    # The lock of the cluster is in it, so it is the last that destroy.yml deletes.
    "bucket": ResourceKind("bucket", _BEFORE_THE_BUCKET, costs=_GIGABYTE),
    "image": ResourceKind("image", frozenset(), "deregister_image", "ImageId"),
    "snapshot": ResourceKind("snapshot", frozenset({"image"}), "delete_snapshot", "SnapshotId", costs=_GIGABYTE),
}
"""In the order of messages."""
IMAGES = frozenset({"image", "snapshot"})
"""They outlive the cluster, as the next one may boot from them. image.yml deletes them."""
EVERYTHING = frozenset(KINDS)
IN_ZONE = frozenset({*_MACHINES, "mount_target", "mount_target_access", "nat_gateway", "subnet"})
"""Kinds of resources that lie in one availability zone."""


def kind_of(name: str) -> ResourceKind:
    """Return a kind, also one that only others' resources with our tag have."""
    words = name.replace("_", " ")
    return KINDS.get(name) or ResourceKind(words, several=words)
