"""The order in which a cluster goes, and what of it does not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils._estate import (
    DEAD,
    GOING,
    Estate,
    Thing,
    counted,
    health_of,
    remains,
)
from ansible_collections.deeplearning.aws.plugins.module_utils._estate_reading import (
    group_of,
    mount_target_of,
    thing_of,
    with_detached,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils._teardown import AFTER, PARTS, doomed, ready


def estate(*things: Thing) -> Estate:
    return Estate("c", "123456789012", "us-east-1", things)


WHOLE = estate(
    Thing("auto_scaling_group", "c-workers", "c-workers"),
    Thing("instance", "i-1"),
    Thing("launch_template", "lt-1"),
    Thing("placement_group", "pg-1"),
    Thing("key_pair", "key-1"),
    Thing("mount_target", "fsmt-1", facts={"file_system": "fs-1"}),
    Thing("file_system", "fs-1"),
    Thing("nat_gateway", "nat-1"),
    Thing("address", "eipalloc-1"),
    Thing("endpoint", "vpce-1"),
    Thing("subnet", "subnet-1"),
    Thing("route_table", "rtb-1"),
    Thing("internet_gateway", "igw-1"),
    Thing("security_group", "sg-efs", facts={"names": ["sg-members"]}),
    Thing("security_group", "sg-members", facts={"names": []}),
    Thing("vpc", "vpc-1"),
    Thing("instance_profile", "p"),
    Thing("role", "r"),
    Thing("bucket", "b"),
)


def order(whole: Estate, keep: bool = True) -> list[set[str]]:
    """Which go together, if all that can go now goes at once."""
    left, found = doomed(whole, keep), []
    while left:
        now = ready(left)
        assert now, f"stuck with {left}"
        found.append({thing.id for thing in now})
        left = [thing for thing in left if thing not in now]
    return found


def test_everything_goes_in_order_and_slow_things_at_once() -> None:
    assert order(WHOLE) == [
        {"c-workers", "nat-1", "vpce-1"},
        {"i-1", "key-1"},
        {"lt-1", "pg-1", "p", "b", "fsmt-1", "eipalloc-1"},
        {"r", "subnet-1", "igw-1", "sg-efs"},
        {"sg-members", "rtb-1"},
        {"vpc-1"},
    ]


def test_the_file_system_goes_only_if_it_is_not_kept() -> None:
    assert not any("fs-1" in together for together in order(WHOLE))
    assert any("fs-1" in together for together in order(WHOLE, keep=False))


@pytest.mark.parametrize("missing", [thing.id for thing in WHOLE.things])
def test_a_half_made_cluster_goes_too(missing: str) -> None:
    order(estate(*(thing for thing in WHOLE.things if thing.id != missing)), keep=False)


def test_nothing_is_asked_for_twice_and_the_dead_are_no_concern() -> None:
    things = [Thing("nat_gateway", "nat-1", phase=GOING), Thing("nat_gateway", "nat-0", phase=DEAD)]
    left = doomed(estate(*things, Thing("subnet", "subnet-1")), keep=True)
    assert [thing.id for thing in left] == ["nat-1", "subnet-1"]
    assert ready(left) == []


def test_what_others_have_made_stays() -> None:
    foreign = Thing("instance", "i-foreign", ours=False)
    assert doomed(estate(foreign), keep=False) == []
    assert remains(estate(foreign), keep=False) == [foreign]


def test_a_file_system_with_mount_targets_of_others_stays_even_if_it_need_not() -> None:
    theirs = Thing("mount_target", "fsmt-2", ours=False, facts={"file_system": "fs-1"})
    there = estate(*WHOLE.things, theirs)
    assert not {"fs-1", "fsmt-2"} & {thing.id for thing in doomed(there, keep=False)}
    assert {"fs-1", "fsmt-2"} <= {thing.id for thing in remains(there, keep=False)}


def test_groups_that_name_each_other_are_tried_all_the_same() -> None:
    one = Thing("security_group", "sg-1", facts={"names": ["sg-2"]})
    two = Thing("security_group", "sg-2", facts={"names": ["sg-1"]})
    assert ready([one, two]) == [one, two]


def test_each_part_is_of_known_kinds() -> None:
    assert frozenset().union(*PARTS.values()) == set(AFTER)


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
    found = mount_target_of(listed, on, OURS, SUBNETS)
    assert (found.kind, found.ours) == (kind, ours)


GROUPS, TAGGED = frozenset({"c-master", "c-workers"}), ("deeplearning:cluster", "c")


def instance(*tags: tuple[str, str]) -> Thing:
    listed = {"InstanceId": "i-1", "State": {"Name": "running"}, "Tags": [{"Key": k, "Value": v} for k, v in tags]}
    return thing_of("instance", listed, GROUPS)


def test_a_machine_with_our_tag_that_no_group_of_ours_launched_is_somebody_elses() -> None:
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
    detached, kept = with_detached([machine, Thing("launch_template", *template)], GROUPS)
    assert (detached.ours, kept.ours) == (ours, True)
    # While it is there its template stays, so that an interrupted run can be gone on with.
    going = ready(doomed(estate(detached, kept), keep=True))
    assert [thing.id for thing in going] == (["i-1"] if ours else [template[0]])


def test_a_detached_machine_that_another_group_has_taken_is_that_ones() -> None:
    machine = instance(TAGGED, ("aws:ec2launchtemplate:id", "lt-1"), ("aws:autoscaling:groupName", "others"))
    taken, _unused = with_detached([machine, Thing("launch_template", "lt-1", "c-workers")], GROUPS)
    assert not taken.ours


def group(what: str, most: int, serving: int, desired: int | None = None, coming: int = 0, **more: Any) -> Thing:
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
    return group_of(listed | more)


MASTER = group("master", 1, 1)


@pytest.mark.parametrize(
    ("things", "state", "got"),
    [
        ([], "absent", 0),
        ([Thing("file_system", "fs-1")], "absent", 0),
        ([Thing("instance", "i-1", phase=DEAD)], "absent", 0),
        ([Thing("vpc", "vpc-1")], "creating", 0),
        ([MASTER], "creating", 1),
        ([MASTER, group("workers", 5, 5)], "ready", 6),
        ([MASTER, group("workers", 5, 3, 3)], "degraded", 4),
        ([MASTER, group("workers", 5, 3, 5, 2)], "creating", 4),
        ([MASTER, group("workers", 0, 0)], "ready", 1),
        ([MASTER, group("workers", 1, 1), Thing("nat_gateway", "nat-1", state="pending")], "creating", 2),
        ([group("master", 1, 0, 0), group("workers", 5, 0, 0)], "failed", 0),
        ([group("master", 1, 0, Status="Delete in progress"), group("workers", 5, 0)], "failed", 0),
    ],
)
def test_the_state_in_one_word(things: list[Thing], state: str, got: int) -> None:
    found = health_of(estate(*things))
    assert (found.state, found.got) == (state, got)


def test_things_are_counted_in_words() -> None:
    things = [Thing("nat_gateway", "nat-1"), Thing("instance", "i-1"), Thing("instance", "i-2"), Thing("snapshot", "s")]
    assert counted(things) == ["2 instances", "1 NAT gateway", "1 snapshot"]
