"""The fault `late-reads`: a new resource is not seen for a while, neither listed nor by its id."""

from __future__ import annotations

import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from localcloud.testing.clock import ManualClock
from localcloud_kits.rules_kit import Aws, tagged

SECONDS = 5.0
MINE = [{"Name": "tag:cluster", "Values": ["red"]}]


@pytest.fixture
def clock() -> ManualClock:
    """Clients sign with the real time."""
    return ManualClock(time.time())


@pytest.fixture
def ec2(aws: Aws) -> Any:
    return aws("ec2")


def codes(client: Any, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    """The result of each call: ok, or the code of the error."""
    results = []
    for operation, params in calls:
        try:
            getattr(client, operation)(**params)
            results.append("ok")
        except ClientError as error:
            results.append(error.response["Error"]["Code"])
    return results


def create_all(ec2: Any, clock: ManualClock) -> list[tuple[str, str, str, str, str]]:
    """One of each kind: how to list it, where, how to name it, its id, and the code while it is not seen."""
    mark: dict[str, Any] = {"cluster": "red"}
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tagged("vpc", **mark))["Vpc"]["VpcId"]
    clock.advance(SECONDS)
    block = {"VpcId": vpc, "CidrBlock": "10.0.0.0/24", "TagSpecifications": tagged("subnet", **mark)}
    subnet = ec2.create_subnet(**block)["Subnet"]["SubnetId"]
    gateway = ec2.create_internet_gateway(TagSpecifications=tagged("internet-gateway", **mark))["InternetGateway"]
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip", **mark))["AllocationId"]
    table = ec2.create_route_table(VpcId=vpc, TagSpecifications=tagged("route-table", **mark))["RouteTable"]
    group = {"GroupName": "g", "Description": "d", "VpcId": vpc, "TagSpecifications": tagged("security-group", **mark)}
    group_id = ec2.create_security_group(**group)["GroupId"]
    endpoint = {"VpcId": vpc, "ServiceName": "com.amazonaws.us-east-1.s3"}
    endpoint["TagSpecifications"] = tagged("vpc-endpoint", **mark)
    endpoint_id = ec2.create_vpc_endpoint(**endpoint)["VpcEndpoint"]["VpcEndpointId"]
    template: dict[str, Any] = {"LaunchTemplateName": "template", "LaunchTemplateData": {"InstanceType": "t3.micro"}}
    template["TagSpecifications"] = tagged("launch-template", **mark)
    template_id = ec2.create_launch_template(**template)["LaunchTemplate"]["LaunchTemplateId"]
    return [
        ("describe_subnets", "Subnets", "SubnetIds", subnet, "InvalidSubnetID.NotFound"),
        (
            "describe_internet_gateways",
            "InternetGateways",
            "InternetGatewayIds",
            gateway["InternetGatewayId"],
            "InvalidInternetGatewayID.NotFound",
        ),
        ("describe_addresses", "Addresses", "AllocationIds", address, "InvalidAllocationID.NotFound"),
        (
            "describe_route_tables",
            "RouteTables",
            "RouteTableIds",
            table["RouteTableId"],
            "InvalidRouteTableID.NotFound",
        ),
        ("describe_security_groups", "SecurityGroups", "GroupIds", group_id, "InvalidGroup.NotFound"),
        ("describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointIds", endpoint_id, "InvalidVpcEndpointId.NotFound"),
        (
            "describe_launch_templates",
            "LaunchTemplates",
            "LaunchTemplateIds",
            template_id,
            "InvalidLaunchTemplateId.NotFound",
        ),
    ]


def test_new_resources_are_listed_late(ec2: Any, aws: Aws, clock: ManualClock) -> None:
    aws.cloud.faults.add("late-reads", {}, SECONDS)
    created = create_all(ec2, clock)
    for operation, key, parameter, resource, code in created:
        assert getattr(ec2, operation)(Filters=MINE)[key] == [], operation
        named = (operation, {parameter: [resource]})
        tagging = ("create_tags", {"Resources": [resource], "Tags": [{"Key": "a", "Value": "b"}]})
        assert codes(ec2, named, tagging) == [code, code]
        assert ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [resource]}])["Tags"] == []
    clock.advance(SECONDS - 0.1)
    assert ec2.describe_subnets(Filters=MINE)["Subnets"] == []
    clock.advance(0.1)
    for operation, key, parameter, resource, _ in created:
        assert len(getattr(ec2, operation)(Filters=MINE)[key]) == 1
        assert codes(ec2, (operation, {parameter: [resource]})) == ["ok"]
        assert len(ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [resource]}])["Tags"]) == 1


def test_a_new_vpc_and_what_needs_it(ec2: Any, aws: Aws, clock: ManualClock) -> None:
    fault = aws.cloud.faults.add("late-reads", {}, SECONDS)
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ("create_subnet", {"VpcId": vpc, "CidrBlock": "10.0.0.0/24"})
    attribute = ("describe_vpc_attribute", {"VpcId": vpc, "Attribute": "enableDnsSupport"})
    assert codes(ec2, subnet, attribute) == ["InvalidVpcID.NotFound"] * 2
    # A filter names nothing: it just finds nothing.
    assert ec2.describe_vpcs(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["Vpcs"] == []
    aws.cloud.faults.remove(fault)
    assert codes(ec2, subnet, attribute) == ["ok", "ok"]
    # What exists already is seen when the fault comes.
    aws.cloud.faults.add("late-reads", {}, SECONDS)
    assert len(ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["Subnets"]) == 1


def test_routes_to_new_gateways(ec2: Any, aws: Aws, clock: ManualClock) -> None:
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    attached = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=attached, VpcId=vpc)
    aws.cloud.faults.add("late-reads", {}, SECONDS)
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    nat = ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address)["NatGateway"]["NatGatewayId"]
    target = {"RouteTableId": table, "DestinationCidrBlock": "0.0.0.0/0"}
    assert codes(
        ec2,
        ("attach_internet_gateway", {"InternetGatewayId": gateway, "VpcId": vpc}),
        ("create_route", {"GatewayId": gateway, **target}),
        ("create_route", {"NatGatewayId": nat, **target}),
        ("describe_nat_gateways", {"NatGatewayIds": [nat]}),
    ) == [
        "InvalidInternetGatewayID.NotFound",
        "InvalidGatewayID.NotFound",
        "InvalidNatGatewayID.NotFound",
        "NatGatewayNotFound",
    ]
    assert ec2.describe_nat_gateways()["NatGateways"] == []
    clock.advance(SECONDS)
    assert codes(ec2, ("create_route", {"NatGatewayId": nat, **target})) == ["ok"]
