"""A cluster as it looks from the operator's side, made by plain boto3 in a moment and of any size. Nothing boots."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.account.kit import REGION, Account

ACCOUNT = "123456789012"
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
)
SECONDS = 120


@dataclass
class Fleet:
    account: Account
    cluster: str
    groups: dict[str, str]
    """ids of the security groups, by what they are for"""
    subnet: str

    @property
    def bucket(self) -> str:
        return f"{self.cluster}-{ACCOUNT}-{REGION}"

    @cached_property
    def ec2(self) -> Any:
        return self.account.client("ec2")

    @cached_property
    def s3(self) -> Any:
        return self.account.client("s3")

    @cached_property
    def role_ids(self) -> dict[str, str]:
        iam = self.account.client("iam")
        names = {role: f"{self.cluster}-{REGION}-{role}" for role in ("master", "worker")}
        return {role: str(iam.get_role(RoleName=name)["Role"]["RoleId"]) for role, name in names.items()}

    def machines(self, kind: str) -> list[dict[str, Any]]:
        """Of a group (master, workers), by their private addresses."""
        filters = [
            {"Name": "tag:aws:autoscaling:groupName", "Values": [f"{self.cluster}-{kind}"]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
        pages = self.ec2.get_paginator("describe_instances").paginate(Filters=filters)
        instances = [
            instance for page in pages for reservation in page["Reservations"] for instance in reservation["Instances"]
        ]
        return sorted(instances, key=lambda instance: [int(part) for part in instance["PrivateIpAddress"].split(".")])

    def id(self, number: int) -> str:
        """Of the master, which is 1, and of workers after it."""
        instance = [*self.machines("master"), *self.machines("workers")][number - 1]
        return str(instance["InstanceId"])

    def rank(self) -> None:
        """What the master does when it publishes."""
        for number, machine in enumerate(self.machines("workers"), 2):
            tag = {"Key": "deeplearning:rank", "Value": str(number)}
            self.ec2.create_tags(Resources=[machine["InstanceId"]], Tags=[tag])

    def report(self, instance: str, role: str, **fields: Any) -> None:
        """What a machine does when it is configured."""
        key = f"members/{self.role_ids[role]}:{instance}/report.json"
        body = {
            "schema": 1,
            "instance_id": instance,
            "host_keys": [host_key(instance)],
            "gpus": 0,
            "state": "ready",
            "bundle": "",
            "step": "",
            "log": [],
            "reported_at": "2026-11-21T10:00:00Z",
            **fields,
        }
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=json.dumps(body).encode())


def host_key(seed: str) -> str:
    """Return a host key that no other seed has."""
    parts = [b"ssh-ed25519", seed.encode().ljust(32, b"x")[:64]]
    blob = base64.b64encode(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).decode()
    return f"ssh-ed25519 {blob}"


def fleet(account: Account, cluster: str, workers: int) -> Fleet:
    ec2, iam, autoscaling = (account.client(service) for service in ("ec2", "iam", "autoscaling"))

    def tagged(kind: str, what: str, **more: str) -> dict[str, Any]:
        tags = {"Name": f"{cluster}-{what}", "deeplearning:cluster": cluster, **more}
        return {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}

    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=[tagged("vpc", "vpc")])["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/20", TagSpecifications=[tagged("subnet", "private")])
    subnet_id = subnet["Subnet"]["SubnetId"]
    groups = {
        what: ec2.create_security_group(
            GroupName=f"{cluster}-{what}",
            Description=what,
            VpcId=vpc,
            TagSpecifications=[tagged("security-group", what)],
        )["GroupId"]
        for what in ("members", "efs")
    }
    image = ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-api-only"]}])["Images"][0]["ImageId"]
    for role, kind, count in (("master", "master", 1), ("worker", "workers", workers)):
        own = [{"Key": "deeplearning:cluster", "Value": cluster}]
        iam.create_role(RoleName=f"{cluster}-{REGION}-{role}", AssumeRolePolicyDocument=TRUST, Tags=own)
        tags = {"deeplearning:role": role, "deeplearning:user": "ubuntu", "deeplearning:gpus": "1"}
        interface = {
            "DeviceIndex": 0,
            "Groups": [groups["members"]],
            "AssociatePublicIpAddress": role == "master",
        }
        template = ec2.create_launch_template(
            LaunchTemplateName=f"{cluster}-{kind}",
            TagSpecifications=[tagged("launch-template", kind)],
            LaunchTemplateData={
                "ImageId": image,
                "InstanceType": "g5.xlarge",
                "NetworkInterfaces": [interface],
                "TagSpecifications": [tagged("instance", role, **tags)],
            },
        )["LaunchTemplate"]["LaunchTemplateId"]
        autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=f"{cluster}-{kind}",
            MinSize=0,
            MaxSize=count,
            DesiredCapacity=count,
            VPCZoneIdentifier=subnet_id,
            LaunchTemplate={"LaunchTemplateId": template},
            Tags=own,
        )
    account.client("s3").create_bucket(Bucket=f"{cluster}-{ACCOUNT}-{REGION}")
    cluster_fleet = Fleet(account, cluster, groups, subnet_id)
    wait_until(lambda: len(cluster_fleet.machines("master")) == 1 and len(cluster_fleet.machines("workers")) == workers)
    return cluster_fleet


def with_file_system(cluster_fleet: Fleet) -> str:
    """The file system's id; its mount target is there."""
    efs = cluster_fleet.account.client("efs")
    tags = [{"Key": "deeplearning:cluster", "Value": cluster_fleet.cluster}]
    system = str(efs.create_file_system(CreationToken=cluster_fleet.cluster, Tags=tags)["FileSystemId"])
    wait_for_file_system(efs, system)
    efs.create_mount_target(
        FileSystemId=system, SubnetId=cluster_fleet.subnet, SecurityGroups=[cluster_fleet.groups["efs"]]
    )
    return system


