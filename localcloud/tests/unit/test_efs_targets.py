"""Mount targets: one a zone, in one network, with an interface that keeps the subnet and its groups in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localcloud.api.efs import file_systems as efs
from localcloud.api.iam.linked_roles import has_service_linked_role
from localcloud.core.caller import Caller
from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError
from localcloud.core.latency import Latency
from localcloud.testing.clock import ManualClock

REGION = "us-east-1"
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def latency() -> Latency:
    return Latency("test", {"mount_target_available": 75, "mount_target_name": 90, "mount_target_deleted": 30})


@pytest.fixture
def ask(cloud: Cloud) -> Ask:
    def ask(operation: str, **params: Any) -> dict[str, Any]:
        return cloud.ask("efs", operation, REGION, params, Caller.service("test"))

    return ask


@pytest.fixture
def ec2(cloud: Cloud) -> Ask:
    def ec2(operation: str, **params: Any) -> dict[str, Any]:
        return cloud.moto("ec2", operation, REGION, params)

    return ec2


@pytest.fixture
def fs(ask: Ask, clock: ManualClock) -> str:
    made = ask("CreateFileSystem", CreationToken="one")
    clock.advance(0)
    return str(made["FileSystemId"])


@pytest.fixture
def vpc(ec2: Ask) -> str:
    return str(ec2("CreateVpc", CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"])


@pytest.fixture
def subnet(ec2: Ask, vpc: str) -> str:
    return new_subnet(ec2, vpc, "10.0.1.0/28", "us-east-1a")


def new_subnet(ec2: Ask, vpc: str, cidr: str, zone: str) -> str:
    return str(ec2("CreateSubnet", VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]["SubnetId"])


def new_group(ec2: Ask, vpc: str, name: str = "nfs") -> str:
    return str(ec2("CreateSecurityGroup", VpcId=vpc, GroupName=name, Description="x")["GroupId"])


def test_a_mount_target_comes_and_goes_in_its_time(
    ask: Ask, ec2: Ask, cloud: Cloud, clock: ManualClock, fs: str, vpc: str, subnet: str
) -> None:
    group = new_group(ec2, vpc)
    made = ask("CreateMountTarget", FileSystemId=fs, SubnetId=subnet, SecurityGroups=[group])
    target = made["MountTargetId"]
    assert (made["LifeCycleState"], made["AvailabilityZoneName"], made["VpcId"]) == ("creating", "us-east-1a", vpc)
    assert made["AvailabilityZoneId"] == "use1-az6"
    interface = ec2("DescribeNetworkInterfaces")["NetworkInterfaces"][0]
    assert interface["Description"] == f"EFS mount target for {fs} ({target})"
    assert (interface["PrivateIpAddress"], interface["NetworkInterfaceId"], interface["RequesterManaged"]) == (
        made["IpAddress"],
        made["NetworkInterfaceId"],
        True,
    )
    clock.advance(75)
    assert ask("DescribeMountTargets", FileSystemId=fs)["MountTargets"] == [made | {"LifeCycleState": "available"}]
    view = efs.mount_target_views(cloud)[0]
    assert (view.id, view.ip, view.security_groups, view.state) == (target, made["IpAddress"], (group,), "available")
    assert not view.resolvable
    clock.advance(15)
    assert efs.mount_target_views(cloud)[0].resolvable
    assert ask("DescribeFileSystems")["FileSystems"][0]["NumberOfMountTargets"] == 1
    with pytest.raises(AwsError, match="FileSystemInUse: .*because it has mount targets"):
        ask("DeleteFileSystem", FileSystemId=fs)

    ask("DeleteMountTarget", MountTargetId=target)
    ask("DeleteMountTarget", MountTargetId=target)
    clock.advance(29)
    assert ask("DescribeMountTargets", MountTargetId=target)["MountTargets"][0]["LifeCycleState"] == "deleting"
    with pytest.raises(AwsError, match="FileSystemInUse"):
        ask("DeleteFileSystem", FileSystemId=fs)
    clock.advance(1)
    assert ec2("DescribeNetworkInterfaces")["NetworkInterfaces"] == []
    assert efs.mount_target_views(cloud) == []
    ask("DeleteFileSystem", FileSystemId=fs)


def test_one_that_is_deleted_while_it_comes_does_not_come_back(
    ask: Ask, clock: ManualClock, fs: str, subnet: str
) -> None:
    target = ask("CreateMountTarget", FileSystemId=fs, SubnetId=subnet)["MountTargetId"]
    clock.advance(60)
    ask("DeleteMountTarget", MountTargetId=target)
    clock.advance(20)
    assert ask("DescribeMountTargets", MountTargetId=target)["MountTargets"][0]["LifeCycleState"] == "deleting"


def test_one_a_zone_and_all_in_one_network(ask: Ask, ec2: Ask, fs: str, vpc: str, subnet: str) -> None:
    ask("CreateMountTarget", FileSystemId=fs, SubnetId=subnet)
    neighbour = new_subnet(ec2, vpc, "10.0.2.0/24", "us-east-1a")
    with pytest.raises(AwsError, match="MountTargetConflict: mount target already exists in this AZ"):
        ask("CreateMountTarget", FileSystemId=fs, SubnetId=neighbour)
    other = ec2("CreateVpc", CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    elsewhere = new_subnet(ec2, other, "10.9.1.0/24", "us-east-1b")
    with pytest.raises(AwsError, match="MountTargetConflict: requested subnet .* not in the same VPC"):
        ask("CreateMountTarget", FileSystemId=fs, SubnetId=elsewhere)
    ask("CreateMountTarget", FileSystemId=fs, SubnetId=new_subnet(ec2, vpc, "10.0.3.0/24", "us-east-1b"))
    assert len(ask("DescribeMountTargets", FileSystemId=fs)["MountTargets"]) == 2


def test_what_does_not_exist_is_named(ask: Ask, ec2: Ask, fs: str, vpc: str, subnet: str) -> None:
    other = ec2("CreateVpc", CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    foreign = new_group(ec2, other)
    for params, error in (
        ({"SubnetId": "subnet-0123456789abcdef0"}, "SubnetNotFound"),
        ({"FileSystemId": "fs-0123456789abcdef0"}, "FileSystemNotFound"),
        ({"SecurityGroups": ["sg-0123456789abcdef0"]}, "SecurityGroupNotFound"),
        ({"SecurityGroups": [foreign]}, "SecurityGroupNotFound"),
        ({"SecurityGroups": [f"sg-{n}" for n in range(6)]}, "SecurityGroupLimitExceeded"),
        ({"IpAddress": "10.0.1.3"}, "BadRequest"),
        ({"IpAddress": "10.0.1.15"}, "BadRequest"),
        ({"IpAddress": "10.0.2.7"}, "BadRequest"),
        ({"IpAddressType": "DUAL_STACK"}, "BadRequest"),
    ):
        with pytest.raises(AwsError, match=error):
            ask("CreateMountTarget", **{"FileSystemId": fs, "SubnetId": subnet, **params})
    assert ec2("DescribeNetworkInterfaces")["NetworkInterfaces"] == []


def test_a_file_system_that_is_not_available_takes_none(ask: Ask, subnet: str) -> None:
    made = ask("CreateFileSystem", CreationToken="two")
    with pytest.raises(AwsError, match="IncorrectFileSystemLifeCycleState"):
        ask("CreateMountTarget", FileSystemId=made["FileSystemId"], SubnetId=subnet)


def test_addresses_are_given_once_and_given_back(ask: Ask, clock: ManualClock, subnet: str) -> None:
    def target(number: int, **params: Any) -> dict[str, Any]:
        made = ask("CreateFileSystem", CreationToken=str(number))
        clock.advance(0)
        return ask("CreateMountTarget", FileSystemId=made["FileSystemId"], SubnetId=subnet, **params)

    first = target(0, IpAddress="10.0.1.6")
    with pytest.raises(AwsError, match="IpAddressInUse"):
        target(1, IpAddress="10.0.1.6")
    # A /28 has 16 addresses; AWS keeps 5 of them.
    rest = [target(2 + number)["IpAddress"] for number in range(10)]
    assert len({first["IpAddress"], *rest}) == 11
    with pytest.raises(AwsError, match="NoFreeAddressesInSubnet"):
        target(20)
    ask("DeleteMountTarget", MountTargetId=first["MountTargetId"])
    clock.advance(30)
    assert target(21)["IpAddress"] == "10.0.1.6"


def test_nothing_else_gets_the_address_of_a_mount_target(ask: Ask, ec2: Ask, fs: str, subnet: str) -> None:
    address = ask("CreateMountTarget", FileSystemId=fs, SubnetId=subnet)["IpAddress"]
    others = [ec2("CreateNetworkInterface", SubnetId=subnet)["NetworkInterface"] for _ in range(5)]
    assert address not in {other["PrivateIpAddress"] for other in others}


def test_security_groups_can_be_exchanged(
    ask: Ask, ec2: Ask, fs: str, vpc: str, subnet: str, clock: ManualClock
) -> None:
    target = ask("CreateMountTarget", FileSystemId=fs, SubnetId=subnet)["MountTargetId"]
    groups = ec2("DescribeSecurityGroups", Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    before = ask("DescribeMountTargetSecurityGroups", MountTargetId=target)["SecurityGroups"]
    assert before == [groups[0]["GroupId"]] and groups[0]["GroupName"] == "default"
    group = new_group(ec2, vpc)
    ask("ModifyMountTargetSecurityGroups", MountTargetId=target, SecurityGroups=[group])
    assert ask("DescribeMountTargetSecurityGroups", MountTargetId=target)["SecurityGroups"] == [group]
    assert ec2("DescribeNetworkInterfaces")["NetworkInterfaces"][0]["Groups"][0]["GroupId"] == group
    ask("DeleteMountTarget", MountTargetId=target)
    with pytest.raises(AwsError, match="IncorrectMountTargetState"):
        ask("ModifyMountTargetSecurityGroups", MountTargetId=target, SecurityGroups=[group])
    clock.advance(30)
    with pytest.raises(AwsError, match="MountTargetNotFound"):
        ask("DescribeMountTargetSecurityGroups", MountTargetId=target)


def test_either_a_file_system_or_a_target_is_named(ask: Ask, fs: str, subnet: str) -> None:
    made = ask("CreateMountTarget", FileSystemId=fs, SubnetId=subnet)
    assert ask("DescribeMountTargets", MountTargetId=made["MountTargetId"])["MountTargets"] == [made]
    for wrong in ({}, {"MountTargetId": made["MountTargetId"], "FileSystemId": fs}):
        with pytest.raises(AwsError, match="BadRequest"):
            ask("DescribeMountTargets", **wrong)


def test_the_first_makes_the_role_of_the_service(ask: Ask, cloud: Cloud, fs: str, subnet: str) -> None:
    assert not has_service_linked_role(cloud, "elasticfilesystem.amazonaws.com")
    ask("CreateMountTarget", FileSystemId=fs, SubnetId=subnet)
    assert has_service_linked_role(cloud, "elasticfilesystem.amazonaws.com")
