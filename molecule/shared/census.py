"""Find what a cluster has in its AWS account, with boto3 alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import boto3

GONE = ("terminated", "deleted")
"""States in which EC2 still shows what does not exist any more."""


def census(cluster: str, region: str) -> dict[str, list[dict[str, Any]]]:
    """Return resources by kind: those with the cluster's name in a name or a tag, and those that bear no tag at all."""
    name = re.compile(rf'"{re.escape(cluster)}["-]')
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for kind, resource in resources(region):
        untagged = kind in ("address", "volume") and not resource.get("Tags") and resource.get("State") != "in-use"
        if untagged or name.search(json.dumps(resource, default=str)):
            by_kind.setdefault(kind, []).append(resource)
    return by_kind


def resources(region: str) -> Iterator[tuple[str, dict[str, Any]]]:
    ec2, efs = boto3.client("ec2", region), boto3.client("efs", region)
    scaling, iam = boto3.client("autoscaling", region), boto3.client("iam", region)
    listed = {
        "VPC": ec2.describe_vpcs()["Vpcs"],
        "subnet": ec2.describe_subnets()["Subnets"],
        "internet gateway": ec2.describe_internet_gateways()["InternetGateways"],
        "NAT gateway": ec2.describe_nat_gateways()["NatGateways"],
        "address": ec2.describe_addresses()["Addresses"],
        "route table": ec2.describe_route_tables()["RouteTables"],
        "endpoint": ec2.describe_vpc_endpoints()["VpcEndpoints"],
        "security group": ec2.describe_security_groups()["SecurityGroups"],
        "key pair": ec2.describe_key_pairs()["KeyPairs"],
        "launch template": ec2.describe_launch_templates()["LaunchTemplates"],
        "placement group": ec2.describe_placement_groups()["PlacementGroups"],
        "Auto Scaling group": scaling.describe_auto_scaling_groups()["AutoScalingGroups"],
        "instance": [instance for some in ec2.describe_instances()["Reservations"] for instance in some["Instances"]],
        "volume": ec2.describe_volumes()["Volumes"],
        "file system": efs.describe_file_systems()["FileSystems"],
        "role": iam.list_roles()["Roles"],
        "instance profile": iam.list_instance_profiles()["InstanceProfiles"],
        "bucket": boto3.client("s3", region).list_buckets()["Buckets"],
    }
    for kind, several in listed.items():
        for resource in several:
            state = resource.get("State")
            if (state["Name"] if isinstance(state, dict) else state) not in GONE:
                yield kind, resource
