"""EC2 refuses mistakes with the errors of AWS, whether the local cloud or moto knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from localcloud_kits.ec2_kit import REGION, Ec2

S3 = f"com.amazonaws.{REGION}.s3"
ANY = "0.0.0.0/0"


class Networks:
    """A VPC with everything in it, `other_…` in a second one, and `free_…` in neither."""

    def __init__(self, ec2: Ec2) -> None:
        self.ids: dict[str, str] = {
            "free_gateway": ec2("CreateInternetGateway")["InternetGateway"]["InternetGatewayId"],
            "free_address": ec2("AllocateAddress", Domain="vpc")["AllocationId"],
        }
        for prefix, cidr in (("", "10.0.0.0/24"), ("other_", "10.0.1.0/24")):
            vpc, subnet = ec2.subnet(cidr)
            gateway = ec2("CreateInternetGateway")["InternetGateway"]["InternetGatewayId"]
            ec2("AttachInternetGateway", InternetGatewayId=gateway, VpcId=vpc)
            nat = ec2.nat_gateway(subnet)
            table = ec2("CreateRouteTable", VpcId=vpc)["RouteTable"]["RouteTableId"]
            association = ec2("AssociateRouteTable", RouteTableId=table, SubnetId=subnet)["AssociationId"]
            main = ec2("DescribeRouteTables", Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"][0]
            second = ec2("CreateRouteTable", VpcId=vpc)["RouteTable"]["RouteTableId"]
            ec2("CreateRoute", RouteTableId=table, DestinationCidrBlock=ANY, GatewayId=gateway)
            endpoint = ec2("CreateVpcEndpoint", VpcId=vpc, ServiceName=S3, RouteTableIds=[table])["VpcEndpoint"]
            group = ec2("CreateSecurityGroup", GroupName="g", Description="d", VpcId=vpc)["GroupId"]
            made = {
                "vpc": vpc,
                "subnet": subnet,
                "gateway": gateway,
                "nat": nat,
                "table": table,
                "association": association,
                "main_table": main["RouteTableId"],
                "main_association": main["Associations"][0]["RouteTableAssociationId"],
                "second_table": second,
                "endpoint": endpoint["VpcEndpointId"],
                "group": group,
            }
            self.ids |= {prefix + name: value for name, value in made.items()}
        ec2("CreateKeyPair", KeyName="key")
        ec2("CreatePlacementGroup", GroupName="near", Strategy="cluster")
        self.ids["deleted_nat"] = ec2.nat_gateway(self.ids["subnet"])
        ec2("DeleteNatGateway", NatGatewayId=self.ids["deleted_nat"])

    def fill(self, value: Any) -> Any:
        """Put ids in the place of their names."""
        if isinstance(value, str):
            return value.format(**self.ids)
        if isinstance(value, Mapping):
            return {key: self.fill(item) for key, item in value.items()}
        return [self.fill(item) for item in value] if isinstance(value, list) else value


def route(table: str = "{second_table}", to: str = ANY, **target: str) -> dict[str, Any]:
    return {"RouteTableId": table, "DestinationCidrBlock": to} | target


def endpoint(*tables: str, service: str = S3, vpc: str = "{vpc}", **more: str) -> dict[str, Any]:
    return {"VpcId": vpc, "ServiceName": service, "RouteTableIds": list(tables), **more}


REFUSALS: list[tuple[str, dict[str, Any], str, str]] = [
    # Route tables and their subnets
    (
        "AssociateRouteTable",
        {"RouteTableId": "{second_table}", "SubnetId": "{subnet}"},
        "Resource.AlreadyAssociated",
        "the specified association for route table {second_table} conflicts with an existing association",
    ),
    (
        "AssociateRouteTable",
        {"RouteTableId": "{other_second_table}", "SubnetId": "{subnet}"},
        "InvalidParameterValue",
        "route table {other_second_table} and subnet {subnet} belong to different networks",
    ),
    ("AssociateRouteTable", {"RouteTableId": "rtb-0", "SubnetId": "{subnet}"}, "InvalidRouteTableID.NotFound", "rtb-0"),
    (
        "AssociateRouteTable",
        {"RouteTableId": "{table}", "SubnetId": "subnet-0"},
        "InvalidSubnetID.NotFound",
        "subnet-0",
    ),
    ("DisassociateRouteTable", {"AssociationId": "rtbassoc-0"}, "InvalidAssociationID.NotFound", "rtbassoc-0"),
    (
        "DisassociateRouteTable",
        {"AssociationId": "{main_association}"},
        "InvalidParameterValue",
        "cannot disassociate the main route table association {main_association}",
    ),
    (
        "ReplaceRouteTableAssociation",
        {"AssociationId": "{association}", "RouteTableId": "{other_table}"},
        "InvalidParameterValue",
        "route table {other_table} and subnet {subnet} belong to different networks",
    ),
    (
        "ReplaceRouteTableAssociation",
        {"AssociationId": "rtbassoc-0", "RouteTableId": "{table}"},
        "InvalidAssociationID.NotFound",
        "rtbassoc-0",
    ),
    ("CreateRouteTable", {"VpcId": "vpc-0"}, "InvalidVpcID.NotFound", "vpc-0"),
    ("DescribeRouteTables", {"RouteTableIds": ["rtb-0"]}, "InvalidRouteTableID.NotFound", "rtb-0"),
    ("DeleteRouteTable", {"RouteTableId": "rtb-0"}, "InvalidRouteTableID.NotFound", "rtb-0"),
    ("DeleteRouteTable", {"RouteTableId": "{table}"}, "DependencyViolation", "{table}"),
    ("DeleteRouteTable", {"RouteTableId": "{main_table}"}, "DependencyViolation", "{main_table}"),
    # Routes
    (
        "CreateRoute",
        route(GatewayId="{free_gateway}"),
        "InvalidParameterValue",
        "route table {second_table} and network gateway {free_gateway} belong to different networks",
    ),
    (
        "ReplaceRoute",
        route("{table}", GatewayId="{other_gateway}"),
        "InvalidParameterValue",
        "route table {table} and network gateway {other_gateway} belong to different networks",
    ),
    ("CreateRoute", route(GatewayId="igw-0"), "InvalidGatewayID.NotFound", "The gateway ID 'igw-0' does not exist"),
    ("CreateRoute", route(GatewayId="nat-0"), "InvalidGatewayID.NotFound", "The gateway ID 'nat-0' does not exist"),
    ("CreateRoute", route(NatGatewayId="nat-0"), "InvalidNatGatewayID.NotFound", "The natGateway ID 'nat-0' does not"),
    ("CreateRoute", route(NatGatewayId="{deleted_nat}"), "InvalidNatGatewayID.NotFound", "{deleted_nat}"),
    ("ReplaceRoute", route("{table}", NatGatewayId="nat-0"), "InvalidNatGatewayID.NotFound", "nat-0"),
    ("CreateRoute", route(NatGatewayId="{other_nat}"), "InvalidParameterValue", "belong to different networks"),
    ("CreateRoute", route(NetworkInterfaceId="eni-0"), "InvalidNetworkInterfaceID.NotFound", "eni-0"),
    ("CreateRoute", route("rtb-0", GatewayId="{gateway}"), "InvalidRouteTableID.NotFound", "rtb-0"),
    (
        "CreateRoute",
        route("{table}", NatGatewayId="{nat}"),
        "RouteAlreadyExists",
        f"The route identified by {ANY} already exists",
    ),
    ("CreateRoute", route("{table}", "10.0.0.0/16", GatewayId="{gateway}"), "RouteAlreadyExists", "10.0.0.0/16"),
    (
        "ReplaceRoute",
        route(GatewayId="{gateway}"),
        "InvalidParameterValue",
        "There is no route defined for '0.0.0.0/0'",
    ),
    ("DeleteRoute", route(), "InvalidRoute.NotFound", "no route with destination-cidr-block 0.0.0.0/0 in route table"),
    (
        "DeleteRoute",
        route("{table}", "10.0.0.0/16"),
        "InvalidParameterValue",
        "cannot remove local route 10.0.0.0/16 in route table {table}",
    ),
    # Internet gateways and addresses
    (
        "AttachInternetGateway",
        {"InternetGatewayId": "{free_gateway}", "VpcId": "{vpc}"},
        "InvalidParameterValue",
        "Network {vpc} already has an internet gateway attached",
    ),
    (
        "AttachInternetGateway",
        {"InternetGatewayId": "{other_gateway}", "VpcId": "{vpc}"},
        "Resource.AlreadyAssociated",
        "resource {other_gateway} is already attached to network {other_vpc}",
    ),
    ("AttachInternetGateway", {"InternetGatewayId": "{gateway}", "VpcId": "{vpc}"}, "Resource.AlreadyAssociated", ""),
    (
        "AttachInternetGateway",
        {"InternetGatewayId": "igw-0", "VpcId": "vpc-0"},
        "InvalidInternetGatewayID.NotFound",
        "",
    ),
    ("AttachInternetGateway", {"InternetGatewayId": "{free_gateway}", "VpcId": "vpc-0"}, "InvalidVpcID.NotFound", ""),
    ("DetachInternetGateway", {"InternetGatewayId": "{gateway}", "VpcId": "{other_vpc}"}, "Gateway.NotAttached", ""),
    ("DeleteInternetGateway", {"InternetGatewayId": "{gateway}"}, "DependencyViolation", ""),
    ("DescribeInternetGateways", {"InternetGatewayIds": ["igw-0"]}, "InvalidInternetGatewayID.NotFound", "igw-0"),
    ("DescribeNatGateways", {"NatGatewayIds": ["nat-0"]}, "NatGatewayNotFound", "nat-0"),
    ("CreateNatGateway", {"SubnetId": "subnet-0", "AllocationId": "{free_address}"}, "InvalidSubnetID.NotFound", ""),
    ("CreateNatGateway", {"SubnetId": "{subnet}", "AllocationId": "eipalloc-0"}, "InvalidAllocationID.NotFound", ""),
    # Endpoints
    (
        "CreateVpcEndpoint",
        endpoint("{second_table}", "{table}"),
        "RouteAlreadyExists",
        "route table {table} already has a route with destination-prefix-list-id pl-",
    ),
    ("CreateVpcEndpoint", endpoint("{other_second_table}"), "InvalidParameter", "belong to different networks"),
    ("CreateVpcEndpoint", endpoint("rtb-0"), "InvalidRouteTableId.NotFound", "rtb-0"),
    ("CreateVpcEndpoint", endpoint(vpc="vpc-0"), "InvalidVpcID.NotFound", "vpc-0"),
    (
        "CreateVpcEndpoint",
        endpoint(service="com.amazonaws.us-east-1.s4"),
        "InvalidServiceName",
        "The Vpc Endpoint Service 'com.amazonaws.us-east-1.s4' does not exist",
    ),
    ("CreateVpcEndpoint", endpoint(service="com.amazonaws.eu-west-1.s3"), "InvalidServiceName", "eu-west-1"),
    (
        "CreateVpcEndpoint",
        endpoint(service="com.amazonaws.us-east-1.ec2", VpcEndpointType="Gateway"),
        "InvalidParameter",
        "Endpoint type (Gateway) does not match available service types ([Interface]).",
    ),
    ("ModifyVpcEndpoint", {"VpcEndpointId": "vpce-0"}, "InvalidVpcEndpointId.NotFound", "vpce-0"),
    (
        "ModifyVpcEndpoint",
        {"VpcEndpointId": "{endpoint}", "AddRouteTableIds": ["{other_second_table}"]},
        "InvalidParameter",
        "belong to different networks",
    ),
    ("DescribeVpcEndpoints", {"VpcEndpointIds": ["vpce-0"]}, "InvalidVpcEndpointId.NotFound", "vpce-0"),
    # VPCs and subnets
    ("CreateVpc", {"CidrBlock": "10.0.0.0/8"}, "InvalidVpc.Range", "10.0.0.0/8"),
    ("CreateVpc", {"CidrBlock": "ten"}, "InvalidParameterValue", "ten"),
    ("DescribeVpcs", {"VpcIds": ["vpc-0"]}, "InvalidVpcID.NotFound", "vpc-0"),
    ("DescribeVpcAttribute", {"VpcId": "vpc-0", "Attribute": "enableDnsSupport"}, "InvalidVpcID.NotFound", "vpc-0"),
    ("ModifyVpcAttribute", {"VpcId": "vpc-0", "EnableDnsSupport": {"Value": True}}, "InvalidVpcID.NotFound", "vpc-0"),
    ("DeleteVpc", {"VpcId": "{vpc}"}, "DependencyViolation", "The vpc '{vpc}' has dependencies and cannot be deleted."),
    ("DeleteVpc", {"VpcId": "vpc-0"}, "InvalidVpcID.NotFound", "vpc-0"),
    ("CreateSubnet", {"VpcId": "{vpc}", "CidrBlock": "10.0.0.0/25"}, "InvalidSubnet.Conflict", "10.0.0.0/25"),
    ("CreateSubnet", {"VpcId": "{vpc}", "CidrBlock": "10.1.0.0/24"}, "InvalidSubnet.Range", "10.1.0.0/24"),
    ("CreateSubnet", {"VpcId": "{vpc}", "CidrBlock": "10.0.9.0/29"}, "InvalidSubnet.Range", "10.0.9.0/29"),
    ("CreateSubnet", {"VpcId": "{vpc}", "CidrBlock": "ten"}, "InvalidParameterValue", "ten"),
    ("CreateSubnet", {"VpcId": "vpc-0", "CidrBlock": "10.0.9.0/24"}, "InvalidVpcID.NotFound", "vpc-0"),
    ("DescribeSubnets", {"SubnetIds": ["subnet-0"]}, "InvalidSubnetID.NotFound", "subnet-0"),
    ("DeleteSubnet", {"SubnetId": "{subnet}"}, "DependencyViolation", "{subnet}"),
    ("DeleteSubnet", {"SubnetId": "subnet-0"}, "InvalidSubnetID.NotFound", "subnet-0"),
    # Security groups, keys, placement groups
    (
        "CreateSecurityGroup",
        {"GroupName": "g", "Description": "d", "VpcId": "{vpc}"},
        "InvalidGroup.Duplicate",
        "The security group 'g' already exists",
    ),
    ("CreateSecurityGroup", {"GroupName": "h", "Description": "d", "VpcId": "vpc-0"}, "InvalidVpcID.NotFound", "vpc-0"),
    ("CreateSecurityGroup", {"GroupName": "h", "Description": "é", "VpcId": "{vpc}"}, "InvalidParameterValue", "é"),
    ("DescribeSecurityGroups", {"GroupIds": ["sg-0"]}, "InvalidGroup.NotFound", "sg-0"),
    ("DeleteSecurityGroup", {"GroupId": "sg-0"}, "InvalidGroup.NotFound", "sg-0"),
    ("AuthorizeSecurityGroupIngress", {"GroupId": "sg-0", "IpPermissions": []}, "InvalidGroup.NotFound", "sg-0"),
    ("CreateKeyPair", {"KeyName": "key"}, "InvalidKeyPair.Duplicate", "key"),
    ("ImportKeyPair", {"KeyName": "key", "PublicKeyMaterial": b"ssh-ed25519 A"}, "InvalidKeyPair.Duplicate", "key"),
    ("ImportKeyPair", {"KeyName": "new", "PublicKeyMaterial": b"nonsense"}, "InvalidKey.Format", ""),
    ("DescribeKeyPairs", {"KeyNames": ["none"]}, "InvalidKeyPair.NotFound", "none"),
    ("CreatePlacementGroup", {"GroupName": "near", "Strategy": "cluster"}, "InvalidPlacementGroup.Duplicate", "near"),
    ("DescribePlacementGroups", {"GroupNames": ["far"]}, "InvalidPlacementGroup.Unknown", "far"),
    ("DescribeVolumes", {"VolumeIds": ["vol-0"]}, "InvalidVolume.NotFound", "vol-0"),
]


def test_mistakes_are_refused_and_change_nothing(ec2: Ec2) -> None:
    networks = Networks(ec2)
    before = census(ec2)
    wrong = []
    for operation, params, code, words in REFUSALS:
        try:
            with ec2.refused(code, networks.fill(words)):
                ec2(operation, **networks.fill(params))
        except (AssertionError, pytest.fail.Exception) as failure:
            wrong.append(f"{operation} {params}: {failure}")
    assert not wrong, "\n".join(wrong)
    assert census(ec2) == before


def census(ec2: Ec2) -> list[Any]:
    return [
        ec2(f"Describe{kind}")[kind]
        for kind in ("Vpcs", "Subnets", "RouteTables", "InternetGateways", "VpcEndpoints", "SecurityGroups", "KeyPairs")
    ]


def test_an_address_needs_an_internet_gateway(ec2: Ec2) -> None:
    vpc, subnet = ec2.subnet()
    interface = ec2.running(SubnetId=subnet)["NetworkInterfaces"][0]["NetworkInterfaceId"]
    address = ec2("AllocateAddress", Domain="vpc")["AllocationId"]
    with ec2.refused("Gateway.NotAttached", f"Network {vpc} is not attached to any internet gateway"):
        ec2("AssociateAddress", AllocationId=address, NetworkInterfaceId=interface)
    gateway = ec2("CreateInternetGateway")["InternetGateway"]["InternetGatewayId"]
    ec2("AttachInternetGateway", InternetGatewayId=gateway, VpcId=vpc)
    ec2("AssociateAddress", AllocationId=address, NetworkInterfaceId=interface)


def test_the_same_association_again_is_no_mistake(ec2: Ec2) -> None:
    ids = Networks(ec2).ids
    again = ec2("AssociateRouteTable", RouteTableId=ids["table"], SubnetId=ids["subnet"])
    assert again["AssociationId"] == ids["association"]


def test_an_endpoint_brings_its_route_and_takes_it_away(ec2: Ec2) -> None:
    ids = Networks(ec2).ids

    def endpoint_routes(table: str) -> list[str]:
        [result] = ec2("DescribeRouteTables", RouteTableIds=[ids[table]])["RouteTables"]
        return [entry["GatewayId"] for entry in result["Routes"] if entry.get("DestinationPrefixListId")]

    assert (endpoint_routes("table"), endpoint_routes("second_table")) == ([ids["endpoint"]], [])
    change = {"AddRouteTableIds": [ids["second_table"]], "RemoveRouteTableIds": [ids["table"]]}
    ec2("ModifyVpcEndpoint", VpcEndpointId=ids["endpoint"], **change)
    assert (endpoint_routes("table"), endpoint_routes("second_table")) == ([], [ids["endpoint"]])
    # The table that it has left may have another one; one that is gone is no obstacle to its end.
    second = ec2("CreateVpcEndpoint", VpcId=ids["vpc"], ServiceName=S3, RouteTableIds=[ids["table"]])["VpcEndpoint"]
    ec2("DeleteRouteTable", RouteTableId=ids["second_table"])
    gone = ec2("DeleteVpcEndpoints", VpcEndpointIds=[ids["endpoint"], second["VpcEndpointId"]])
    assert gone["Unsuccessful"] == []
    assert endpoint_routes("table") == []
