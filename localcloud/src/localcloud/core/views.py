"""What the machines, the network and the metadata service need to know of the API's records, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from localcloud.core.settings import LOGIN_USER


@dataclass(frozen=True)
class InstanceView:
    """An EC2 instance as the API shows it now."""

    id: str
    region: str
    zone: str
    zone_id: str
    type: str
    image_id: str
    state: str
    """pending, running, shutting-down, terminated, stopping, stopped"""
    vpc_id: str
    subnet_id: str
    private_ip: str
    private_dns: str
    public_ip: str | None
    public_dns: str
    mac: str
    security_groups: tuple[str, ...]
    security_group_names: tuple[str, ...]
    interface_id: str
    launch_time: str
    launch_index: int
    reservation_id: str
    key_name: str | None = None
    public_key: str | None = None
    user_data: bytes = b""
    profile_arn: str | None = None
    profile_id: str | None = None
    login_user: str = LOGIN_USER
    """Whom the machine lets log in with the key."""
    role_name: str | None = None
    role_arn: str | None = None
    spot: bool = False
    placement_group: str = ""
    http_tokens: str = "optional"
    hop_limit: int = 1
    http_endpoint: str = "enabled"
    tags_in_metadata: bool = False
    gpus: int = 0
    gpu_name: str = ""
    gpu_memory_mib: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    state_since: float = 0.0


@dataclass(frozen=True)
class Permission:
    """One rule of a security group: who may be reached by (or may reach) whom, on what."""

    protocol: str
    """tcp, udp, icmp, a number, or -1 for all"""
    from_port: int | None
    to_port: int | None
    cidrs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class SecurityGroupView:
    id: str
    vpc_id: str
    ingress: tuple[Permission, ...]
    egress: tuple[Permission, ...]


@dataclass(frozen=True)
class RouteView:
    destination: str
    kind: str
    """local, internet (an internet gateway), nat (a NAT gateway), other (nothing answers)"""
    target: str


@dataclass(frozen=True)
class SubnetView:
    id: str
    vpc_id: str
    cidr: str
    zone: str
    routes: tuple[RouteView, ...]
    s3_endpoint: bool
    """its route table leads to S3 by a gateway endpoint"""


@dataclass(frozen=True)
class NatGatewayView:
    id: str
    subnet_id: str
    public_ip: str
    state: str


@dataclass
class MountTargetView:
    id: str
    file_system_id: str
    region: str
    vpc_id: str
    subnet_id: str
    zone: str
    ip: str
    security_groups: tuple[str, ...]
    state: str = "creating"
    """creating, available, deleting"""
    resolvable: bool = False
    """DNS knows its name"""


@dataclass(frozen=True)
class VpcView:
    """The records that decide about connections in one VPC."""

    id: str
    region: str
    cidrs: tuple[str, ...]
    dns_support: bool
    dns_hostnames: bool
    subnets: tuple[SubnetView, ...]
    security_groups: tuple[SecurityGroupView, ...]
    instances: tuple[InstanceView, ...]
    nat_gateways: tuple[NatGatewayView, ...]
    mount_targets: tuple[MountTargetView, ...]
