"""Security groups, and what cannot be deleted as long as something depends on it."""

from __future__ import annotations

from typing import Any

import pytest

from localcloud.api.ec2.views import vpc_views
from localcloud.core.cloud import Cloud
from localcloud.core.views import Permission, RouteView
from localcloud.testing.clock import ManualClock
from localcloud_kits.ec2_kit import REGION, Ec2

SSH = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "ssh"}]}


def group(ec2: Ec2, vpc: str, name: str = "g") -> str:
    return str(ec2("CreateSecurityGroup", GroupName=name, Description="d", VpcId=vpc)["GroupId"])


def itself(group_id: str, description: str | None = None) -> dict[str, Any]:
    pair = {"GroupId": group_id} | ({"Description": description} if description else {})
    return {"IpProtocol": "-1", "UserIdGroupPairs": [pair]}


def shown(ec2: Ec2, group_id: str) -> dict[str, Any]:
    result: dict[str, Any] = ec2("DescribeSecurityGroups", GroupIds=[group_id])["SecurityGroups"][0]
    return result


def test_a_new_group_lets_everything_out_and_nothing_in(ec2: Ec2) -> None:
    vpc, _ = ec2.subnet()
    result = shown(ec2, group(ec2, vpc))
    assert result["IpPermissions"] == []
    [rule] = result["IpPermissionsEgress"]
    assert (rule["IpProtocol"], rule["IpRanges"]) == ("-1", [{"CidrIp": "0.0.0.0/0"}])


