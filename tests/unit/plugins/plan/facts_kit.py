"""The facts of an account in which nothing is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.plan import planner
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.facts import AccountFacts, ImageFacts
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import setting_rules

from tests.unit.modules import defaults_of
from tests.unit.prices import LIST

TYPE = {
    "name": "g5.xlarge",
    "vcpus": 4,
    "gpus": 1,
    "accelerated": True,
    "gpu_name": "A10G",
    "gpu_maker": "NVIDIA",
    "neuron_name": "",
    "efa_cards": [],
    "instance_store_gib": 0,
    "placement": True,
    "spot": True,
    "architectures": ["x86_64"],
}
IMAGE = {
    "ImageId": "ami-1",
    "Name": "Deep Learning AMI (Ubuntu 22.04)",
    "State": "available",
    "Architecture": "x86_64",
    "RootDeviceName": "/dev/sda1",
    "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75}}],
}
ZONES = ("us-east-1a", "us-east-1b")
FACTS = AccountFacts(
    region="us-east-1",
    account="123456789012",
    partition="aws",
    groups=[],
    emr_clusters=[],
    emr=None,
    types={"g5.xlarge": TYPE},
    offered_types=[],
    image=ImageFacts("ami-1", described=[IMAGE]),
    quotas={"L-DB2E81BA": {"QuotaName": "G and VT", "QuotaCode": "L-DB2E81BA", "Value": 64.0}},
    other_instances=[],
    vpcs=[],
    subnets=None,
    route_tables=None,
    endpoints=None,
    file_systems=[],
    mount_targets=None,
    security_groups=None,
    zones=[{"ZoneName": zone} for zone in ZONES],
    offers=[{"InstanceType": "g5.xlarge", "Location": zone} for zone in ZONES],
    key_pairs=[{"KeyName": "my-key"}],
    prices=LIST,
    failures=(),
)


def cluster(**settings: Any) -> dict[str, Any]:
    minimum = {"name": "red", "ssh_allowed_cidrs": ["198.51.100.1/32"], "key_name": "my-key", "region": "us-east-1"}
    # Few of the types here have a price.
    minimum["max_hourly_cost"] = ""
    checked = setting_rules.check({f"cluster_{name}": value for name, value in {**minimum, **settings}.items()})
    assert checked.problems == []
    return setting_rules.complete(checked.values)


def texts(facts: AccountFacts, is_problem: bool = True, **settings: Any) -> list[str]:
    return [finding.text for finding in planner.check(facts, cluster(**settings)) if finding.is_problem is is_problem]


PUBLIC, PRIVATE = "subnet-0123456789abcdef0", "subnet-0123456789abcdef1"
VPC = "vpc-0123456789abcdef0"
SETTINGS = {"vpc_id": VPC, "public_subnet_ids": [PUBLIC], "private_subnet_ids": [PRIVATE]}


def in_vpc(zone: str = ZONES[0], free: int = 100, private_route: dict[str, str] | None = None) -> AccountFacts:
    """Return the facts of a VPC with a public subnet in the first zone and a private one in `zone`."""

    def table(subnet: str, target: dict[str, str]) -> dict[str, Any]:
        routes = [{"DestinationCidrBlock": "0.0.0.0/0", **target}] if target else []
        return {"RouteTableId": f"rtb-{subnet}", "Associations": [{"SubnetId": subnet}], "Routes": routes}

    subnets = [
        {"SubnetId": PUBLIC, "VpcId": VPC, "AvailabilityZone": ZONES[0]},
        {"SubnetId": PRIVATE, "VpcId": VPC, "AvailabilityZone": zone, "AvailableIpAddressCount": free},
    ]
    private = {"NatGatewayId": "nat-1"} if private_route is None else private_route
    tables = [table(PUBLIC, {"GatewayId": "igw-1"}), table(PRIVATE, private)]
    vpcs = [{"VpcId": VPC, "CidrBlock": "10.9.0.0/16"}]
    return replace(FACTS, vpcs=vpcs, subnets=subnets, route_tables=tables)


def options(**changes: Any) -> dict[str, Any]:
    """Return the options of the module `plan` besides the settings."""
    return {**defaults_of("plan"), **changes}
