"""Two operators of one account: what they own, and the documented policies for them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localcloud.testing.catalog import BASE
from tests.account.fleet import wait_for_file_system

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted((ROOT / "docs/iam").glob("operator-*.json"))
BOUNDARY_DOCUMENT = ROOT / "docs/iam/members-boundary.json"
PERSON = "person"
ACCOUNT, REGION, ZONE, TYPE = "123456789012", "us-east-1", "us-east-1a", "c5.large"
MINE, OTHERS = "red", "blue"
BOUNDARY_NAME = "deeplearning-members-boundary"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/{BOUNDARY_NAME}"
"""The ARN of the members' permissions boundary, as docs/iam.md has an administrator create it."""
REFUSALS = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403")
S3_SERVICE = f"com.amazonaws.{REGION}.s3"


def filled(document: Path, cluster: str) -> str:
    text = document.read_text(encoding="utf-8")
    values = {"cluster": cluster, "account": ACCOUNT, "region": REGION}
    return re.sub(r"<(\w+)>", lambda match: values[match[1]], text)


def tagged(kind: str, cluster: str | None) -> list[Any]:
    """TagSpecifications with the cluster's tag, or none at all."""
    return [{"ResourceType": kind, "Tags": cluster_tag(cluster)}] if cluster else []


def cluster_tag(cluster: str | None) -> list[dict[str, str]]:
    return [{"Key": "deeplearning:cluster", "Value": cluster}] if cluster else []


def image_of(account: Any, name: str, cluster: str | None, subnet: str) -> tuple[str, str]:
    """Create an image of a stopped instance. Return the ids of the image and of its snapshot."""
    ec2 = account.client("ec2")
    launched = ec2.run_instances(ImageId=BASE.id, InstanceType=TYPE, MinCount=1, MaxCount=1, SubnetId=subnet)
    instance = launched["Instances"][0]["InstanceId"]
    ec2.get_waiter("instance_running").wait(InstanceIds=[instance], WaiterConfig={"Delay": 1})
    ec2.stop_instances(InstanceIds=[instance])
    ec2.get_waiter("instance_stopped").wait(InstanceIds=[instance], WaiterConfig={"Delay": 1})
    tags = [*tagged("image", cluster), *tagged("snapshot", cluster)]
    image = ec2.create_image(InstanceId=instance, Name=f"{name}-image", TagSpecifications=tags)["ImageId"]
    ec2.get_waiter("image_available").wait(ImageIds=[image], WaiterConfig={"Delay": 1})
    (disk,) = ec2.describe_images(ImageIds=[image])["Images"][0]["BlockDeviceMappings"]
    return str(image), str(disk["Ebs"]["SnapshotId"])