def wait_for_file_system(efs: Any, system: str) -> None:
    """Wait until it can have mount targets."""
    wait_until(
        lambda: efs.describe_file_systems(FileSystemId=system)["FileSystems"][0]["LifeCycleState"] == "available"
    )


def meeting(folder: Path) -> str:
    """Return a playbook that discovers the members of `cluster_name` without waiting and writes them to met.json."""
    members = {"region": REGION, "cluster": "{{ cluster_name }}", "folder": str(folder), "wait_seconds": 0}
    met = {"dest": str(folder / "met.json"), "content": "{{ met | to_json }}"}
    tasks = [{"deeplearning.aws.discover_members": members, "register": "met"}, {"ansible.builtin.copy": met}]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    playbook = folder / "meet.yml"
    playbook.write_text(json.dumps([play]), encoding="utf-8")
    return str(playbook)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it has not come about"
        time.sleep(0.2)


def given_network(ec2: Any) -> dict[str, str]:
    """Create a VPC with a public and a private subnet, as users may have one."""
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    for what in ("EnableDnsSupport", "EnableDnsHostnames"):
        ec2.modify_vpc_attribute(VpcId=vpc, **{what: {"Value": True}})
    zone = "us-east-1a"
    public = ec2.create_subnet(VpcId=vpc, CidrBlock="10.7.0.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
    private = ec2.create_subnet(VpcId=vpc, CidrBlock="10.7.1.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=public, AllocationId=address)["NatGateway"]["NatGatewayId"]
    for subnet, route in ((public, {"GatewayId": gateway}), (private, {"NatGatewayId": nat})):
        table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
        ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
        ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **route)
    group = ec2.create_security_group(GroupName="theirs", Description="theirs", VpcId=vpc)["GroupId"]
    return {"vpc": vpc, "public": public, "private": private, "nat": nat, "group": group}
