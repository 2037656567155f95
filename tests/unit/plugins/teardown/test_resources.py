"""The state of a cluster with its reasons, and what is billed of it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import (
    DEAD,
    GOING,
    ClusterResources,
    Health,
    Resource,
    Shortage,
    count_by_kind,
    health_of,
    is_of_emr,
    leftovers,
    retained,
)


def owned(*resources: Resource) -> ClusterResources:
    return ClusterResources("c", "123456789012", "us-east-1", resources)


def group(what: str, most: int, in_service: int, desired: int | None = None, coming: int = 0, **more: Any) -> Resource:
    facts = {
        "most": most,
        "in_service": [f"i-{what}{number}" for number in range(in_service)],
        "desired": most if desired is None else desired,
        "coming": coming,
    }
    return Resource("auto_scaling_group", f"c-{what}", f"c-{what}", facts=facts, **more)


MASTER = group("master", 1, 1)
NAT = Resource("nat_gateway", "nat-1", state="pending")
TARGET = Resource("mount_target", "fsmt-1", state="creating")
NO_CAPACITY = Shortage(["AWS has none."])


@pytest.mark.parametrize(
    ("resources", "shortages", "health"),
    [
        ([], {}, Health("absent", 0, 0)),
        ([Resource("vpc", "vpc-1", ours=False)], {}, Health("absent", 0, 0)),
        ([Resource("image", "ami-1"), Resource("file_system", "fs-1")], {}, Health("absent", 0, 0)),
        ([group("master", 1, 1, ours=False)], {}, Health("absent", 0, 0)),
        ([MASTER, group("workers", 2, 2)], {}, Health("ready", 3, 3)),
        (
            [MASTER, group("workers", 2, 2), group("theirs", 9, 9, ours=False)],
            {},
            Health("ready", 3, 3),
        ),
        (
            [Resource("vpc", "vpc-1")],
            {},
            Health("creating", 0, 0, ["there is no group of master and no group of workers yet"]),
        ),
        ([MASTER], {}, Health("creating", 1, 1, ["there is no group of workers yet"])),
        (
            [MASTER, group("workers", 2, 2, phase=GOING)],
            {},
            Health("failed", 3, 3, ["its machines are being removed"]),
        ),
        (
            [MASTER, group("workers", 2, 1, coming=1), NAT, TARGET],
            {"c-workers": Shortage(configuring=["c-workers 1/2 ready"])},
            Health(
                "creating",
                3,
                2,
                [
                    "1 of 3 machines are not in service yet",
                    "NAT gateway nat-1 is pending",
                    "mount target fsmt-1 is creating",
                    "c-workers 1/2 ready",
                ],
            ),
        ),
        (
            [MASTER, group("workers", 2, 2), TARGET],
            {},
            Health("creating", 3, 3, ["mount target fsmt-1 is creating"]),
        ),
        ([MASTER, group("workers", 2, 1)], {}, Health("creating", 3, 2, ["1 of 3 machines are not in service yet"])),
        ([MASTER, group("workers", 2, 1)], {"c-workers": NO_CAPACITY}, Health("degraded", 3, 2, ["AWS has none."])),
        ([MASTER, group("workers", 2, 1, 1)], {}, Health("degraded", 3, 2, ["1 of 3 machines are missing"])),
        # A machine that failed and keeps its place is none that comes.
        (
            [MASTER, group("workers", 2, 1, coming=1)],
            {"c-workers": Shortage(["It failed."], failed=1)},
            Health("degraded", 3, 2, ["It failed."]),
        ),
        (
            [group("master", 1, 0, 0), group("workers", 2, 2)],
            {},
            Health("failed", 3, 2, ["the master is not there"]),
        ),
        (
            [group("master", 1, 0), group("workers", 2, 2)],
            {"c-master": NO_CAPACITY},
            Health("failed", 3, 2, ["AWS has none."]),
        ),
        (
            [group("master", 0, 0), group("workers", 0, 0)],
            {},
            Health(
                "failed",
                0,
                0,
                [
                    "its groups are set to 0 machines, as cluster_ttl_hours and cluster_idle_minutes do; its file "
                    "system stays, and site.yml brings the machines back"
                ],
            ),
        ),
    ],
)
def test_the_state_has_its_reasons(resources: list[Resource], shortages: dict[str, Shortage], health: Health) -> None:
    assert health_of(owned(*resources), shortages) == health


def emr(state: str, in_service: int, phase: str = "live", reason: str = "") -> Resource:
    facts = {"most": 3, "in_service": [f"i-{number}" for number in range(in_service)], "reason": reason}
    return Resource("emr_cluster", "j-1", "c", state, phase, facts=facts)


SERVICE = Resource("role", "c-us-east-1-emr")


@pytest.mark.parametrize(
    ("resources", "health"),
    [
        ([emr("waiting", 3)], Health("ready", 3, 3)),
        (
            [emr("running", 2), SERVICE],
            Health("creating", 3, 2, ["the EMR cluster is running, and 1 of 3 machines are not in service yet"]),
        ),
        (
            [emr("bootstrapping", 3)],
            Health("creating", 3, 3, ["the EMR cluster is bootstrapping, and 0 of 3 machines are not in service yet"]),
        ),
        (
            [emr("starting", 0)],
            Health("creating", 3, 0, ["the EMR cluster is starting, and 3 of 3 machines are not in service yet"]),
        ),
        ([emr("terminating", 1, GOING)], Health("failed", 3, 1, ["EMR is terminating it"])),
        ([emr("terminating", 1, GOING, "By request")], Health("failed", 3, 1, ["By request"])),
        (
            [SERVICE],
            Health(
                "failed",
                0,
                0,
                [
                    "there is no EMR cluster: it is not created yet, or has ended, as it does after "
                    "cluster_emr_idle_minutes"
                ],
            ),
        ),
    ],
)
def test_the_state_of_an_emr_cluster(resources: list[Resource], health: Health) -> None:
    assert health_of(owned(*resources)) == health
    assert is_of_emr(owned(*resources))


def test_a_cluster_of_groups_is_none_of_emr() -> None:
    assert not is_of_emr(owned(MASTER, Resource("role", "c-us-east-1-master")))


def test_what_stays_and_what_must_go() -> None:
    system, image = Resource("file_system", "fs-1"), Resource("image", "ami-1")
    theirs, dead = Resource("file_system", "fs-2", ours=False), Resource("image", "ami-2", phase=DEAD)
    vpc = Resource("vpc", "vpc-1")
    all_of_it = owned(system, image, theirs, dead, vpc)
    assert retained(all_of_it, keep=True) == [system, image]
    assert retained(all_of_it, keep=False) == [image]
    assert leftovers(all_of_it, keep=True) == [theirs, vpc]
    assert leftovers(all_of_it, keep=False) == [system, theirs, vpc]
    assert all_of_it.current == [system, image, theirs, vpc] and all_of_it.of_kind("image") == [image]


def test_a_resource_is_found_by_its_name() -> None:
    named, dead = Resource("address", "e-1", "c-master"), Resource("vpc", "vpc-1", "c-vpc", phase=DEAD)
    everything = owned(Resource("address", "e-0", "master"), named, dead)
    assert everything.find_by_name("address", "master") == named
    assert everything.find_by_name("address", "workers") is None and everything.find_by_name("vpc", "vpc") is None


@pytest.mark.parametrize(
    ("resource", "costs", "words"),
    [
        (Resource("instance", "i-1", "c-master", "running"), "by the second", "instance i-1 (c-master)"),
        (Resource("instance", "i-1", state="stopped"), "", "instance i-1"),
        (Resource("instance", "i-1", state="shutting-down"), "", "instance i-1"),
        (Resource("nat_gateway", "nat-1", phase=DEAD), "", "NAT gateway nat-1"),
        (Resource("bucket", "b", "b"), "by the gigabyte", "bucket b"),
        (Resource("vpc", "vpc-1"), "", "VPC vpc-1"),
        (Resource("network_acl", "acl-1", "x"), "", "network acl acl-1 (x)"),
    ],
)
def test_a_resource_in_words_and_how_it_is_billed(resource: Resource, costs: str, words: str) -> None:
    assert (resource.costs, resource.describe()) == (costs, words)
    assert resource.as_dict() == {
        "kind": resource.kind,
        "id": resource.id,
        "name": resource.name,
        "state": resource.state,
        "ours": True,
        "costs": costs,
    }


def test_kinds_without_words_of_their_own_are_counted_last() -> None:
    kinds = ["network_acl", "vpc", "image", "vpc", "network_acl", "dhcp_options"]
    assert count_by_kind(Resource(kind, str(number)) for number, kind in enumerate(kinds)) == [
        "2 VPCs",
        "1 image",
        "1 dhcp options",
        "2 network acl",
    ]
