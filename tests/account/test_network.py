"""The role network, played alone: what it repairs, what it leaves alone, and what it refuses."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.account.kit import ROLE_PLAY, Account, Ran

pytestmark = pytest.mark.gate

CLUSTER, ZONE = "red", "us-east-1b"
HERE, OTHER = "198.51.100.7/32", "203.0.113.0/24"
OURS = [{"Name": "tag:deeplearning:cluster", "Values": [CLUSTER]}]
PLAY = (
    ROLE_PLAY
    + """\
    - name: Create the network
      ansible.builtin.include_role:
        name: deeplearning.aws.network
    - name: Print the result
      ansible.builtin.debug:
        msg: "network={{ network_result | to_json }}"
"""
)


class Network:
    """One cluster's network, by the role and by plain boto3."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.ec2 = account.client("ec2")
        self.play_file = account.folder / "network.yml"
        self.play_file.write_text(PLAY, encoding="utf-8")
        self.settings: dict[str, Any] = {
            "network_cluster": CLUSTER,
            "network_region": "us-east-1",
            "network_zone": ZONE,
            "network_cidr": "10.0.0.0/16",
            "network_public_cidr": "10.0.0.0/17",
            "network_private_cidr": "10.0.128.0/17",
            "network_ssh_locations": [HERE],
        }

    def play(self, *arguments: str, code: int = 0, **settings: Any) -> Ran:
        ran = self.account.play(str(self.play_file), *arguments, **self.settings, **settings)
        assert ran.code == code, ran.output[-6000:]
        return ran

    def result(self, ran: Ran) -> dict[str, Any]:
        text = ran.output.split("network=")[1].split("\n\n")[0]
        result: dict[str, Any] = json.loads("".join(line.strip() for line in text.splitlines()).strip("'\""))
        return result

    def one(self, operation: str, key: str, name: str) -> Any:
        by_name = [*OURS, {"Name": "tag:Name", "Values": [f"{CLUSTER}-{name}"]}]
        (result,) = getattr(self.ec2, operation)(Filters=by_name)[key]
        return result

    def table(self, name: str) -> Any:
        return self.one("describe_route_tables", "RouteTables", name)

    def group(self, name: str) -> Any:
        return self.one("describe_security_groups", "SecurityGroups", name)

    def ssh(self) -> set[str]:
        permissions = self.group("ssh")["IpPermissions"]
        return {peer["CidrIp"] for permission in permissions for peer in permission["IpRanges"]}

    def state(self) -> str:
        reads = (
            ("describe_vpcs", "Vpcs"),
            ("describe_subnets", "Subnets"),
            ("describe_route_tables", "RouteTables"),
            ("describe_security_groups", "SecurityGroups"),
            ("describe_addresses", "Addresses"),
            ("describe_internet_gateways", "InternetGateways"),
        )
        result = {key: getattr(self.ec2, operation)(Filters=OURS)[key] for operation, key in reads}
        return json.dumps(result, default=str, sort_keys=True)


@pytest.fixture
def network(account: Any) -> Network:
    return Network(account)


