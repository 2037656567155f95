"""Public addresses, Elastic IPs and NAT gateways."""

from __future__ import annotations

from typing import Any

import pytest

from localcloud.api.ec2 import images
from localcloud.api.ec2.lifecycle import machine_exited, machine_started
from localcloud.api.ec2.views import find_instance
from localcloud.api.quotas import ADDRESSES
from localcloud.core.cloud import Cloud
from localcloud.core.latency import Latency
from localcloud.testing.clock import ManualClock
from localcloud_kits.ec2_kit import REGION, Ec2

PUBLIC = [{"DeviceIndex": 0, "AssociatePublicIpAddress": True}]
PRIVATE = [{"DeviceIndex": 0, "AssociatePublicIpAddress": False}]


@pytest.fixture
def latency() -> Latency:
    return Latency("test", {"nat_gateway_available": 95.0, "nat_gateway_deleted": 45.0})


def allocate(ec2: Ec2, region: str = REGION) -> tuple[str, str]:
    made = ec2("AllocateAddress", region=region, Domain="vpc")
    return made["AllocationId"], made["PublicIp"]


def shown(ec2: Ec2, allocation: str) -> dict[str, Any]:
    result: dict[str, Any] = ec2("DescribeAddresses", AllocationIds=[allocation])["Addresses"][0]
    return result


def test_one_pool_for_all_regions_and_nothing_twice(ec2: Ec2, cloud: Cloud) -> None:
    cloud.faults.add("quota", {"code": ADDRESSES.code}, 300)
    allocated = [allocate(ec2, region)[1] for region in (REGION, "eu-west-1") for _ in range(100)]
    allocated += [ec2.run(NetworkInterfaces=PUBLIC)["Instances"][0]["PublicIpAddress"] for _ in range(52)]
    assert len(set(allocated)) == 252
    assert not {f"198.51.100.{last}" for last in (0, 1, 2, 255)} & set(allocated)
    with ec2.refused("AddressLimitExceeded"):
        allocate(ec2)
    with ec2.refused("InsufficientAddressCapacity"):
        ec2.run(NetworkInterfaces=PUBLIC)
    # Nothing half made is left of it, and what is freed can be had again.
    [first] = ec2("DescribeAddresses", PublicIps=allocated[:1])["Addresses"]
    ec2("ReleaseAddress", AllocationId=first["AllocationId"])
    assert ec2.run(NetworkInterfaces=PUBLIC)["Instances"][0]["PublicIpAddress"] == allocated[0]


def test_api_only_instances_take_nothing_from_the_pool(ec2: Ec2) -> None:
    made = ec2.run(boots_nothing=True, NetworkInterfaces=PUBLIC, MaxCount=300)["Instances"]
    assert all(address["PublicIpAddress"].startswith("203.0.113.") for address in made)
    assert allocate(ec2)[1] == "198.51.100.3"


def test_an_elastic_address_takes_the_place_of_the_automatic_one_and_the_other_way_round(
    ec2: Ec2, cloud: Cloud
) -> None:
    instance = ec2.running(NetworkInterfaces=PUBLIC)
    key = instance["InstanceId"]
    allocation, elastic = allocate(ec2)
    association = ec2("AssociateAddress", AllocationId=allocation, InstanceId=key)["AssociationId"]
    described = ec2.describe(instance)
    assert described["PublicIpAddress"] == elastic
    assert described["PublicDnsName"] == f"ec2-{elastic.replace('.', '-')}.compute-1.amazonaws.com"
    view = find_instance(cloud, key)
    assert view and view.public_ip == elastic
    address = shown(ec2, allocation)
    interface = instance["NetworkInterfaces"][0]["NetworkInterfaceId"]
    assert (address["InstanceId"], address["NetworkInterfaceId"]) == (key, interface)
    assert (address["PrivateIpAddress"], address["AssociationId"]) == (instance["PrivateIpAddress"], association)
    [seen] = ec2("DescribeNetworkInterfaces", NetworkInterfaceIds=[interface])["NetworkInterfaces"]
    assert seen["Association"]["AllocationId"] == allocation
    ec2("DisassociateAddress", AssociationId=association)
    automatic = ec2.describe(instance)["PublicIpAddress"]
    assert automatic not in (elastic, instance["PublicIpAddress"])
    assert "InstanceId" not in shown(ec2, allocation)
    with ec2.refused("InvalidAssociationID.NotFound"):
        ec2("DisassociateAddress", AssociationId=association)


def test_an_elastic_address_stays_over_a_stop(ec2: Ec2, cloud: Cloud) -> None:
    instance = ec2.running(NetworkInterfaces=PUBLIC)
    allocation, elastic = allocate(ec2)
    ec2("AssociateAddress", AllocationId=allocation, InstanceId=instance["InstanceId"])
    ec2.stopped(instance)
    assert ec2.describe(instance)["PublicIpAddress"] == elastic
    ec2.terminated(instance)
    assert "AssociationId" not in shown(ec2, allocation)


