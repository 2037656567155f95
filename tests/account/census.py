"""Count all resources of an account, with or without tags: none, or those of a small cluster."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

CLUSTER = "c-chaos"
KILLED = -signal.SIGKILL
LIVING = ["STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING", "TERMINATING"]
"""states of EMR clusters that have not ended"""
CONSENT = {"destroy": CLUSTER, "cluster_keep_efs": False}


def census(account: Any) -> Counter[str]:
    """Return how many resources of each kind the account has, with or without tags."""
    ec2, scaling, efs = account.client("ec2"), account.client("autoscaling"), account.client("efs")
    iam, s3 = account.client("iam"), account.client("s3")
    reservations = ec2.describe_instances()["Reservations"]
    systems = efs.describe_file_systems()["FileSystems"]
    roles = [role for role in iam.list_roles()["Roles"] if not role["Path"].startswith("/aws-service-role/")]
    resources = {
        "vpc": ec2.describe_vpcs()["Vpcs"],
        "subnet": ec2.describe_subnets()["Subnets"],
        "gateway": ec2.describe_internet_gateways()["InternetGateways"],
        "route table": ec2.describe_route_tables()["RouteTables"],
        "security group": ec2.describe_security_groups()["SecurityGroups"],
        "address": ec2.describe_addresses()["Addresses"],
        "NAT": [gateway for gateway in ec2.describe_nat_gateways()["NatGateways"] if gateway["State"] != "deleted"],
        "endpoint": [
            endpoint for endpoint in ec2.describe_vpc_endpoints()["VpcEndpoints"] if endpoint["State"] != "deleted"
        ],
        "interface": ec2.describe_network_interfaces()["NetworkInterfaces"],
        "volume": ec2.describe_volumes()["Volumes"],
        "instance": [
            instance
            for all_ in reservations
            for instance in all_["Instances"]
            if instance["State"]["Name"] != "terminated"
        ],
        "template": ec2.describe_launch_templates()["LaunchTemplates"],
        "placement group": ec2.describe_placement_groups()["PlacementGroups"],
        "key": ec2.describe_key_pairs()["KeyPairs"],
        "group": scaling.describe_auto_scaling_groups()["AutoScalingGroups"],
        "EMR cluster": account.client("emr").list_clusters(ClusterStates=LIVING)["Clusters"],
        "file system": systems,
        "mount target": [
            target
            for system in systems
            for target in efs.describe_mount_targets(FileSystemId=system["FileSystemId"])["MountTargets"]
        ],
        "role": roles,
        "profile": iam.list_instance_profiles()["InstanceProfiles"],
        "bucket": s3.list_buckets()["Buckets"],
    }
    return Counter({kind: len(things) for kind, things in resources.items()})


WORKERS = 2
WHOLE = Counter(
    {
        "vpc": 1,
        "subnet": 2,
        "gateway": 1,
        # Each VPC has this one from the start; nothing uses it.
        "route table": 2 + 1,
        "security group": 3 + 1,
        "address": 2,
        "NAT": 1,
        "endpoint": 1,
        "volume": 1 + WORKERS,
        "instance": 1 + WORKERS,
        # Of the instances, the NAT gateway and the mount target.
        "interface": 1 + WORKERS + 2,
        "template": 2,
        "placement group": 1,
        "key": 1,
        "group": 2,
        "file system": 1,
        "mount target": 1,
        "role": 2,
        "profile": 2,
        "bucket": 1,
    }
)
WHOLE_EMR = WHOLE - Counter({"address": 2, "NAT": 1, "template": 2, "placement group": 1, "group": 2, "interface": 1})
"""An EMR cluster: all its machines have public addresses of EC2's own, so there is no NAT gateway."""
WHOLE_EMR.update({"EMR cluster": 1, "security group": 2, "route table": -1, "profile": -1})


def prepare(account: Any, emr: bool = False) -> None:
    """Settings for a small cluster."""
    account.settings = {
        "cluster_name": CLUSTER,
        "cluster_region": "us-east-1",
        "cluster_ssh_allowed_cidrs": ["198.51.100.0/24"],
        "cluster_public_key_file": f"{account.key()}.pub",
        "cluster_worker_count": WORKERS,
        **({"cluster_instance_type": "m5.xlarge"} if emr else {}),
    }
