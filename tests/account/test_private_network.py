"""A cluster without a public address: in a VPC of its own, and in one of the user's with a private subnet alone."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.account.kit import CLOUD_HALF
from tests.account.observed import REGION, ZONES, Seen, play

HERE = "10.8.0.0/16"
"""The addresses of the user's VPN."""


def private_cluster(account: Any, **settings: Any) -> Seen:
    account.wants(
        "red",
        cluster_region=REGION,
        cluster_availability_zones=ZONES[:1],
        cluster_public=False,
        cluster_ssh_allowed_cidrs=[HERE],
        cluster_tags={"team": "research"},
        provision_settle_seconds=1,
        **settings,
    )
    return Seen(account)


def check_it_is_private_and_stays(seen: Seen, subnet: str) -> None:
    machines = seen.instances()
    assert {machine["SubnetId"] for machine in machines} == {subnet}
    assert not any(machine.get("PublicIpAddress") for machine in machines)
    (rule,) = seen.group("ssh")["IpPermissions"]
    assert [peer["CidrIp"] for peer in rule["IpRanges"]] == [HERE]
    summary = json.loads((seen.account.folder / ".deeplearning" / "red.json").read_text(encoding="utf-8"))
    assert (summary["master"]["public_ip"], summary["master"]["private_ip"]) == ("", seen.master()["PrivateIpAddress"])
    started = time.time()
    assert play(seen.account, CLOUD_HALF).changed == 0
    assert seen.account.writes(started) == []


def test_in_an_existing_vpc_a_private_subnet_is_enough(account: Any) -> None:
    ec2 = account.client("ec2", REGION)
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24", AvailabilityZone=ZONES[0])["Subnet"]["SubnetId"]
    (table,) = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
    vpn = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
    ec2.create_route(
        RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", NetworkInterfaceId=vpn
    )  # fmt: skip
    seen = private_cluster(account, cluster_vpc_id=vpc, cluster_private_subnet_ids=[subnet])
    planned = play(account, "plan.yml").output
    assert "to the master's private address" in planned and "public address" not in planned
    play(account, CLOUD_HALF)
    check_it_is_private_and_stays(seen, subnet)
    assert not seen.listed("describe_addresses", "Addresses")


@pytest.mark.long
def test_in_a_vpc_of_its_own_the_nat_gateway_alone_has_a_public_address(account: Any) -> None:
    seen = private_cluster(account)
    play(account, CLOUD_HALF)
    (address,) = seen.listed("describe_addresses", "Addresses")
    assert {"Key": "Name", "Value": "red-nat"} in address["Tags"]
    check_it_is_private_and_stays(seen, seen.subnet("private")["SubnetId"])
    ran = account.play("plan.yml", cluster_public=True)
    assert ran.code == 2
    assert "cluster_public is true: the cluster's master is in the private subnet" in " ".join(ran.output.split())
