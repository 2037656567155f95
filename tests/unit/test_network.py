"""The modules network and network_ready against the local cloud's EC2: what they make, find, repair and leave alone."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils import _aws, _rules, _waiting

sys.path.insert(0, str(Path(__file__).parent))
from modules import run_module  # noqa: E402

Run = Callable[..., dict[str, Any]]
HERE, OTHER = "198.51.100.7/32", "203.0.113.0/24"
OURS = [{"Name": "tag:deeplearning:cluster", "Values": ["c"]}]
WANTED: dict[str, Any] = {
    "cluster": "c",
    "zone": "us-east-1b",
    "cidr": "10.0.0.0/16",
    "public_cidr": "10.0.0.0/17",
    "private_cidr": "10.0.128.0/17",
    "ssh_locations": [HERE],
    "tags": {"team": "research"},
}


@pytest.fixture
def run(aws: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The cloud's time stands still; waiting is what makes it pass."""

    def passes(seconds: float) -> None:
        with aws.cloud.lock:
            aws.cloud.clock.advance(seconds)

    monkeypatch.setattr(_waiting, "sleep", passes)

    def call(module: str = "network", **arguments: Any) -> dict[str, Any]:
        return run_module(capsys, module, **(WANTED if module == "network" else {}) | arguments)

    return call


@pytest.fixture
def ec2(aws: Any) -> Any:
    return aws.client("ec2")


def writes(aws: Any) -> list[str]:
    return [record["operation"] for record in aws.cloud.calls.since() if record["writes"]]


def ssh_group(ec2: Any) -> Any:
    (found,) = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["c-ssh"]}])["SecurityGroups"]
    return found


def allowed(ec2: Any) -> set[str]:
    return set(_rules.in_words(_rules.rules_in(ssh_group(ec2)["IpPermissions"])))


def by_hand(ec2: Any, block: str) -> None:
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": block}]}
    ec2.authorize_security_group_ingress(GroupId=ssh_group(ec2)["GroupId"], IpPermissions=[rule])


def test_check_do_and_again(aws: Any, run: Run, ec2: Any) -> None:
    planned = run(check=True)
    assert planned["changed"] and not writes(aws)
    assert planned["network"]["vpc_id"].startswith("vpc-0000")
    assert planned["diff"]["before"] == {} and planned["diff"]["after"]["security group ssh ingress"] == [
        f"tcp 22 {HERE} ({_rules.OURS})"
    ]

    made = run()
    assert made["changed"]
    found = made["network"]
    assert found["zone"] == "us-east-1b"
    assert [one["VpcId"] for one in ec2.describe_vpcs(Filters=OURS)["Vpcs"]] == [found["vpc_id"]]
    assert "CreateTags" not in writes(aws), "everything is tagged by the call that makes it"

    for check in (False, True):
        before = len(writes(aws))
        again = run(check=check)
        assert not again["changed"] and again["network"] == found
        assert again["diff"]["before"] == again["diff"]["after"]
        assert len(writes(aws)) == before


