"""In a strict cloud, the first call after a change misses it, unless a test makes it to look independently."""

from __future__ import annotations

import time
from typing import Any

import pytest
from botocore.config import Config

from localcloud.api.ec2.images import API_ONLY
from localcloud.core.lateness import SECONDS, Lateness
from localcloud.testing.clock import ManualClock
from localcloud_kits.rules_kit import EC2, ROOT, Aws, allow, refused, tagged, tags, trust, when

CLUSTER = tagged("vpc", cluster="a")
OURS = when("StringEquals", "aws:ResourceTag/cluster", "a")


@pytest.fixture
def clock() -> ManualClock:
    """Clients sign with the real time."""
    return ManualClock(time.time())


@pytest.fixture(autouse=True)
def _no_observers(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that are what programs have."""
    plain = Config(retries={"total_max_attempts": 1}, ignore_configured_endpoint_urls=True)
    monkeypatch.setattr("localcloud_kits.rules_kit.CONFIG", plain)


def vpc(ec2: Any, **more: Any) -> str:
    return str(ec2.create_vpc(CidrBlock="10.0.0.0/16", **more)["Vpc"]["VpcId"])


def group(ec2: Any, name: str, vpc_id: str) -> str:
    return str(ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc_id)["GroupId"])


def settle(aws: Aws, clock: ManualClock) -> None:
    """Let all be known that was created, and go on after that."""
    aws.cloud.lateness.settle()
    clock.advance(1)


def test_a_call_that_names_a_new_resource_does_not_find_it_once(aws: Aws) -> None:
    ec2 = aws("ec2")
    name = vpc(ec2)
    with refused("InvalidVpcID.NotFound", name):
        ec2.create_subnet(VpcId=name, CidrBlock="10.0.0.0/24")
    assert ec2.create_subnet(VpcId=name, CidrBlock="10.0.0.0/24")["Subnet"]["VpcId"] == name
    assert name in [shown["VpcId"] for shown in ec2.describe_vpcs()["Vpcs"]]


@pytest.mark.parametrize("strict", [False, True])
def test_an_internet_gateway_is_attached_at_once_unless_the_cloud_is_strict(aws: Aws, strict: bool) -> None:
    aws.cloud.lateness = Lateness(aws.cloud.clock, strict)
    ec2 = aws("ec2")
    attachment = {
        "VpcId": vpc(ec2),
        "InternetGatewayId": ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"],
    }
    if strict:
        with refused("InvalidInternetGatewayID.NotFound", attachment["InternetGatewayId"]):
            ec2.attach_internet_gateway(**attachment)
    ec2.attach_internet_gateway(**attachment)
    attached = ec2.describe_internet_gateways()["InternetGateways"][0]["Attachments"]
    assert [shown["VpcId"] for shown in attached] == [attachment["VpcId"]]


@pytest.mark.parametrize("fault", ["late-reads", "late-tags"])
def test_faults_make_a_cloud_late_that_is_not_strict(aws: Aws, clock: ManualClock, fault: str) -> None:
    aws.cloud.lateness = Lateness(clock, False)
    aws.cloud.faults.add(fault, {}, 30.0)
    client = aws("ec2", aws.role("worker", allow("ec2:DeleteVpc", f"{EC2}vpc/*", **OURS)))
    name = vpc(aws("ec2"), TagSpecifications=CLUSTER)
    error = "InvalidVpcID.NotFound" if fault == "late-reads" else "UnauthorizedOperation"
    for _call in range(2):
        with refused(error):
            client.delete_vpc(VpcId=name)
    clock.advance(30)
    client.delete_vpc(VpcId=name)


def test_a_list_leaves_a_new_resource_out_once(aws: Aws) -> None:
    ec2 = aws("ec2")
    first = vpc(ec2, TagSpecifications=CLUSTER)
    mine = [{"Name": "tag:cluster", "Values": ["a"]}]
    assert ec2.describe_vpcs(Filters=mine)["Vpcs"] == []
    assert [shown["VpcId"] for shown in ec2.describe_vpcs(Filters=mine)["Vpcs"]] == [first]
    second = vpc(ec2, TagSpecifications=CLUSTER)
    resources = [{"Name": "resource-id", "Values": [second]}]
    assert ec2.describe_tags(Filters=resources)["Tags"] == []
    assert len(ec2.describe_tags(Filters=resources)["Tags"]) == 1


def test_what_modules_fail_on_is_late_once_in_an_account(aws: Aws, clock: ManualClock) -> None:
    ec2 = aws("ec2")
    name = vpc(ec2)
    settle(aws, clock)
    first, second = group(ec2, "first", name), group(ec2, "second", name)
    with refused("InvalidGroup.NotFound", first):
        ec2.describe_security_groups(GroupIds=[first])
    for other in (first, second):
        assert len(ec2.describe_security_groups(GroupIds=[other])["SecurityGroups"]) == 1
    table = ec2.create_route_table(VpcId=name)["RouteTable"]["RouteTableId"]
    assert len(ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"]) == 1


def test_nothing_is_late_for_long(aws: Aws, clock: ManualClock) -> None:
    ec2 = aws("ec2")
    first, second = vpc(ec2), vpc(ec2)
    clock.advance(SECONDS - 1)
    with refused("InvalidVpcID.NotFound", first):
        ec2.describe_vpcs(VpcIds=[first])
    clock.advance(1)
    assert len(ec2.describe_vpcs(VpcIds=[second])["Vpcs"]) == 1


def test_an_observer_and_what_it_creates_are_never_late(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = aws("ec2")
    monkeypatch.undo()
    observer = aws("ec2")
    assert len(observer.describe_vpcs(VpcIds=[vpc(plain)])["Vpcs"]) == 1
    assert len(plain.describe_vpcs(VpcIds=[vpc(observer)])["Vpcs"]) == 1
    aws.cloud.lateness.enabled = False
    assert len(plain.describe_vpcs(VpcIds=[vpc(plain)])["Vpcs"]) == 1


@pytest.mark.parametrize("created", [True, False])
def test_new_tags_do_not_count_in_the_first_condition(aws: Aws, clock: ManualClock, created: bool) -> None:
    """As https://github.com/hashicorp/terraform-provider-aws/issues/6055 describes it."""
    ec2 = aws("ec2")
    client = aws("ec2", aws.role("worker", allow("ec2:DeleteVpc", f"{EC2}vpc/*", **OURS)))
    name = vpc(ec2, **({"TagSpecifications": CLUSTER} if created else {}))
    if not created:
        settle(aws, clock)
        ec2.create_tags(Resources=[name], Tags=tags(cluster="a"))
    with refused("UnauthorizedOperation", f"ec2:DeleteVpc on resource: {EC2}vpc/{name}"):
        client.delete_vpc(VpcId=name)
    # The call that was denied has missed the resource as well.
    client.delete_vpc(VpcId=name)


def test_tags_of_a_new_file_system_do_not_count_in_the_first_condition(aws: Aws) -> None:
    system = aws("efs").create_file_system(CreationToken="t", Tags=tags(cluster="a"))["FileSystemId"]
    client = aws("efs", aws.role("worker", allow("elasticfilesystem:DeleteFileSystem", **OURS)))
    with refused("AccessDeniedException", "elasticfilesystem:DeleteFileSystem"):
        client.delete_file_system(FileSystemId=system)
    client.delete_file_system(FileSystemId=system)


def test_each_service_misses_a_new_instance_profile(aws: Aws, clock: ManualClock) -> None:
    iam, ec2, scaling = aws("iam"), aws("ec2"), aws("autoscaling")
    iam.create_role(RoleName="node", AssumeRolePolicyDocument=trust({"AWS": ROOT}))
    iam.create_instance_profile(InstanceProfileName="node")
    iam.add_role_to_instance_profile(InstanceProfileName="node", RoleName="node")
    name = vpc(ec2)
    launch = {"ImageId": API_ONLY.id, "InstanceType": "t3.micro", "IamInstanceProfile": {"Name": "node"}}
    template = ec2.create_launch_template(LaunchTemplateName="node", LaunchTemplateData=launch)["LaunchTemplate"]
    aws.ask("ec2", "CreateSubnet", VpcId=name, CidrBlock="10.0.0.0/24")
    subnet = aws.ask("ec2", "DescribeSubnets")["Subnets"][0]["SubnetId"]
    # Ten minutes ago, which is within the life of a signature.
    clock.advance(60 * SECONDS)
    instance = {"MinCount": 1, "MaxCount": 1, "SubnetId": subnet, **launch}
    no_instances = {
        "AutoScalingGroupName": "nodes",
        "MinSize": 0,
        "MaxSize": 1,
        "VPCZoneIdentifier": subnet,
        "LaunchTemplate": {"LaunchTemplateId": template["LaunchTemplateId"], "Version": "1"},
    }
    words = "for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
    with refused("InvalidParameterValue", words):
        ec2.run_instances(**instance)
    ec2.run_instances(**instance)
    with refused("ValidationError", words):
        scaling.create_auto_scaling_group(**no_instances)
    scaling.create_auto_scaling_group(**no_instances)
