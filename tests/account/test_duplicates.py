"""Resources that two concurrent runs of site.yml left twice: site.yml deletes what the operator has confirmed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tests.account.kit import CLOUD_HALF

NAME = "red"
ZONE = "us-east-1a"


@dataclass(frozen=True)
class Doubled:
    """A network with two NAT gateways and three addresses of one name."""

    used: str
    unused: str
    addresses: dict[str, str]
    """The allocation ids by what they are for."""


def tags(kind: str, what: str) -> list[dict[str, Any]]:
    pairs = {"deeplearning:cluster": NAME, "Name": f"{NAME}-{what}"}
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in pairs.items()]}]


def doubled_network(ec2: Any) -> Doubled:
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags("vpc", "vpc"))["Vpc"]["VpcId"]
    subnets = {
        what: ec2.create_subnet(
            VpcId=vpc, CidrBlock=block, AvailabilityZone=ZONE, TagSpecifications=tags("subnet", what)
        )["Subnet"]["SubnetId"]
        for what, block in (("public", "10.0.0.0/17"), ("private", "10.0.128.0/17"))
    }
    gateway = ec2.create_internet_gateway(TagSpecifications=tags("internet-gateway", "igw"))["InternetGateway"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway["InternetGatewayId"], VpcId=vpc)
    addresses = {
        what: ec2.allocate_address(Domain="vpc", TagSpecifications=tags("elastic-ip", "nat"))["AllocationId"]
        for what in ("unused", "used", "free")
    }
    gateways = {
        what: ec2.create_nat_gateway(
            SubnetId=subnets["public"], AllocationId=addresses[what], TagSpecifications=tags("natgateway", "nat")
        )["NatGateway"]["NatGatewayId"]
        for what in ("unused", "used")
    }
    table = ec2.create_route_table(VpcId=vpc, TagSpecifications=tags("route-table", "private"))["RouteTable"]
    ec2.associate_route_table(RouteTableId=table["RouteTableId"], SubnetId=subnets["private"])
    ec2.create_route(
        RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", NatGatewayId=gateways["used"]
    )
    return Doubled(gateways["used"], gateways["unused"], addresses)


def living_gateways(ec2: Any) -> list[str]:
    listed = ec2.describe_nat_gateways(Filter=[{"Name": "state", "Values": ["pending", "available"]}])
    return [gateway["NatGatewayId"] for gateway in listed["NatGateways"]]


def test_site_deletes_unused_duplicates_after_a_confirmation_and_goes_on(account: Any) -> None:
    account.wants(NAME, provision_settle_seconds=1, cluster_worker_count=0, cluster_availability_zones=[ZONE])
    ec2 = account.client("ec2")
    doubled = doubled_network(ec2)
    ids = [doubled.unused, *sorted((doubled.addresses["unused"], doubled.addresses["free"]))]
    started = time.time()
    ran = account.play(CLOUD_HALF)
    output = " ".join(ran.output.split())
    assert ran.code == 2 and f"-e remove_duplicates={','.join(ids)}" in output, ran.output[-4000:]
    assert f"NAT gateway {doubled.unused} (0." in output and "delete-tags" not in output
    assert account.writes(started) == []

    refused = account.play("playbooks/plan.yml", remove_duplicates=doubled.used)
    assert refused.code == 2
    assert f"remove_duplicates names {doubled.used}, and only duplicates" in " ".join(refused.output.split())

    account.play(CLOUD_HALF, remove_duplicates=",".join(ids), kill_at_write="DeleteNatGateway")
    ran = account.play(CLOUD_HALF, remove_duplicates=",".join(ids))
    assert ran.code == 0, ran.output[-6000:]
    assert living_gateways(ec2) == [doubled.used]
    left = {address["AllocationId"] for address in ec2.describe_addresses()["Addresses"]}
    assert doubled.addresses["used"] in left and not left & set(ids) and len(left) == 2


def test_destroy_deletes_untagged_resources_that_are_named(account: Any) -> None:
    account.wants(NAME, destroy_stuck_seconds=3)
    ec2 = account.client("ec2")
    doubled = doubled_network(ec2)
    named = [doubled.unused, doubled.addresses["unused"]]
    ec2.delete_tags(Resources=named, Tags=[{"Key": "deeplearning:cluster"}])
    listed = account.play("playbooks/audit.yml").output
    assert f"aws ec2 delete-nat-gateway --region us-east-1 --nat-gateway-id {doubled.unused}" in listed
    assert "2 NAT gateways" in listed and "3 Elastic IP addresses" in listed

    theirs = ec2.allocate_address(Domain="vpc")["AllocationId"]
    refused = account.play("destroy.yml", destroy=NAME, destroy_also=f"{doubled.unused},{theirs}")
    assert refused.code == 2 and f"destroy_also names {theirs}, so nothing of the cluster was removed" in " ".join(
        refused.output.split()
    )
    assert len(living_gateways(ec2)) == 2
    without = account.play("destroy.yml", destroy=NAME)
    assert without.code == 2 and f"-e destroy_also={','.join(named)}" in " ".join(without.output.split())
    assert living_gateways(ec2) == [doubled.unused]

    account.play("destroy.yml", destroy=NAME, destroy_also=",".join(named), kill_at_write="DeleteNatGateway")
    for _again in range(2):
        ran = account.play("destroy.yml", destroy=NAME, destroy_also=",".join(named))
        assert ran.code == 0, ran.output[-4000:]
    assert [address["AllocationId"] for address in ec2.describe_addresses()["Addresses"]] == [theirs]
    assert not [vpc for vpc in ec2.describe_vpcs()["Vpcs"] if not vpc.get("IsDefault")]
