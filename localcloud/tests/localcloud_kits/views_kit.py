"""A VPC with two subnets, and machines in it, as machines, network and metadata service get them."""

from __future__ import annotations

from typing import Any

from localcloud.core.views import (
    InstanceView,
    MountTargetView,
    NatGatewayView,
    Permission,
    RouteView,
    SecurityGroupView,
    SubnetView,
    VpcView,
)

LOCAL = RouteView("10.0.0.0/16", "local", "local")
INTERNET = RouteView("0.0.0.0/0", "internet", "igw-1")
NAT = RouteView("0.0.0.0/0", "nat", "nat-1")
NOWHERE = RouteView("0.0.0.0/0", "other", "nat-9")
EVERYTHING = Permission("-1", None, None, cidrs=("0.0.0.0/0",))
GATEWAY = NatGatewayView("nat-1", "subnet-public", "198.51.100.9", "available")


def machine(number: int = 10, subnet: str = "subnet-public", **more: Any) -> InstanceView:
    """The last part of its address is its number; so is its name."""
    address = f"10.0.{0 if subnet == 'subnet-public' else 1}.{number}"
    defaults: dict[str, Any] = {
        "id": f"i-{number}",
        "region": "us-east-1",
        "zone": "us-east-1a",
        "zone_id": "use1-az6",
        "type": "t3.micro",
        "image_id": "ami-1",
        "state": "running",
        "vpc_id": "vpc-1",
        "subnet_id": subnet,
        "private_ip": address,
        "private_dns": f"ip-{address.replace('.', '-')}.ec2.internal",
        "public_ip": None,
        "public_dns": "",
        "mac": "02:00:00:00:00:01",
        "security_groups": ("sg-a",),
        "security_group_names": ("red-members",),
        "interface_id": "eni-1",
        "launch_time": "2026-11-20T10:00:00Z",
        "launch_index": 0,
        "reservation_id": "r-1",
    }
    return InstanceView(**{**defaults, **more})


def group(
    name: str = "sg-a", *ingress: Permission, egress: tuple[Permission, ...] = (EVERYTHING,)
) -> SecurityGroupView:
    return SecurityGroupView(name, "vpc-1", ingress, egress)


def subnet(name: str, *routes: RouteView, s3_endpoint: bool = False) -> SubnetView:
    cidr = "10.0.0.0/24" if name == "subnet-public" else "10.0.1.0/24"
    return SubnetView(name, "vpc-1", cidr, "us-east-1a", (LOCAL, *routes), s3_endpoint)


def target(number: int = 200, **more: Any) -> MountTargetView:
    defaults = {
        "id": f"fsmt-{number}",
        "file_system_id": "fs-0a",
        "region": "us-east-1",
        "vpc_id": "vpc-1",
        "subnet_id": "subnet-private",
        "zone": "us-east-1a",
        "ip": f"10.0.1.{number}",
        "security_groups": ("sg-efs",),
        "state": "available",
        "resolvable": True,
    }
    return MountTargetView(**{**defaults, **more})


def vpc(*machines: InstanceView, **more: Any) -> VpcView:
    defaults: dict[str, Any] = {
        "id": "vpc-1",
        "region": "us-east-1",
        "cidrs": ("10.0.0.0/16",),
        "dns_support": True,
        "dns_hostnames": True,
        "subnets": (subnet("subnet-public", INTERNET), subnet("subnet-private")),
        "security_groups": (group(),),
        "instances": machines,
        "nat_gateways": (),
        "mount_targets": (),
    }
    return VpcView(**{**defaults, **more})
