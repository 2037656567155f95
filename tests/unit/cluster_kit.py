"""A whole cluster in the account of this process, made by plain boto3: what provision.yml creates, and its tags."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws import polling
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import (
    CLUSTER_TAG,
    MASTER,
    RANK_TAG,
    WORKER,
    Names,
    tag_list,
)
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.report import key_of
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.scheduled_end import SETUP, once

from tests.account.fleet import host_key
from tests.unit.conftest import Account

ACCOUNT, REGION = "123456789012", "us-east-1"
TYPE, ZONE = "g5.xlarge", "us-east-1a"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


class MadeCluster:
    """Each method creates one kind of resource, with the names and tags of the roles. Time passes only here."""

    def __init__(self, aws: Account, name: str = "red") -> None:
        self.aws, self.name = aws, name
        self.names = Names(name, ACCOUNT, REGION)
        self.ids: dict[str, str] = {}

    @cached_property
    def ec2(self) -> Any:
        return self.aws.client("ec2")

    @cached_property
    def scaling(self) -> Any:
        return self.aws.client("autoscaling")

    @cached_property
    def efs(self) -> Any:
        return self.aws.client("efs")

    @cached_property
    def iam(self) -> Any:
        return self.aws.client("iam")

    @cached_property
    def s3(self) -> Any:
        return self.aws.client("s3")

    def wait(self, seconds: float = 10) -> None:
        with self.aws.cloud.lock:
            self.aws.cloud.clock.advance(seconds)  # type: ignore[attr-defined]

    def tags(self, what: str) -> dict[str, str]:
        return {CLUSTER_TAG: self.name, "Name": self.names.of(what)}

    def tagged(self, kind: str, what: str) -> dict[str, Any]:
        return {"TagSpecifications": [{"ResourceType": kind, "Tags": tag_list(self.tags(what))}]}

    def whole(self, workers: int = 1) -> MadeCluster:
        """Create everything that site.yml creates."""
        self.network()
        self.identities()
        self.bucket()
        self.file_system()
        self.address()
        self.machines(master=1, workers=workers)
        return self

    def network(self) -> None:
        """Create the VPC with a subnet, a gateway, a route table and security groups, of which one names the other."""
        ec2, ids = self.ec2, self.ids
        ids["vpc"] = ec2.create_vpc(CidrBlock="10.0.0.0/16", **self.tagged("vpc", "vpc"))["Vpc"]["VpcId"]
        place = {"VpcId": ids["vpc"], "CidrBlock": "10.0.0.0/20", "AvailabilityZone": ZONE}
        ids["subnet"] = ec2.create_subnet(**place, **self.tagged("subnet", "subnet"))["Subnet"]["SubnetId"]
        gateway = ec2.create_internet_gateway(**self.tagged("internet-gateway", "gateway"))["InternetGateway"]
        ids["internet_gateway"] = gateway["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=ids["internet_gateway"], VpcId=ids["vpc"])
        table = ec2.create_route_table(VpcId=ids["vpc"], **self.tagged("route-table", "routes"))["RouteTable"]
        ids["route_table"] = table["RouteTableId"]
        ec2.create_route(
            RouteTableId=ids["route_table"], DestinationCidrBlock="0.0.0.0/0", GatewayId=ids["internet_gateway"]
        )
        ec2.associate_route_table(RouteTableId=ids["route_table"], SubnetId=ids["subnet"])
        for what in ("members", "efs", "ssh"):
            ids[what] = self.security_group(what)
        pair = {
            "IpProtocol": "tcp",
            "FromPort": 2049,
            "ToPort": 2049,
            "UserIdGroupPairs": [{"GroupId": ids["members"]}],
        }
        ec2.authorize_security_group_ingress(GroupId=ids["efs"], IpPermissions=[pair])

    def security_group(self, what: str) -> str:
        created = self.ec2.create_security_group(
            GroupName=self.names.of(what),
            Description=what,
            VpcId=self.ids["vpc"],
            **self.tagged("security-group", what),
        )
        return str(created["GroupId"])

    def identities(self, *roles: str) -> None:
        """Create IAM roles with policies, and their instance profiles."""
        statement = {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        own = tag_list({CLUSTER_TAG: self.name})
        for role in roles or (MASTER, WORKER):
            name = self.names.identity(role)
            self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST), Tags=own)
            self.iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=policy)
            self.iam.attach_role_policy(RoleName=name, PolicyArn="arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore")
            self.iam.create_instance_profile(InstanceProfileName=name, Tags=own)
            self.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)

    def role_id(self, role: str) -> str:
        return str(self.iam.get_role(RoleName=self.names.identity(role))["Role"]["RoleId"])

    def bucket(self) -> None:
        self.s3.create_bucket(Bucket=self.names.bucket)

    def put(self, key: str, content: bytes | str) -> None:
        self.s3.put_object(Bucket=self.names.bucket, Key=key, Body=content)

    def file_system(self) -> None:
        """Create the file system, and its mount target with the cluster's security group."""
        system = self.efs.create_file_system(CreationToken=self.names.cluster, Tags=tag_list(self.tags("efs")))
        self.ids["file_system"] = system["FileSystemId"]
        self.wait(1)
        target = self.efs.create_mount_target(
            FileSystemId=system["FileSystemId"], SubnetId=self.ids["subnet"], SecurityGroups=[self.ids["efs"]]
        )
        self.ids["mount_target"] = target["MountTargetId"]
        self.wait(1)

    def address(self) -> str:
        """Create the master's Elastic IP address, and return its allocation."""
        created = self.ec2.allocate_address(Domain="vpc", **self.tagged("elastic-ip", "master"))
        self.ids["address"] = created["AllocationId"]
        return str(created["AllocationId"])

    def template(self, what: str, role: str, **more: Any) -> str:
        instance = {"ResourceType": "instance", "Tags": tag_list({**self.tags(what), "deeplearning:role": role})}
        image = self.ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-api-only"]}])
        created = self.ec2.create_launch_template(
            LaunchTemplateName=self.names.of(what),
            **self.tagged("launch-template", what),
            LaunchTemplateData={
                "ImageId": image["Images"][0]["ImageId"],
                "InstanceType": TYPE,
                "SecurityGroupIds": [self.ids["members"]],
                "TagSpecifications": [instance],
                **more,
            },
        )
        return str(created["LaunchTemplate"]["LaunchTemplateId"])

    def machines(self, wait: float = 10, desired: int | None = None, **sizes: int) -> None:
        """Create the Auto Scaling groups `master` and `workers` of these sizes, with their launch templates."""
        for what, size in sizes.items():
            template = self.template(what, MASTER if what == "master" else WORKER)
            self.scaling.create_auto_scaling_group(
                AutoScalingGroupName=self.names.of(what),
                MinSize=0,
                MaxSize=size,
                DesiredCapacity=size if desired is None else desired,
                VPCZoneIdentifier=self.ids["subnet"],
                LaunchTemplate={"LaunchTemplateId": template, "Version": "1"},
                Tags=[
                    {
                        "Key": CLUSTER_TAG,
                        "Value": self.name,
                        "PropagateAtLaunch": False,
                        "ResourceType": "auto-scaling-group",
                        "ResourceId": self.names.of(what),
                    }
                ],
            )
        self.wait(wait)

    def schedule_setup_end(self, minutes: int = 120) -> None:
        """Schedule the end of machines that never come into service, as site.yml does."""
        for group in self.names.groups.values():
            self.scaling.put_scheduled_update_group_action(
                AutoScalingGroupName=group,
                ScheduledActionName=self.names.of(SETUP),
                **once(SETUP, self.aws.cloud.clock.time() + 60 * minutes),
            )

    def setup_ends(self) -> list[str]:
        """Return the groups whose setup has an end."""
        listed = self.scaling.describe_scheduled_actions(ScheduledActionNames=[self.names.of(SETUP)])
        return sorted(str(action["AutoScalingGroupName"]) for action in listed["ScheduledUpdateGroupActions"])

    def group(self, what: str) -> dict[str, Any]:
        listed = self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[self.names.of(what)])
        group: dict[str, Any] = listed["AutoScalingGroups"][0]
        return group

    def instances(self, what: str) -> list[str]:
        return sorted(str(machine["InstanceId"]) for machine in self.group(what)["Instances"])

    def rank(self, instance: str, rank: int) -> None:
        self.ec2.create_tags(Resources=[instance], Tags=tag_list({RANK_TAG: str(rank)}))

    def report(self, instance: str, role: str, **fields: Any) -> None:
        """Store what a machine reports on itself."""
        body = {
            "schema": 1,
            "instance_id": instance,
            "host_keys": [host_key(instance)],
            "gpus": 1,
            "state": "ready",
            "bundle": "",
            "step": "",
            "log": [],
            "reported_at": "2026-11-21T10:00:00Z",
        }
        self.put(key_of(f"{self.role_id(role)}:{instance}"), json.dumps(body | fields))

    def fail(self, action: str, code: str, count: int | None = None, status: int = 400) -> Any:
        """Let calls of an action (service:Operation) fail with a code. Return the fault, to remove it."""
        value = {"code": code, "message": "so it is", "status": status}
        return self.aws.cloud.faults.add("error", {"action": action}, value, count)


def let_time_pass(aws: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let waiting take no time here, and pass it in the account."""

    def passes(seconds: float) -> None:
        with aws.cloud.lock:
            aws.cloud.clock.advance(max(seconds, 0.1))  # type: ignore[attr-defined]

    monkeypatch.setattr(polling, "sleep", passes)