def test_an_instance_that_is_pending_gets_none(ec2: Ec2, cloud: Cloud) -> None:
    (instance,) = ec2.run(NetworkInterfaces=PRIVATE)["Instances"]
    allocation, elastic = allocate(ec2)
    with ec2.refused("InvalidInstanceID", f"The pending instance '{instance['InstanceId']}' is not in a valid state"):
        ec2("AssociateAddress", AllocationId=allocation, InstanceId=instance["InstanceId"])
    interface = instance["NetworkInterfaces"][0]["NetworkInterfaceId"]
    with ec2.refused("IncorrectInstanceState", interface):
        ec2("AssociateAddress", AllocationId=allocation, NetworkInterfaceId=interface)
    machine_started(cloud, instance["InstanceId"])
    ec2("AssociateAddress", AllocationId=allocation, NetworkInterfaceId=interface)
    assert ec2.describe(instance)["PublicIpAddress"] == elastic


def test_moving(ec2: Ec2) -> None:
    first, second = ec2.running(NetworkInterfaces=PRIVATE), ec2.running(NetworkInterfaces=PRIVATE)
    allocation, elastic = allocate(ec2)
    one = ec2("AssociateAddress", AllocationId=allocation, InstanceId=first["InstanceId"])["AssociationId"]
    again = ec2("AssociateAddress", AllocationId=allocation, InstanceId=first["InstanceId"])["AssociationId"]
    assert one == again
    with ec2.refused("Resource.AlreadyAssociated", allocation):
        ec2("AssociateAddress", AllocationId=allocation, InstanceId=second["InstanceId"], AllowReassociation=False)
    interface = second["NetworkInterfaces"][0]["NetworkInterfaceId"]
    moved = ec2("AssociateAddress", AllocationId=allocation, NetworkInterfaceId=interface, AllowReassociation=True)
    assert moved["AssociationId"] != one
    assert "PublicIpAddress" not in ec2.describe(first)
    assert ec2.describe(second)["PublicIpAddress"] == elastic
    with ec2.refused("InvalidIPAddress.InUse"):
        ec2("ReleaseAddress", AllocationId=allocation)
    # Another address on the same interface: the one before it is free again.
    other, public = allocate(ec2)
    ec2("AssociateAddress", AllocationId=other, NetworkInterfaceId=interface)
    assert ec2.describe(second)["PublicIpAddress"] == public
    ec2("ReleaseAddress", AllocationId=allocation)
    with ec2.refused("InvalidAllocationID.NotFound", allocation):
        ec2("ReleaseAddress", AllocationId=allocation)


def test_tags_and_filters_of_addresses(ec2: Ec2) -> None:
    tags = [{"ResourceType": "elastic-ip", "Tags": [{"Key": "k", "Value": "v"}]}]
    made = ec2("AllocateAddress", Domain="vpc", TagSpecifications=tags)
    allocate(ec2)
    [result] = ec2("DescribeAddresses", Filters=[{"Name": "tag:k", "Values": ["v"]}])["Addresses"]
    assert result["AllocationId"] == made["AllocationId"]
    assert ec2("DescribeAddresses", PublicIps=[made["PublicIp"]])["Addresses"] == [result]
    with ec2.refused("InvalidAddress.NotFound"):
        ec2("DescribeAddresses", PublicIps=["198.51.100.250"])
    ec2("ReleaseAddress", AllocationId=made["AllocationId"])
    assert ec2.tags_of(made["AllocationId"]) == {}


# NAT gateways


def network(ec2: Ec2) -> tuple[str, str]:
    vpc, subnet = ec2.subnet()
    gateway = ec2("CreateInternetGateway")["InternetGateway"]["InternetGatewayId"]
    ec2("AttachInternetGateway", InternetGatewayId=gateway, VpcId=vpc)
    return vpc, subnet


def gateway_shown(ec2: Ec2, gateway: str) -> dict[str, Any]:
    result: dict[str, Any] = ec2("DescribeNatGateways", NatGatewayIds=[gateway])["NatGateways"][0]
    return result