def test_a_changed_resource_is_repaired_in_one_run(network: Network) -> None:
    ec2 = network.ec2
    tags = [{"Key": "Name", "Value": f"{CLUSTER}-vpc"}]
    foreign = ec2.create_vpc(
        CidrBlock="10.0.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": tags}]
    )["Vpc"]["VpcId"]  # fmt: skip
    network.play()
    vpc = network.one("describe_vpcs", "Vpcs", "vpc")["VpcId"]
    assert vpc != foreign
    (untouched,) = ec2.describe_vpcs(VpcIds=[foreign])["Vpcs"]
    assert untouched["Tags"] == tags
    before = json.loads(network.state())

    public, private = network.table("public"), network.table("private")
    igw = network.one("describe_internet_gateways", "InternetGateways", "igw")["InternetGatewayId"]
    ec2.replace_route(RouteTableId=private["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=igw)
    ec2.create_route(RouteTableId=private["RouteTableId"], DestinationCidrBlock="192.168.0.0/16", GatewayId=igw)
    ec2.replace_route_table_association(
        AssociationId=private["Associations"][0]["RouteTableAssociationId"], RouteTableId=public["RouteTableId"]
    )
    endpoint = network.one("describe_vpc_endpoints", "VpcEndpoints", "s3")["VpcEndpointId"]
    ec2.modify_vpc_endpoint(VpcEndpointId=endpoint, RemoveRouteTableIds=[private["RouteTableId"]])
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": False})
    ssh = network.group("ssh")["GroupId"]
    by_hand = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "192.0.2.7/32"}]}
    ec2.authorize_security_group_ingress(GroupId=ssh, IpPermissions=[by_hand])

    address = network.one("describe_addresses", "Addresses", "nat")["AllocationId"]
    ec2.create_tags(Resources=[address], Tags=[{"Key": "Name", "Value": "renamed"}])

    # Other blocks in the settings concern new networks only.
    network.settings.update(
        network_tags={"team": "research"},
        network_ssh_locations=[OTHER],
        network_cidr="10.7.0.0/16",
        network_public_cidr="10.7.0.0/17",
        network_private_cidr="10.7.128.0/17",
        network_zone="us-east-1c",
    )
    network.play()
    after = json.loads(network.state())
    for key, name in (
        ("Vpcs", "VpcId"),
        ("Subnets", "SubnetId"),
        ("Addresses", "AllocationId"),
        ("InternetGateways", "InternetGatewayId"),
    ):
        assert [resource[name] for resource in after[key]] == [resource[name] for resource in before[key]]
        assert all({"Key": "team", "Value": "research"} in resource["Tags"] for resource in after[key])
    assert network.one("describe_addresses", "Addresses", "nat")["AllocationId"] == address
    private = network.table("private")
    routes = {route.get("DestinationCidrBlock"): route for route in private["Routes"]}
    assert routes["0.0.0.0/0"]["NatGatewayId"] and "192.168.0.0/16" in routes
    subnet = network.one("describe_subnets", "Subnets", "private")["SubnetId"]
    assert [association["SubnetId"] for association in private["Associations"]] == [subnet]
    endpoint = network.one("describe_vpc_endpoints", "VpcEndpoints", "s3")
    assert set(endpoint["RouteTableIds"]) == {private["RouteTableId"], network.table("public")["RouteTableId"]}
    assert ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsHostnames")["EnableDnsHostnames"]["Value"]
    assert network.ssh() == {OTHER, "192.0.2.7/32"}

    # The rule that was added by hand is all that differs.
    started = time.time()
    network.play(network_ssh_purge_rules=True)
    assert network.ssh() == {OTHER}
    assert network.account.writes(started) == ["ec2:RevokeSecurityGroupIngress"]


def test_a_second_resource_with_the_tag_is_refused(network: Network) -> None:
    ec2 = network.ec2
    tags = [{"ResourceType": "vpc", "Tags": [{"Key": "deeplearning:cluster", "Value": CLUSTER}]}]
    ids = sorted(ec2.create_vpc(CidrBlock=block, TagSpecifications=tags)["Vpc"]["VpcId"]
                 for block in ("10.1.0.0/16", "10.2.0.0/16"))  # fmt: skip
    started = time.time()
    output = " ".join(network.play(code=2).output.split())
    assert f"2 resources of the kind vpc have the tag deeplearning:cluster={CLUSTER} ({ids[0]}, {ids[1]})" in output
    assert network.account.writes(started) == []


@pytest.mark.long
def test_an_existing_vpc_gets_security_groups_and_nothing_more(network: Network) -> None:
    ec2 = network.ec2
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZone=ZONE)["Subnet"]["SubnetId"]
        for block in ("10.9.0.0/24", "10.9.1.0/24")
    ]
    theirs = ec2.create_security_group(GroupName=f"{CLUSTER}-efs", Description="Theirs", VpcId=vpc)["GroupId"]
    network.settings.update(
        network_vpc_id=vpc, network_public_subnet_id=subnets[0], network_private_subnet_id=subnets[1]
    )
    refused = " ".join(network.play(code=2).output.split())
    assert f"The security group {CLUSTER}-efs ({theirs}) exists in {vpc} but does not have the tag" in refused
    ec2.delete_security_group(GroupId=theirs)

    started = time.time()
    result = network.result(network.play())
    assert (result["vpc_id"], result["zone"], result["nat_gateway_id"]) == (vpc, ZONE, "")
    calls = {call.removeprefix("ec2:") for call in network.account.writes(started)}
    assert calls == {
        "AllocateAddress",
        "AuthorizeSecurityGroupEgress",
        "AuthorizeSecurityGroupIngress",
        "CreateSecurityGroup",
        "RevokeSecurityGroupEgress",
    }
    assert result["efs_security_group_id"] == network.group("efs")["GroupId"]
    assert network.play().changed == 0


@pytest.mark.long
def test_in_check_mode_nothing_is_written(network: Network) -> None:
    planned = network.play("--check")
    assert planned.changed > 0 and network.account.writes(0) == []
    assert network.result(planned)["vpc_id"] == "vpc-00000000000000000"
