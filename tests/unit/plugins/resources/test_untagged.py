"""Resources in the cluster's network that do not have its tag: what they are, and which destroy may delete."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import tag_list
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources import untagged
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import ClusterResources, Resource
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.untagged import Surroundings, UntaggedResource
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views import untagged_lines
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views.costs import billed

from tests.unit.prices import LIST

OWN_VPC, OTHER_VPC = "vpc-0123456789abcdef0", "vpc-0123456789abcdef1"
GROUP, OTHER_GROUP = "sg-0123456789abcdef0", "sg-0123456789abcdef1"
INSTANCE, VOLUME = "i-0123456789abcdef0", "vol-0123456789abcdef0"
INTERFACE, GATEWAY = "eni-0123456789abcdef0", "nat-0123456789abcdef0"
ADDRESS = "eipalloc-0123456789abcdef0"
CLUSTER = untagged._Cluster(
    name="red",
    region="us-east-1",
    own=frozenset({"fsmt-0123456789abcdef0", "vpce-0123456789abcdef0", "i-own", "nat-0123456789abcdef9"}),
    vpcs=frozenset({OWN_VPC}),
    groups=frozenset({GROUP}),
    addresses=frozenset({"red-nat", "red-master"}),
    scaling_groups=frozenset({"red-master", "red-workers"}),
    templates=frozenset({"lt-0123456789abcdef0"}),
    job_flows=frozenset({"j-OWN"}),
)


def instance(vpc: str = OWN_VPC, state: str = "running", **tags: str) -> dict[str, Any]:
    names = {"group": "aws:autoscaling:groupName", "flow": "aws:elasticmapreduce:job-flow-id"}
    names |= {"template": "aws:ec2launchtemplate:id", "cluster": "deeplearning:cluster"}
    return {
        "InstanceId": INSTANCE,
        "InstanceType": "g5.xlarge",
        "State": {"Name": state},
        "VpcId": vpc,
        "Tags": tag_list({names.get(key, key): value for key, value in tags.items()}),
    }


def interface(description: str = "", vpc: str = OWN_VPC, **more: Any) -> dict[str, Any]:
    common = {"NetworkInterfaceId": INTERFACE, "VpcId": vpc, "Description": description, "Status": "available"}
    return {**common, "Groups": [{"GroupId": GROUP}], "TagSet": [], **more}


def classify(**listed: Any) -> Surroundings:
    return untagged.classify(CLUSTER, untagged._Listed(**{kind: [item] for kind, item in listed.items()}))


def only(surroundings: Surroundings) -> UntaggedResource:
    (item,) = surroundings.untagged
    return item


@pytest.mark.parametrize(
    ("listed", "owner", "command"),
    [
        pytest.param(
            instance(template="lt-0123456789abcdef0"),
            "",
            f"aws ec2 terminate-instances --region us-east-1 --instance-ids {INSTANCE}",
            id="detached",
        ),
        pytest.param(instance(cluster="blue"), "the cluster blue", "", id="of another cluster"),
        pytest.param(instance(cluster="evil\nred"), 'the cluster "evil red"', "", id="no cluster's name"),
        pytest.param(
            instance(group="theirs"), 'the Auto Scaling group "theirs", which replaces it', "", id="of another group"
        ),
        pytest.param(
            instance(flow="j-THEIRS"),
            "the EMR cluster j-THEIRS",
            "aws emr terminate-clusters --region us-east-1 --cluster-ids j-THEIRS",
            id="of another EMR cluster",
        ),
        pytest.param(instance(flow="j-1; reboot"), "another EMR cluster", "", id="no id of EMR"),
    ],
)
def test_an_instance_is_removable_unless_something_else_owns_it(
    listed: dict[str, Any], owner: str, command: str
) -> None:
    item = only(classify(instances=listed))
    assert (item.owner, item.command, item.is_removable) == (owner, command, not owner)


@pytest.mark.parametrize(
    "tags", [{"group": "red-workers"}, {"flow": "j-OWN"}], ids=["of the Auto Scaling group", "of the EMR cluster"]
)
def test_members_that_have_lost_the_tag_are_no_strangers_and_cost_all_the_same(tags: dict[str, str]) -> None:
    surroundings = classify(instances=instance(**tags))
    assert surroundings.untagged == []
    assert [member.id for member in surroundings.members] == [INSTANCE]


@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
def test_an_instance_that_ends_is_left_out(state: str) -> None:
    surroundings = classify(instances=instance(state=state))
    assert (surroundings.untagged, surroundings.members) == ([], [])


def test_in_a_vpc_of_others_nothing_is_removable_and_the_command_takes_the_group_off() -> None:
    attached = interface(
        vpc=OTHER_VPC,
        Attachment={"InstanceId": INSTANCE, "DeleteOnTermination": True},
        Groups=[{"GroupId": GROUP}, {"GroupId": OTHER_GROUP}],
    )
    item = only(classify(instances=instance(OTHER_VPC), interfaces=attached))
    assert not item.is_removable
    assert item.command == (
        f"aws ec2 modify-network-interface-attribute --region us-east-1 --network-interface-id {INTERFACE} --groups "
        f"{OTHER_GROUP}"
    )
    free = only(classify(interfaces=interface(vpc=OTHER_VPC)))
    assert not free.is_removable and free.command == ""


ON_MEMBER = {"InstanceId": "i-own", "DeleteOnTermination": True}


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param(interface("Interface for NAT Gateway nat-0123456789abcdef9", Status="in-use"), id="NAT gateway"),
        pytest.param(
            interface("EFS mount target for fs-0123456789abcdef0 (fsmt-0123456789abcdef0)"), id="mount target"
        ),
        pytest.param(interface("VPC Endpoint Interface vpce-0123456789abcdef0"), id="endpoint"),
        pytest.param(interface(Attachment=ON_MEMBER, Status="in-use"), id="member"),
    ],
)
def test_interfaces_of_the_clusters_own_resources_are_left_out(listed: dict[str, Any]) -> None:
    assert classify(interfaces=listed).untagged == []


@pytest.mark.parametrize(
    ("listed", "owner", "command"),
    [
        pytest.param(
            interface(),
            "",
            f"aws ec2 delete-network-interface --region us-east-1 --network-interface-id {INTERFACE}",
            id="free",
        ),
        pytest.param(
            interface(Attachment={"InstanceId": "i-own", "DeleteOnTermination": False}, Status="in-use"),
            "",
            f"aws ec2 delete-network-interface --region us-east-1 --network-interface-id {INTERFACE}",
            id="attached by hand",
        ),
        pytest.param(
            interface("ELB app/theirs/0123456789abcdef", Status="in-use", RequesterManaged=True),
            "a load balancer, which has to be deleted",
            "aws elbv2 describe-load-balancers --region us-east-1",
            id="load balancer",
        ),
        pytest.param(
            interface("EFS mount target for fs-0123456789abcdef1 (fsmt-0123456789abcdef1)", RequesterManaged=True),
            "a mount target of fs-0123456789abcdef1",
            "aws efs delete-mount-target --region us-east-1 --mount-target-id fsmt-0123456789abcdef1",
            id="another mount target",
        ),
        pytest.param(
            interface("VPC Endpoint Interface vpce-0123456789abcdef1", RequesterManaged=True),
            "the VPC endpoint vpce-0123456789abcdef1",
            "aws ec2 delete-vpc-endpoints --region us-east-1 --vpc-endpoint-ids vpce-0123456789abcdef1",
            id="another endpoint",
        ),
        pytest.param(
            interface("AWS Lambda VPC ENI", Status="in-use", RequesterManaged=True),
            "another service of AWS",
            f"aws ec2 describe-network-interfaces --region us-east-1 --network-interface-ids {INTERFACE}",
            id="a service",
        ),
        pytest.param(
            interface(TagSet=tag_list({"deeplearning:cluster": "blue"})), "the cluster blue", "", id="another cluster"
        ),
    ],
)
def test_other_interfaces_are_listed_with_what_they_belong_to(
    listed: dict[str, Any], owner: str, command: str
) -> None:
    item = only(classify(interfaces=listed))
    assert (item.owner, item.command, item.is_removable) == (owner, command, not owner)


def test_an_id_of_another_form_than_awss_gets_no_command() -> None:
    item = only(classify(interfaces=interface(NetworkInterfaceId="eni-1; reboot")))
    assert item.command == "" and not item.is_removable


def gateway(state: str = "available", **tags: str) -> dict[str, Any]:
    return {
        "NatGatewayId": GATEWAY,
        "State": state,
        "VpcId": OWN_VPC,
        "NatGatewayAddresses": [{"AllocationId": ADDRESS}],
        "Tags": tag_list(tags),
    }


def test_a_nat_gateway_and_its_address() -> None:
    address = {"AllocationId": ADDRESS, "PublicIp": "198.51.100.1", "AssociationId": "eipassoc-0123456789abcdef0"}
    surroundings = classify(gateways=gateway(), addresses=address)
    assert [item.command for item in surroundings.untagged] == [
        f"aws ec2 delete-nat-gateway --region us-east-1 --nat-gateway-id {GATEWAY}",
        f"aws ec2 release-address --region us-east-1 --allocation-id {ADDRESS}",
    ]
    assert all(item.is_removable and item.vpc == OWN_VPC for item in surroundings.untagged)
    assert classify(gateways=gateway("deleting")).untagged == []
    of_machine = interface(Association={"AllocationId": ADDRESS}, Attachment=ON_MEMBER)
    (alone,) = classify(addresses=address, interfaces=of_machine).untagged
    assert alone.command.startswith(
        "aws ec2 disassociate-address --region us-east-1 --association-id eipassoc-0123456789abcdef0 && aws ec2 release"
    )
    of_own_gateway = interface("Interface for NAT Gateway nat-0123456789abcdef9", Association={"AllocationId": ADDRESS})
    (alone,) = classify(addresses=address, interfaces=of_own_gateway).untagged
    assert alone.command.startswith("aws ec2 release-address") and alone.vpc == OWN_VPC


def test_an_address_that_nothing_uses_has_only_its_name() -> None:
    address = {"AllocationId": ADDRESS, "PublicIp": "198.51.100.1", "Tags": tag_list({"Name": "red-nat"})}
    item = only(classify(addresses=address))
    assert (item.is_removable, item.note) == (True, "nothing uses it")
    assert item.command == f"aws ec2 release-address --region us-east-1 --allocation-id {ADDRESS}"
    assert classify(addresses={**address, "AssociationId": "eipassoc-0123456789abcdef0"}).untagged == []
    of_blue = tag_list({"Name": "red-nat", "deeplearning:cluster": "blue"})
    assert only(classify(addresses={**address, "Tags": of_blue})).owner == "the cluster blue"


def test_what_gets_the_tag_while_it_is_read_is_the_clusters() -> None:
    own = {"Tags": tag_list({"deeplearning:cluster": "red"})}
    assert classify(gateways=gateway(**{"deeplearning:cluster": "red"})).untagged == []
    assert classify(addresses={"AllocationId": ADDRESS, **own}).untagged == []
    assert classify(interfaces=interface(TagSet=own["Tags"])).untagged == []


@pytest.mark.parametrize("with_instance", [True, False])
def test_a_volume_that_goes_with_its_instance_is_not_deleted_by_itself(with_instance: bool) -> None:
    attachment = {"InstanceId": INSTANCE, "DeleteOnTermination": with_instance}
    volume = {"VolumeId": VOLUME, "VolumeType": "gp3", "Size": 100, "State": "in-use", "Attachments": [attachment]}
    _instance, item = classify(instances=instance(), volumes=volume).untagged
    assert item.is_removable is not with_instance
    assert bool(item.command) is not with_instance


def owned(*resources: Resource) -> ClusterResources:
    return ClusterResources("red", "123456789012", "us-east-1", resources)


def test_costs_include_everything_in_the_clusters_own_vpc_once() -> None:
    own = Resource("nat_gateway", "nat-0123456789abcdef9", state="available")
    tagged = Resource("instance", INSTANCE, ours=False, state="running", facts={"type": "g5.xlarge"})
    cases = [
        (["1 NAT gateway"], classify(instances=instance(OTHER_VPC))),
        (["2 NAT gateways"], classify(gateways=gateway())),
        (["1 NAT gateway"], classify(gateways=gateway(**{"deeplearning:cluster": "blue"}))),
        (["1 NAT gateway", "1 instance"], classify(instances=instance())),
        (["1 NAT gateway", "1 instance"], classify(instances=instance(group="red-workers"))),
    ]
    for expected, surroundings in cases:
        counted = untagged.with_untagged(owned(own), surroundings)
        assert [item["what"] for item in billed(counted.current, LIST)] == expected
    counted = untagged.with_untagged(owned(tagged), classify(instances=instance(cluster="red")))
    assert [item["what"] for item in billed(counted.current, LIST)] == ["1 instance"]


def test_lines_have_the_price_the_command_and_the_option() -> None:
    named = instance(Name="\x1b[31mworker\nred")
    lines = untagged_lines.lines(classify(instances=named, gateways=gateway()).untagged, LIST, "destroy.yml")
    assert len(lines) == 4 and not any("\n" in line or "\x1b" in line for line in lines)
    assert lines[1].startswith(f"  instance {INSTANCE} (") and f"running, in {OWN_VPC}, 1.01 USD an hour" in lines[1]
    assert f". By hand: aws ec2 terminate-instances --region us-east-1 --instance-ids {INSTANCE}" in lines[1]
    assert f"  NAT gateway {GATEWAY}, available, in {OWN_VPC}, 0.045 USD an hour. By hand: aws ec2" in lines[2]
    assert lines[3].endswith(f": destroy.yml -e destroy_also={INSTANCE},{GATEWAY}")
    other = classify(instances=instance(cluster="blue")).untagged
    assert untagged_lines.lines(other, LIST, "destroy.yml")[1:] == [
        f"  instance {INSTANCE}, running, in {OWN_VPC}, belongs to the cluster blue, 1.01 USD an hour"
    ]
    assert untagged_lines.lines([], LIST, "destroy.yml") == []
