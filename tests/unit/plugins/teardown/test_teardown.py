"""The order in which a cluster goes, and what of it does not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.kinds import EVERYTHING, IN_ZONE
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import (
    group_of,
    mount_target_of,
    resource_of,
    with_detached,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import (
    DEAD,
    GOING,
    ClusterResources,
    Resource,
    count_by_kind,
    health_of,
    leftovers,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.teardown.teardown import Deleting, ready, to_delete

from tests.unit.conftest import Account


def owned(*resources: Resource) -> ClusterResources:
    return ClusterResources("c", "123456789012", "us-east-1", resources)


WHOLE = owned(
    Resource("auto_scaling_group", "c-workers", "c-workers"),
    Resource("instance", "i-1"),
    Resource("launch_template", "lt-1"),
    Resource("placement_group", "pg-1"),
    Resource("key_pair", "key-1"),
    Resource("mount_target", "fsmt-1", facts={"file_system": "fs-1"}),
    Resource("file_system", "fs-1"),
    Resource("nat_gateway", "nat-1"),
    Resource("address", "eipalloc-1"),
    Resource("endpoint", "vpce-1"),
    Resource("subnet", "subnet-1"),
    Resource("route_table", "rtb-1"),
    Resource("internet_gateway", "igw-1"),
    Resource("security_group", "sg-efs", facts={"names": ["sg-members"]}),
    Resource("security_group", "sg-members", facts={"names": []}),
    Resource("vpc", "vpc-1"),
    Resource("instance_profile", "p"),
    Resource("role", "r"),
    Resource("bucket", "b"),
)


def order(whole: ClusterResources, keep: bool = True) -> list[set[str]]:
    """Which go together, if all that can go now goes at once."""
    left, actual = to_delete(whole, keep), []
    while left:
        now = ready(left)
        assert now, f"stuck with {left}"
        actual.append({resource.id for resource in now})
        left = [resource for resource in left if resource not in now]
    return actual


def test_everything_goes_in_order_and_slow_things_at_once() -> None:
    assert order(WHOLE) == [
        {"c-workers", "nat-1", "vpce-1"},
        {"i-1", "key-1"},
        {"lt-1", "pg-1", "p", "fsmt-1", "eipalloc-1"},
        {"r", "subnet-1", "igw-1", "sg-efs"},
        {"sg-members", "rtb-1"},
        {"vpc-1"},
        # It has the lock.
        {"b"},
    ]


def test_the_file_system_goes_only_if_it_is_not_kept() -> None:
    assert not any("fs-1" in together for together in order(WHOLE))
    assert any("fs-1" in together for together in order(WHOLE, keep=False))


@pytest.mark.parametrize("missing", [resource.id for resource in WHOLE.resources])
def test_a_half_made_cluster_goes_too(missing: str) -> None:
    order(owned(*(resource for resource in WHOLE.resources if resource.id != missing)), keep=False)


def test_nothing_is_asked_for_twice_and_the_dead_are_no_concern() -> None:
    resources = [Resource("nat_gateway", "nat-1", phase=GOING), Resource("nat_gateway", "nat-0", phase=DEAD)]
    left = to_delete(owned(*resources, Resource("subnet", "subnet-1")), keep=True)
    assert [resource.id for resource in left] == ["nat-1", "subnet-1"]
    assert ready(left) == []


def test_what_others_have_made_stays() -> None:
    foreign = Resource("instance", "i-foreign", ours=False)
    assert to_delete(owned(foreign), keep=False) == []
    assert leftovers(owned(foreign), keep=False) == [foreign]


def test_a_file_system_with_mount_targets_of_others_stays_even_if_it_need_not() -> None:
    theirs = Resource("mount_target", "fsmt-2", ours=False, facts={"file_system": "fs-1"})
    existing = owned(*WHOLE.resources, theirs)
    assert not {"fs-1", "fsmt-2"} & {resource.id for resource in to_delete(existing, keep=False)}
    assert {"fs-1", "fsmt-2"} <= {resource.id for resource in leftovers(existing, keep=False)}


def test_groups_that_name_each_other_are_tried_all_the_same() -> None:
    one = Resource("security_group", "sg-1", facts={"names": ["sg-2"]})
    two = Resource("security_group", "sg-2", facts={"names": ["sg-1"]})
    assert ready([one, two]) == [one, two]


def test_only_what_lies_in_the_zone_is_removed_to_try_another_one() -> None:
    assert {resource.kind for resource in to_delete(WHOLE, False, IN_ZONE)} == IN_ZONE & {
        resource.kind for resource in WHOLE.resources
    }
    assert EVERYTHING >= IN_ZONE


@pytest.mark.parametrize("main_first", [True, False])
def test_a_main_route_table_goes_with_its_vpc_and_not_by_itself(main_first: bool) -> None:
    explicit = {"RouteTableAssociationId": "rtbassoc-1", "SubnetId": "subnet-1", "Main": False}
    main = {"RouteTableAssociationId": "rtbassoc-0", "Main": True}
    both = {"RouteTableId": "rtb-1", "Associations": [main, explicit][:: 1 if main_first else -1]}
    listed = [both, {"RouteTableId": "rtb-2", "Associations": [explicit]}, {"RouteTableId": "rtb-3"}]
    tables = [resource_of("route_table", item, GROUPS) for item in listed]
    assert [resource.id for resource in to_delete(owned(*tables), keep=False)] == ["rtb-2", "rtb-3"]
    # AWS refuses to remove the association of a main route table.
    assert [table.facts["associations"] for table in tables] == [["rtbassoc-1"], ["rtbassoc-1"], []]


def test_an_address_in_use_is_disassociated_before_it_is_released(aws: Account) -> None:
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    interface = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]["NetworkInterfaceId"]
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    ec2.associate_address(AllocationId=address, NetworkInterfaceId=interface)
    (listed,) = ec2.describe_addresses()["Addresses"]
    Deleting(Aws("us-east-1")).delete(resource_of("address", listed, GROUPS))
    assert ec2.describe_addresses()["Addresses"] == []


OURS, SUBNETS = frozenset({"sg-ours"}), frozenset({"subnet-ours"})


@pytest.mark.parametrize(
    ("on", "subnet", "kind", "ours"),
    [
        (["sg-ours"], "subnet-given", "mount_target", True),
        (["sg-ours", "sg-theirs"], "subnet-given", "mount_target_access", True),
        (["sg-ours", "sg-theirs"], "subnet-ours", "mount_target", True),
        (["sg-theirs"], "subnet-given", "mount_target", False),
    ],
)
def test_whose_a_mount_target_is(on: list[str], subnet: str, kind: str, ours: bool) -> None:
    listed = {"MountTargetId": "fsmt-1", "FileSystemId": "fs-1", "LifeCycleState": "available", "SubnetId": subnet}
    actual = mount_target_of(listed, on, OURS, SUBNETS)
    assert (actual.kind, actual.ours) == (kind, ours)


GROUPS, TAGGED = frozenset({"c-master", "c-workers"}), ("deeplearning:cluster", "c")


def instance(*tags: tuple[str, str]) -> Resource:
    listed = {"InstanceId": "i-1", "State": {"Name": "running"}, "Tags": [{"Key": k, "Value": v} for k, v in tags]}
    return resource_of("instance", listed, GROUPS)


def test_a_machine_with_our_tag_from_another_launch_is_foreign() -> None:
    assert not instance(TAGGED).ours
    assert not instance(TAGGED, ("aws:autoscaling:groupName", "others")).ours
    assert instance(TAGGED, ("aws:autoscaling:groupName", "c-workers")).ours


@pytest.mark.parametrize(
    ("made_by", "template", "ours"),
    [
        ("lt-1", ("lt-1", "c-workers"), True),
        ("lt-2", ("lt-1", "c-workers"), False),
        # Anybody may put our tag on a template; only one of a name can be.
        ("lt-1", ("lt-1", "c-others"), False),
        ("", ("lt-1", "c-workers"), False),
    ],
)
def test_a_machine_that_was_detached_from_its_group_goes_with_the_cluster(
    made_by: str, template: tuple[str, str], ours: bool
) -> None:
    machine = instance(TAGGED, ("aws:ec2launchtemplate:id", made_by)) if made_by else instance(TAGGED)
    detached, kept = with_detached([machine, Resource("launch_template", *template)], GROUPS)
    assert (detached.ours, kept.ours) == (ours, True)
    # While it is there its template stays, so that an interrupted run can be gone on with.
    going = ready(to_delete(owned(detached, kept), keep=True))
    assert [resource.id for resource in going] == (["i-1"] if ours else [template[0]])


def test_a_detached_machine_that_another_group_has_taken_is_that_ones() -> None:
    machine = instance(TAGGED, ("aws:ec2launchtemplate:id", "lt-1"), ("aws:autoscaling:groupName", "others"))
    taken, _unused = with_detached([machine, Resource("launch_template", "lt-1", "c-workers")], GROUPS)
    assert not taken.ours


def group(what: str, most: int, serving: int, desired: int | None = None, coming: int = 0, **more: Any) -> Resource:
    machines = [
        {"InstanceId": f"i-{n}", "LifecycleState": "InService", "HealthStatus": "Healthy"} for n in range(serving)
    ]
    machines += [{"InstanceId": f"i-p{n}", "LifecycleState": "Pending"} for n in range(coming)]
    listed = {
        "AutoScalingGroupName": f"c-{what}",
        "MaxSize": most,
        "DesiredCapacity": most if desired is None else desired,
        "Instances": machines,
    }
    return group_of(listed | more, {}, ())


MASTER = group("master", 1, 1)


@pytest.mark.parametrize(
    ("resources", "state", "in_service"),
    [
        ([], "absent", 0),
        ([Resource("file_system", "fs-1")], "absent", 0),
        ([Resource("instance", "i-1", phase=DEAD)], "absent", 0),
        ([Resource("vpc", "vpc-1")], "creating", 0),
        ([MASTER], "creating", 1),
        ([MASTER, group("workers", 5, 5)], "ready", 6),
        ([MASTER, group("workers", 5, 3, 3)], "degraded", 4),
        ([MASTER, group("workers", 5, 3, 5, 2)], "creating", 4),
        ([MASTER, group("workers", 0, 0)], "ready", 1),
        ([MASTER, group("workers", 1, 1), Resource("nat_gateway", "nat-1", state="pending")], "creating", 2),
        ([group("master", 1, 0, 0), group("workers", 5, 0, 0)], "failed", 0),
        ([group("master", 1, 0, Status="Delete in progress"), group("workers", 5, 0)], "failed", 0),
    ],
)
def test_the_state_in_one_word(resources: list[Resource], state: str, in_service: int) -> None:
    actual = health_of(owned(*resources))
    assert (actual.state, actual.in_service) == (state, in_service)


def test_things_are_counted_in_words() -> None:
    resources = [
        Resource("nat_gateway", "nat-1"),
        Resource("instance", "i-1"),
        Resource("instance", "i-2"),
        Resource("snapshot", "s"),
    ]
    assert count_by_kind(resources) == ["2 instances", "1 NAT gateway", "1 snapshot"]