def test_the_life_of_a_nat_gateway(ec2: Ec2, clock: ManualClock) -> None:
    _, subnet = network(ec2)
    allocation, public = allocate(ec2)
    tags = [{"ResourceType": "natgateway", "Tags": [{"Key": "k", "Value": "v"}]}]
    params: dict[str, Any] = {"SubnetId": subnet, "AllocationId": allocation, "TagSpecifications": tags}
    made = ec2("CreateNatGateway", ClientToken="once", **params)["NatGateway"]
    key = made["NatGatewayId"]
    assert made["State"] == "pending"
    assert ec2("CreateNatGateway", ClientToken="once", **params)["NatGateway"]["NatGatewayId"] == key
    clock.advance(94)
    assert gateway_shown(ec2, key)["State"] == "pending"
    clock.advance(1)
    running = gateway_shown(ec2, key)
    [address] = running["NatGatewayAddresses"]
    assert (running["State"], address["PublicIp"], address["AllocationId"]) == ("available", public, allocation)
    assert address["PrivateIp"] == "10.0.0.4"
    with ec2.refused("InvalidIPAddress.InUse"):
        ec2("ReleaseAddress", AllocationId=allocation)
    with ec2.refused("AuthFailure"):
        ec2("DisassociateAddress", AssociationId=shown(ec2, allocation)["AssociationId"])
    filters = [{"Name": "subnet-id", "Values": [subnet]}, {"Name": "state", "Values": ["available", "pending"]}]
    assert len(ec2("DescribeNatGateways", Filter=filters)["NatGateways"]) == 1
    ec2("DeleteNatGateway", NatGatewayId=key)
    assert gateway_shown(ec2, key)["State"] == "deleting"
    clock.advance(45)
    assert gateway_shown(ec2, key)["State"] == "deleted"
    [listed] = ec2("DescribeNatGateways", Filter=[{"Name": "tag:k", "Values": ["v"]}])["NatGateways"]
    assert listed["Tags"] == [{"Key": "k", "Value": "v"}]
    kind = [{"Name": "resource-type", "Values": ["natgateway"]}]
    assert [tag["ResourceId"] for tag in ec2("DescribeTags", Filters=kind)["Tags"]] == [key]
    ec2("ReleaseAddress", AllocationId=allocation)
    ec2("DeleteSubnet", SubnetId=subnet)
    clock.advance(3600)
    with ec2.refused("NatGatewayNotFound"):
        gateway_shown(ec2, key)


def test_the_next_nat_gateway_fails(ec2: Ec2, cloud: Cloud, clock: ManualClock) -> None:
    _, subnet = network(ec2)
    cloud.faults.add("fail-nat", {}, left=1)
    states, reasons = [], []
    for _ in range(2):
        allocation, _ = allocate(ec2)
        key = ec2("CreateNatGateway", SubnetId=subnet, AllocationId=allocation)["NatGateway"]["NatGatewayId"]
        clock.advance(94)
        assert (gateway_shown(ec2, key)["State"], "AssociationId" in shown(ec2, allocation)) == ("pending", True)
        clock.advance(1)
        result = gateway_shown(ec2, key)
        states.append((result["State"], "AssociationId" in shown(ec2, allocation)))
        reasons.append((result.get("FailureCode"), "is in an invalid state" in result.get("FailureMessage", "")))
    assert states == [("failed", False), ("available", True)]
    assert reasons == [("InternalError", True), (None, False)]


def test_a_nat_gateway_that_is_deleted_in_time_does_not_fail(ec2: Ec2, cloud: Cloud, clock: ManualClock) -> None:
    _, subnet = network(ec2)
    cloud.faults.add("fail-nat", {}, left=1)
    made = ec2("CreateNatGateway", SubnetId=subnet, AllocationId=allocate(ec2)[0])["NatGateway"]
    clock.advance(90)
    ec2("DeleteNatGateway", NatGatewayId=made["NatGatewayId"])
    clock.advance(5)
    assert gateway_shown(ec2, made["NatGatewayId"])["State"] == "deleting"


@pytest.mark.parametrize("why", ["Gateway.NotAttached", "Resource.AlreadyAssociated"])
def test_a_nat_gateway_that_fails_says_so_after_the_call(ec2: Ec2, clock: ManualClock, why: str) -> None:
    if why == "Gateway.NotAttached":
        _, subnet = ec2.subnet()
        allocation, _ = allocate(ec2)
    else:
        _, subnet = network(ec2)
        allocation, _ = allocate(ec2)
        instance = ec2.running(SubnetId=subnet)
        ec2("AssociateAddress", AllocationId=allocation, InstanceId=instance["InstanceId"])
    made = ec2("CreateNatGateway", SubnetId=subnet, AllocationId=allocation)["NatGateway"]
    assert made["State"] == "pending"
    clock.advance(0)
    failed = gateway_shown(ec2, made["NatGatewayId"])
    assert (failed["State"], failed["FailureCode"]) == ("failed", why)


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"SubnetId": "subnet-0", "AllocationId": "eipalloc-0"}, "InvalidSubnetID.NotFound"),
        ({"AllocationId": "eipalloc-0"}, "InvalidAllocationID.NotFound"),
        ({}, "MissingParameter"),
    ],
)
def test_a_nat_gateway_that_is_refused(ec2: Ec2, params: dict[str, str], code: str) -> None:
    _, subnet = network(ec2)
    asked: dict[str, Any] = {"SubnetId": subnet, **params}
    with ec2.refused(code):
        ec2("CreateNatGateway", **asked)


def test_addresses_come_back_from_machines_that_died(ec2: Ec2, cloud: Cloud) -> None:
    ids = []
    for _ in range(252):
        instance = ec2.run(NetworkInterfaces=PUBLIC, ImageId=images.BASE.id)["Instances"][0]
        ids.append(instance["InstanceId"])
    machine_exited(cloud, ids[7], "killed")
    machine_exited(cloud, ids[8], "failed")
    assert ec2.run(NetworkInterfaces=PUBLIC, MinCount=2, MaxCount=2)