def resources_of(account: Any, name: str, cluster: str | None) -> dict[str, str]:
    """Create one resource of each kind, as its owner would, and return their ids. They bear the tag of `cluster`, or no
    tag, which is what most of an account looks like."""
    ec2, iam, efs = (account.client(service) for service in ("ec2", "iam", "efs"))
    tags = cluster_tag(cluster)
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16", TagSpecifications=tagged("vpc", cluster))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(
        VpcId=vpc, CidrBlock="10.1.0.0/24", AvailabilityZone=ZONE, TagSpecifications=tagged("subnet", cluster)
    )["Subnet"]["SubnetId"]
    gateway = ec2.create_internet_gateway(TagSpecifications=tagged("internet-gateway", cluster))["InternetGateway"][
        "InternetGatewayId"
    ]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = ec2.create_route_table(VpcId=vpc, TagSpecifications=tagged("route-table", cluster))["RouteTable"][
        "RouteTableId"
    ]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    association = ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)["AssociationId"]
    endpoint = ec2.create_vpc_endpoint(
        VpcId=vpc, ServiceName=S3_SERVICE, RouteTableIds=[table], TagSpecifications=tagged("vpc-endpoint", cluster)
    )["VpcEndpoint"]["VpcEndpointId"]
    group = ec2.create_security_group(
        GroupName="g", Description="g", VpcId=vpc, TagSpecifications=tagged("security-group", cluster)
    )["GroupId"]
    interface = ec2.create_network_interface(SubnetId=subnet, TagSpecifications=tagged("network-interface", cluster))[
        "NetworkInterface"
    ]["NetworkInterfaceId"]
    instance = ec2.run_instances(
        ImageId=BASE.id, InstanceType=TYPE, MinCount=1, MaxCount=1, SubnetId=subnet,
        TagSpecifications=tagged("instance", cluster),
    )["Instances"][0]["InstanceId"]  # fmt: skip
    image, snapshot = image_of(account, name, cluster, subnet)
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip", cluster))["AllocationId"]
    nat = ec2.create_nat_gateway(
        SubnetId=subnet,
        AllocationId=ec2.allocate_address(Domain="vpc")["AllocationId"],
        TagSpecifications=tagged("natgateway", cluster),
    )["NatGateway"]["NatGatewayId"]
    use = ec2.associate_address(AllocationId=address, NetworkInterfaceId=interface)["AssociationId"]
    volume = ec2.create_volume(AvailabilityZone=ZONE, Size=1, TagSpecifications=tagged("volume", cluster))["VolumeId"]
    template = ec2.create_launch_template(
        LaunchTemplateName=f"{name}-workers",
        LaunchTemplateData={"ImageId": BASE.id, "InstanceType": TYPE},
        TagSpecifications=tagged("launch-template", cluster),
    )["LaunchTemplate"]["LaunchTemplateId"]
    key = ec2.create_key_pair(KeyName=name, TagSpecifications=tagged("key-pair", cluster))["KeyPairId"]
    ec2.create_placement_group(GroupName=name, Strategy="cluster", TagSpecifications=tagged("placement-group", cluster))
    account.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=f"{name}-workers", MinSize=0, MaxSize=0, VPCZoneIdentifier=subnet,
        LaunchTemplate={"LaunchTemplateId": template},
    )  # fmt: skip
    system = efs.create_file_system(CreationToken=name, Tags=tags)["FileSystemId"]
    wait_for_file_system(efs, system)
    target = efs.create_mount_target(FileSystemId=system, SubnetId=subnet, SecurityGroups=[group])["MountTargetId"]
    trust = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
    role = f"{name}-{REGION}-worker"
    iam.create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(trust), Tags=tags)
    iam.create_instance_profile(InstanceProfileName=role, Tags=tags)
    iam.add_role_to_instance_profile(InstanceProfileName=role, RoleName=role)
    bucket = f"{name}-{ACCOUNT}-{REGION}"
    account.client("s3").create_bucket(Bucket=bucket)
    account.client("s3").put_object(Bucket=bucket, Key="report", Body=b"")
    return {
        "name": name,
        "vpc": vpc,
        "subnet": subnet,
        "gateway": gateway,
        "table": table,
        "association": association,
        "endpoint": endpoint,
        "group": group,
        "interface": interface,
        "instance": instance,
        "image": image,
        "snapshot": snapshot,
        "address": address,
        "use": use,
        "nat": nat,
        "volume": volume,
        "template": template,
        "key": key,
        "system": system,
        "target": target,
        "role": role,
        "bucket": bucket,
    }


def with_names(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return value.format_map(names)
    if isinstance(value, list):
        return [with_names(item, names) for item in value]
    return {key: with_names(one, names) for key, one in value.items()} if isinstance(value, dict) else value


def create_boundary(account: Any) -> None:
    """Create the boundary of members, as an administrator does once for an account."""
    document = filled(BOUNDARY_DOCUMENT, MINE)
    account.client("iam").create_policy(PolicyName=BOUNDARY_NAME, PolicyDocument=document)


def operator(account: Any) -> Any:
    """Return the account for a new user who has the documented policies and nothing else."""
    iam = account.client("iam")
    create_boundary(account)
    iam.create_user(UserName=PERSON)
    for document in DOCUMENTS:
        created = iam.create_policy(PolicyName=document.stem, PolicyDocument=filled(document, MINE))
        iam.attach_user_policy(UserName=PERSON, PolicyArn=created["Policy"]["Arn"])
    key = iam.create_access_key(UserName=PERSON)["AccessKey"]
    return account.as_user(key["AccessKeyId"], key["SecretAccessKey"])


def second_nat_gateway(account: Any, cluster: str) -> list[str]:
    """Create a NAT gateway that no route uses, with an address, as a second site.yml at the same time did."""
    ec2 = account.client("ec2")
    tags = [{"Key": "deeplearning:cluster", "Value": cluster}, {"Key": "Name", "Value": f"{cluster}-nat"}]
    subnets = ec2.describe_subnets(Filters=[{"Name": "tag:Name", "Values": [f"{cluster}-public"]}])["Subnets"]
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=[{"ResourceType": "elastic-ip", "Tags": tags}])
    created = ec2.create_nat_gateway(
        SubnetId=subnets[0]["SubnetId"],
        AllocationId=address["AllocationId"],
        TagSpecifications=[{"ResourceType": "natgateway", "Tags": tags}],
    )
    return [created["NatGateway"]["NatGatewayId"], address["AllocationId"]]