def test_rules_are_added_all_or_none(ec2: Ec2) -> None:
    vpc, _ = ec2.subnet()
    key = group(ec2, vpc)
    tags = [{"ResourceType": "security-group-rule", "Tags": [{"Key": "k", "Value": "v"}]}]
    made = ec2("AuthorizeSecurityGroupIngress", GroupId=key, IpPermissions=[SSH, itself(key)], TagSpecifications=tags)
    assert len(made["SecurityGroupRules"]) == 2
    more = {**SSH, "FromPort": 80, "ToPort": 80}
    described = {**SSH, "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "other words"}]}
    for again in (SSH, described, itself(key, "other words")):
        with ec2.refused("InvalidPermission.Duplicate"):
            ec2("AuthorizeSecurityGroupIngress", GroupId=key, IpPermissions=[more, again])
    with ec2.refused("InvalidPermission.Duplicate"):
        ec2("AuthorizeSecurityGroupIngress", GroupId=key, IpPermissions=[more, more])
    rules = ec2("DescribeSecurityGroupRules", Filters=[{"Name": "group-id", "Values": [key]}])["SecurityGroupRules"]
    ingress = [rule for rule in rules if not rule["IsEgress"]]
    assert [rule.get("CidrIpv4") for rule in ingress] == ["10.0.0.0/8", None]
    assert ingress[0]["Description"] == "ssh"
    assert ingress[1]["ReferencedGroupInfo"]["GroupId"] == key
    assert all(rule["Tags"] == [{"Key": "k", "Value": "v"}] for rule in ingress)
    # Tags of rules can be filtered by, and go with the rule.
    assert (
        len(ec2("DescribeSecurityGroupRules", Filters=[{"Name": "tag:k", "Values": ["v"]}])["SecurityGroupRules"]) == 2
    )
    ec2("RevokeSecurityGroupIngress", GroupId=key, IpPermissions=[described, itself(key)])
    assert shown(ec2, key)["IpPermissions"] == []
    assert ec2.tags_of(ingress[0]["SecurityGroupRuleId"]) == {}
    with ec2.refused("InvalidPermission.NotFound"):
        ec2("RevokeSecurityGroupIngress", GroupId=key, IpPermissions=[SSH])


def test_a_rule_gets_other_words_and_stays_the_same_rule(ec2: Ec2) -> None:
    vpc, _ = ec2.subnet()
    key = group(ec2, vpc)
    ec2("AuthorizeSecurityGroupIngress", GroupId=key, IpPermissions=[SSH, itself(key)])
    described = {**SSH, "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "other words"}]}
    asked = [described, itself(key, "members")]
    assert ec2("UpdateSecurityGroupRuleDescriptionsIngress", GroupId=key, IpPermissions=asked)["Return"] is True
    everything, ssh = sorted(shown(ec2, key)["IpPermissions"], key=lambda rule: rule["IpProtocol"])
    assert ssh["IpRanges"] == described["IpRanges"]
    assert everything["UserIdGroupPairs"][0]["Description"] == "members"
    with ec2.refused("InvalidPermission.NotFound"):
        ec2("UpdateSecurityGroupRuleDescriptionsIngress", GroupId=key, IpPermissions=[{**SSH, "ToPort": 23}])


@pytest.mark.parametrize(
    ("permission", "code"),
    [
        ({"IpProtocol": "tcp", "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}, "InvalidParameterValue"),
        ({**SSH, "ToPort": 21}, "InvalidParameterValue"),
        ({**SSH, "ToPort": 70000}, "InvalidParameterValue"),
        ({**SSH, "IpProtocol": "tpc"}, "InvalidParameterValue"),
        ({**SSH, "IpRanges": [{"CidrIp": "10.0.0.0/33"}]}, "InvalidParameterValue"),
        ({**SSH, "IpRanges": [{"CidrIp": "10.0.0.1"}]}, "InvalidParameterValue"),
        (itself("sg-0123456789abcdef0"), "InvalidGroup.NotFound"),
        ({"IpProtocol": "-1", "PrefixListIds": [{"PrefixListId": "pl-0"}]}, "InvalidPrefixListID.NotFound"),
        ({"IpProtocol": "-1"}, "MissingParameter"),
    ],
)
def test_rules_that_are_none(ec2: Ec2, permission: dict[str, Any], code: str) -> None:
    vpc, _ = ec2.subnet()
    key = group(ec2, vpc)
    with ec2.refused(code):
        ec2("AuthorizeSecurityGroupIngress", GroupId=key, IpPermissions=[permission])
    assert shown(ec2, key)["IpPermissions"] == []


def test_a_group_that_is_used_stays(ec2: Ec2) -> None:
    vpc, subnet = ec2.subnet()
    used, named = group(ec2, vpc, "used"), group(ec2, vpc, "named")
    instance = ec2.running(SubnetId=subnet, SecurityGroupIds=[used])
    ec2("AuthorizeSecurityGroupIngress", GroupId=used, IpPermissions=[itself(named)])
    for key in (used, named):
        with ec2.refused("DependencyViolation", f"resource {key} has a dependent object"):
            ec2("DeleteSecurityGroup", GroupId=key)
    ec2.terminated(instance)
    ec2("DeleteSecurityGroup", GroupId=used)
    ec2("DeleteSecurityGroup", GroupId=named)
    with ec2.refused("InvalidGroup.NotFound"):
        ec2("DeleteSecurityGroup", GroupId=used)
    filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}]
    [default] = ec2("DescribeSecurityGroups", Filters=filters)["SecurityGroups"]
    with ec2.refused("CannotDelete"):
        ec2("DeleteSecurityGroup", GroupId=default["GroupId"])


def test_groups_of_an_instance_can_be_changed(ec2: Ec2) -> None:
    vpc, subnet = ec2.subnet()
    first, second = group(ec2, vpc, "first"), group(ec2, vpc, "second")
    instance = ec2.running(SubnetId=subnet, SecurityGroupIds=[first])
    interface = ec2.describe(instance)["NetworkInterfaces"][0]["NetworkInterfaceId"]
    ec2("ModifyNetworkInterfaceAttribute", NetworkInterfaceId=interface, Groups=[second])
    described = ec2.describe(instance)
    assert [named["GroupId"] for named in described["SecurityGroups"]] == [second]
    assert [named["GroupId"] for named in described["NetworkInterfaces"][0]["Groups"]] == [second]


def test_a_network_is_taken_down_from_the_inside_out(ec2: Ec2, clock: ManualClock) -> None:
    vpc, subnet = ec2.subnet()
    gateway = ec2("CreateInternetGateway")["InternetGateway"]["InternetGatewayId"]
    ec2("AttachInternetGateway", InternetGatewayId=gateway, VpcId=vpc)
    table = ec2("CreateRouteTable", VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2("AssociateRouteTable", RouteTableId=table, SubnetId=subnet)
    ec2("CreateRoute", RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    key = group(ec2, vpc)
    public = [{"DeviceIndex": 0, "SubnetId": subnet, "AssociatePublicIpAddress": True}]
    instance = ec2.running(NetworkInterfaces=public)
    interface = instance["NetworkInterfaces"][0]["NetworkInterfaceId"]
    for operation, params in (
        ("DetachInternetGateway", {"InternetGatewayId": gateway, "VpcId": vpc}),
        ("DeleteInternetGateway", {"InternetGatewayId": gateway}),
        ("DeleteSubnet", {"SubnetId": subnet}),
        ("DeleteRouteTable", {"RouteTableId": table}),
        ("DeleteVpc", {"VpcId": vpc}),
    ):
        with ec2.refused("DependencyViolation"):
            ec2(operation, **params)
    with ec2.refused("InvalidNetworkInterface.InUse"):
        ec2("DeleteNetworkInterface", NetworkInterfaceId=interface)
    ec2.terminated(instance)
    ec2("DetachInternetGateway", InternetGatewayId=gateway, VpcId=vpc)
    [described] = ec2("DescribeRouteTables", RouteTableIds=[table])["RouteTables"]
    assert [route["State"] for route in described["Routes"]] == ["active", "blackhole"]
    ec2("DeleteInternetGateway", InternetGatewayId=gateway)
    with ec2.refused("DependencyViolation"):
        ec2("DeleteVpc", VpcId=vpc)
    ec2("DeleteSubnet", SubnetId=subnet)
    ec2("DeleteRouteTable", RouteTableId=table)
    with ec2.refused("DependencyViolation"):
        ec2("DeleteVpc", VpcId=vpc)
    ec2("DeleteSecurityGroup", GroupId=key)
    ec2("CreateTags", Resources=[vpc], Tags=[{"Key": "k", "Value": "v"}])
    ec2("DeleteVpc", VpcId=vpc)
    assert ec2.tags_of(vpc) == {}
    with ec2.refused("InvalidVpcID.NotFound"):
        ec2("CreateTags", Resources=[vpc], Tags=[{"Key": "k", "Value": "v"}])


@pytest.mark.parametrize("region", [REGION, "ap-southeast-2"])
def test_subnets_are_private_and_of_their_region(ec2: Ec2, region: str) -> None:
    vpc = ec2("CreateVpc", region=region, CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    made = ec2("CreateSubnet", region=region, VpcId=vpc, CidrBlock="10.0.1.0/24")["Subnet"]
    assert made["AvailabilityZone"] == f"{region}a"
    [result] = ec2("DescribeSubnets", region=region, SubnetIds=[made["SubnetId"]])["Subnets"]
    assert (result["MapPublicIpOnLaunch"], result["DefaultForAz"]) == (False, False)
    with ec2.refused("InvalidParameterValue", "eu-west-1a"):
        params = {"VpcId": vpc, "CidrBlock": "10.0.2.0/24", "AvailabilityZone": "eu-west-1a"}
        ec2("CreateSubnet", region=region, **params)


def test_views_of_a_network(ec2: Ec2, cloud: Cloud, clock: ManualClock) -> None:
    vpc, public = ec2.subnet("10.0.0.0/24")
    _, private = ec2.subnet("10.0.1.0/24", vpc=vpc)
    gateway = ec2("CreateInternetGateway")["InternetGateway"]["InternetGatewayId"]
    ec2("AttachInternetGateway", InternetGatewayId=gateway, VpcId=vpc)
    ec2("ModifyVpcAttribute", VpcId=vpc, EnableDnsHostnames={"Value": True})
    tables = [ec2("CreateRouteTable", VpcId=vpc)["RouteTable"]["RouteTableId"] for _ in range(2)]
    for table, subnet in zip(tables, (public, private), strict=True):
        ec2("AssociateRouteTable", RouteTableId=table, SubnetId=subnet)
    allocation = ec2("AllocateAddress", Domain="vpc")
    nat = ec2("CreateNatGateway", SubnetId=public, AllocationId=allocation["AllocationId"])["NatGateway"][
        "NatGatewayId"
    ]
    ec2("CreateRoute", RouteTableId=tables[0], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    ec2("CreateRoute", RouteTableId=tables[1], DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)
    endpoint = f"com.amazonaws.{REGION}.s3"
    ec2("CreateVpcEndpoint", VpcId=vpc, ServiceName=endpoint, VpcEndpointType="Gateway", RouteTableIds=[tables[1]])
    key = group(ec2, vpc)
    ec2("AuthorizeSecurityGroupIngress", GroupId=key, IpPermissions=[SSH, itself(key)])
    instance = ec2.running(SubnetId=private, SecurityGroupIds=[key])

    def view() -> Any:
        return next(view for view in vpc_views(cloud) if view.id == vpc)

    seen = view()
    assert (seen.region, seen.cidrs, seen.dns_support, seen.dns_hostnames) == (REGION, ("10.0.0.0/16",), True, True)
    subnets = {subnet.id: subnet for subnet in seen.subnets}
    local = RouteView("10.0.0.0/16", "local", "local")
    assert subnets[public].routes == (local, RouteView("0.0.0.0/0", "internet", gateway))
    assert subnets[private].routes == (local, RouteView("0.0.0.0/0", "nat", nat))
    assert (subnets[public].s3_endpoint, subnets[private].s3_endpoint) == (False, True)
    [gateway_view] = seen.nat_gateways
    assert (gateway_view.public_ip, gateway_view.state) == (allocation["PublicIp"], "available")
    rules = next(shown for shown in seen.security_groups if shown.id == key)
    assert rules.ingress == (
        Permission("tcp", 22, 22, cidrs=("10.0.0.0/8",)),
        Permission("-1", None, None, groups=(key,)),
    )
    assert rules.egress == (Permission("-1", None, None, cidrs=("0.0.0.0/0",)),)
    assert [instance.id for instance in seen.instances] == [instance["InstanceId"]]
    ec2("DeleteNatGateway", NatGatewayId=nat)
    clock.advance(0)
    assert {subnet.id: subnet for subnet in view().subnets}[private].routes[1].kind == "other"
    ec2.terminated(instance)
    assert view().instances == ()


def test_a_dry_run_creates_and_deletes_nothing(ec2: Ec2) -> None:
    _, subnet = ec2.subnet()
    interface = ec2("CreateNetworkInterface", SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
    before = ec2("DescribeVpcs")["Vpcs"]
    with ec2.refused("DryRunOperation"):
        ec2("CreateVpc", CidrBlock="10.9.0.0/16", DryRun=True)
    with ec2.refused("DryRunOperation"):
        ec2("DeleteNetworkInterface", NetworkInterfaceId=interface, DryRun=True)
    assert ec2("DescribeVpcs")["Vpcs"] == before
    assert ec2("DescribeNetworkInterfaces", NetworkInterfaceIds=[interface])["NetworkInterfaces"]