def test_interrupted_after_each_writing_call_it_makes_one_of_everything(
    aws: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = _aws.Aws.call

    def only_one_write(self: _aws.Aws, service: str, operation: str, **params: Any) -> dict[str, Any]:
        answer = call(self, service, operation, **params)
        if not operation.startswith("describe_"):
            raise _aws.AwsProblem("interrupted")
        return answer

    with monkeypatch.context() as interrupted:
        interrupted.setattr(_aws.Aws, "call", only_one_write)
        while run().get("failed"):
            pass
    done = Counter(writes(aws))
    assert max(done.values()) <= 3 and done["CreateVpc"] == done["CreateNatGateway"] == done["CreateVpcEndpoint"] == 1
    assert (done["AllocateAddress"], done["CreateSubnet"], done["CreateSecurityGroup"]) == (2, 2, 3)
    assert not run()["changed"]


def test_rules_that_somebody_has_added_stay_unless_they_shall_not(run: Run, ec2: Any) -> None:
    run()
    by_hand(ec2, "192.0.2.7/32")
    assert not run()["changed"]
    assert run(ssh_locations=[OTHER])["changed"]
    assert allowed(ec2) == {f"tcp 22 {OTHER} ({_rules.OURS})", "tcp 22 192.0.2.7/32"}
    assert run(ssh_locations=[OTHER], ssh_exact=True)["changed"]
    assert allowed(ec2) == {f"tcp 22 {OTHER} ({_rules.OURS})"}


def test_a_rule_by_hand_that_says_what_the_settings_say_is_enough(run: Run, ec2: Any) -> None:
    run()
    by_hand(ec2, OTHER)
    assert not run(ssh_locations=[HERE, OTHER])["changed"]
    assert not run(ssh_locations=[HERE])["changed"], "and stays when they no longer do"


def test_rules_of_members_and_mount_targets_are_exact(run: Run, ec2: Any) -> None:
    ids = run()["network"]
    for what in ("members", "efs"):
        rule = {"IpProtocol": "udp", "FromPort": 53, "ToPort": 53, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
        ec2.authorize_security_group_ingress(GroupId=ids[f"{what}_security_group_id"], IpPermissions=[rule])
    assert run()["changed"] and not run()["changed"]


def test_what_was_changed_by_hand_is_repaired(run: Run, ec2: Any) -> None:
    found = run()["network"]
    tables = {
        tag["Value"]: table["RouteTableId"]
        for table in ec2.describe_route_tables(Filters=OURS)["RouteTables"]
        for tag in table["Tags"]
        if tag["Key"] == "Name"
    }
    (gateway,) = ec2.describe_internet_gateways(Filters=OURS)["InternetGateways"]
    (endpoint,) = ec2.describe_vpc_endpoints(Filters=OURS)["VpcEndpoints"]
    ec2.replace_route(
        RouteTableId=tables["c-private"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway["InternetGatewayId"]
    )
    filters = [{"Name": "association.subnet-id", "Values": [found["private_subnet_id"]]}]
    (table,) = ec2.describe_route_tables(Filters=filters)["RouteTables"]
    (association,) = table["Associations"]
    ec2.replace_route_table_association(
        AssociationId=association["RouteTableAssociationId"], RouteTableId=tables["c-public"]
    )
    ec2.modify_vpc_endpoint(VpcEndpointId=endpoint["VpcEndpointId"], RemoveRouteTableIds=[tables["c-private"]])
    ec2.modify_vpc_attribute(VpcId=found["vpc_id"], EnableDnsHostnames={"Value": False})
    ec2.delete_tags(Resources=[found["vpc_id"]], Tags=[{"Key": "team"}])

    assert run()["changed"]
    (table,) = ec2.describe_route_tables(Filters=filters)["RouteTables"]
    assert table["RouteTableId"] == tables["c-private"]
    ways = {route.get("DestinationCidrBlock"): route.get("NatGatewayId") for route in table["Routes"]}
    assert ways["0.0.0.0/0"] == found["nat_gateway_id"]
    (endpoint,) = ec2.describe_vpc_endpoints(Filters=OURS)["VpcEndpoints"]
    assert endpoint["RouteTableIds"] == [tables["c-private"]]
    assert not run()["changed"]


def test_new_tags_reach_everything_in_few_calls(aws: Any, run: Run) -> None:
    run()
    before = len(writes(aws))
    assert run(tags={"team": "teaching"})["changed"]
    assert writes(aws)[before:] == ["CreateTags"]
    assert not run(tags={"team": "teaching"})["changed"]


def test_in_a_vpc_that_is_given_it_makes_security_groups_and_an_address(aws: Any, run: Run, ec2: Any) -> None:
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    before = len(writes(aws))
    given = {"vpc_id": vpc, "public_subnet_id": "subnet-1", "private_subnet_id": "subnet-2"}
    made = run(**given)["network"]
    assert set(writes(aws)[before:]) == {
        "AllocateAddress",
        "CreateSecurityGroup",
        "AuthorizeSecurityGroupIngress",
        "AuthorizeSecurityGroupEgress",
        "RevokeSecurityGroupEgress",
    }
    assert (made["vpc_id"], made["private_subnet_id"], made["nat_gateway_id"]) == (vpc, "subnet-2", "")
    assert not run(**given)["changed"]


def test_the_other_subnet_follows_the_one_that_is_there(run: Run, ec2: Any) -> None:
    made = run()["network"]
    assert run(zone="us-east-1c")["network"] == made


def test_a_nat_gateway_that_is_going_is_waited_for_as_it_holds_the_address(run: Run, ec2: Any) -> None:
    old = run()["network"]
    ec2.delete_nat_gateway(NatGatewayId=old["nat_gateway_id"])
    new = run()["network"]
    assert new["nat_gateway_id"] != old["nat_gateway_id"] and new["nat_address"] == old["nat_address"]


def tags_of_cluster(kind: str, what: str) -> dict[str, Any]:
    tags = [{"Key": "deeplearning:cluster", "Value": "c"}, {"Key": "Name", "Value": f"c-{what}"}]
    return {"TagSpecifications": [{"ResourceType": kind, "Tags": tags}]}


@pytest.mark.parametrize("what", ["VPCs", "internet gateways", "subnets", "route tables", "S3 endpoints", "addresses"])
def test_of_two_that_bear_the_clusters_tag_it_takes_neither(run: Run, ec2: Any, what: str) -> None:
    run()
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16", **tags_of_cluster("vpc", "vpc") if what == "VPCs" else {})
    vpc_id = vpc["Vpc"]["VpcId"]
    if what == "VPCs":
        planted = vpc_id
    elif what == "internet gateways":
        made = ec2.create_internet_gateway(**tags_of_cluster("internet-gateway", "igw"))
        planted = made["InternetGateway"]["InternetGatewayId"]
    elif what == "subnets":
        made = ec2.create_subnet(VpcId=vpc_id, CidrBlock="10.9.0.0/24", **tags_of_cluster("subnet", "private"))
        planted = made["Subnet"]["SubnetId"]
    elif what == "route tables":
        (own,) = ec2.describe_vpcs(Filters=OURS)["Vpcs"]
        made = ec2.create_route_table(VpcId=own["VpcId"], **tags_of_cluster("route-table", "private"))
        planted = made["RouteTable"]["RouteTableId"]
    elif what == "S3 endpoints":
        service = "com.amazonaws.us-east-1.s3"
        made = ec2.create_vpc_endpoint(VpcId=vpc_id, ServiceName=service, **tags_of_cluster("vpc-endpoint", "s3"))
        planted = made["VpcEndpoint"]["VpcEndpointId"]
    else:
        planted = ec2.allocate_address(Domain="vpc", **tags_of_cluster("elastic-ip", "nat"))["AllocationId"]
    answer = run()
    assert answer.get("failed"), answer
    assert answer["msg"].startswith(f"2 {what} bear the tag deeplearning:cluster=c")
    assert planted in answer["msg"] and "\n" not in answer["msg"]
    assert "aws ec2 delete-tags --region us-east-1 --resources" in answer["msg"]


def test_a_refusal_is_one_sentence(aws: Any, run: Run) -> None:
    assert run(cidr="10.0.0.0/8")["failed"]
    assert "ec2:CreateVpc failed" in run(cidr="10.0.0.0/8")["msg"]


@pytest.fixture
def master(ec2: Any, run: Run) -> dict[str, str]:
    """A machine in the public subnet, and what the network is."""
    network = run()["network"]
    image = ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-api-only"]}])["Images"][0]["ImageId"]
    made = ec2.run_instances(
        ImageId=image, InstanceType="t3.medium", MinCount=1, MaxCount=1, SubnetId=network["public_subnet_id"]
    )
    return {
        "nat_gateway_id": network["nat_gateway_id"],
        "allocation_id": network["master_address"]["allocation_id"],
        "instance_id": made["Instances"][0]["InstanceId"],
    }


def test_the_master_gets_its_address_once(run: Run, ec2: Any, master: dict[str, str]) -> None:
    assert run("network_ready", **master, check=True)["changed"]
    assert run("network_ready", **master)["changed"]
    (address,) = ec2.describe_addresses(AllocationIds=[master["allocation_id"]])["Addresses"]
    assert address["InstanceId"] == master["instance_id"]
    for check in (False, True):
        assert not run("network_ready", **master, check=check)["changed"]


def test_a_nat_gateway_that_could_not_be_made_is_told_of(run: Run, ec2: Any, master: dict[str, str]) -> None:
    ec2.delete_nat_gateway(NatGatewayId=master["nat_gateway_id"])
    refused = run("network_ready", **master)
    assert refused["failed"] and "run it again, it makes another one" in refused["msg"]


@pytest.mark.parametrize(
    ("permission", "words"),
    [
        (
            {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-1", "Description": "bastion"}]},
            "all sg-1 (bastion)",
        ),
        (
            {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 81, "Ipv6Ranges": [{"CidrIpv6": "2001:db8::/32"}]},
            "tcp 80-81 2001:db8::/32",
        ),
        ({"IpProtocol": "udp", "FromPort": 1, "ToPort": 1, "PrefixListIds": [{"PrefixListId": "pl-1"}]}, "udp 1 pl-1"),
    ],
)
def test_rules_of_every_kind_are_understood_and_given_back_as_they_were(permission: dict[str, Any], words: str) -> None:
    (rule,) = _rules.rules_in([permission])
    assert str(rule) == words
    assert rule.permission() == permission


def test_blocks_are_spelled_as_aws_spells_them() -> None:
    assert _rules.from_block("tcp", "198.51.100.7/24", 22) == _rules.from_block("tcp", "198.51.100.0/24", 22)
    assert _rules.from_block("tcp", "2001:DB8:0::/32", 22).peer == "2001:db8::/32"
