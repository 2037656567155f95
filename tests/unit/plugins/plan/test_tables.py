"""Tables of the plan: what images show, which quotas count, ways out of a network, and the plan as text."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
from ansible_collections.deeplearning.aws.plugins.filter.core import gpu_tables
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import (
    changes,
    images,
    machines,
    network,
    planner,
    prices,
    quotas,
)
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import (
    facts as plan_facts,
)
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.facts import AccountFacts, EmrFacts, ImageFacts
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.offers import Price
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.type_suggestions import suggest

from tests.unit.plugins.plan.facts_kit import (
    FACTS,
    IMAGE,
    PRIVATE,
    PUBLIC,
    SETTINGS,
    TYPE,
    VPC,
    ZONES,
    cluster,
    in_vpc,
    texts,
)
from tests.unit.prices import hourly


@pytest.mark.parametrize(
    ("name", "user", "boots", "own_python", "prometheus"),
    [
        ("Deep Learning AMI (Ubuntu 22.04)", "ubuntu", True, False, True),
        ("Ubuntu 24.04", "ubuntu", True, True, True),
        ("Ubuntu 26.04", "ubuntu", False, False, True),
        ("Ubuntu 20.04", "ubuntu", False, False, True),
        ("debian-11-amd64", "admin", False, False, True),
        ("debian-12-amd64", "admin", True, True, True),
        ("debian-13-amd64", "admin", True, True, True),
        ("Deep Learning AMI (Amazon Linux 2023)", "ec2-user", True, False, False),
        ("Amazon Linux 2", "ec2-user", False, False, False),
        ("al2023-ami-2023.5", "ec2-user", True, False, False),
        ("amzn2-ami-hvm", "ec2-user", False, False, False),
        ("RHEL-9.4_HVM", "ec2-user", True, False, True),
        ("RHEL-10.0", "ec2-user", True, True, True),
        ("RHEL-8.9", "ec2-user", False, False, True),
        ("Rocky-9-EC2", "rocky", True, False, True),
        ("AlmaLinux OS 9", "ec2-user", True, False, True),
        ("CentOS Stream 9", "centos", True, False, True),
        ("Red Hat Enterprise Linux", "ec2-user", False, False, True),
        ("suse-sles-15", "ec2-user", False, False, True),
        ("Fedora-Cloud-41", "fedora", False, False, True),
    ],
)
def test_what_a_name_shows(name: str, user: str, boots: bool, own_python: bool, prometheus: bool) -> None:
    for image in ({"Name": name}, {"Name": "mine", "Description": f"made from {name}"}):
        pythons = (images.matches(image, images.NEW_PYTHON), images.matches(image, images.OWN_NEW_PYTHON))
        shown = (*pythons, not images.is_amazon_linux(image))
        assert (images.user_of(image), *shown) == (user, boots, own_python, prometheus)
    tagged = {"Name": name, "Tags": [{"Key": "deeplearning:user", "Value": "me"}]}
    assert images.user_of(tagged) == "me"


def test_families_are_those_of_the_newest_amis() -> None:
    path = "/aws/service/deeplearning/ami/x86_64"
    names = [f"{path}/b/latest/ami-id", f"{path}/a/latest/ami-id", f"{path}/a/latest/ami-id", f"{path}/a/1.0/ami-id"]
    assert images.families([*names, f"{path}/c/latest/ami-id/more", "/other/x86_64/d/latest/ami-id"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("devices", "size"),
    [
        ([], 0),
        (None, 0),
        (
            [
                {"DeviceName": "/dev/sdb", "Ebs": {"VolumeSize": 9}},
                {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75}},
            ],
            75,
        ),
        ([{"DeviceName": "/dev/sda1"}], 0),
        ([{"DeviceName": "/dev/sda1", "Ebs": {}}], 0),
    ],
)
def test_the_root_volume_of_an_image(devices: Any, size: int) -> None:
    assert images.root_gib({"RootDeviceName": "/dev/sda1", "BlockDeviceMappings": devices}) == size


@pytest.mark.parametrize(
    ("kind", "on_demand", "spot"),
    [
        ("g6.xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("vt1.3xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("p4d.24xlarge", "L-417A185B", "L-7212CCBC"),
        ("p5.48xlarge", "L-417A185B", "L-C4BD4855"),
        ("p5en.48xlarge", "L-417A185B", "L-C4BD4855"),
        ("p6-b200.48xlarge", "L-417A185B", ""),
        ("dl1.24xlarge", "L-6E869C2A", "L-85EED4F7"),
        ("f1.2xlarge", "L-74FC7D96", "L-88CF9481"),
        ("inf2.xlarge", "L-1945791B", "L-B5D1601B"),
        ("trn1.2xlarge", "L-2C3B7624", "L-6B0D517C"),
        ("x1.16xlarge", "L-7295265B", "L-E3A00192"),
        ("hpc7a.12xlarge", "L-F7808C92", ""),
        ("m5.xlarge", "L-1216C47A", "L-34B43A08"),
    ],
)
def test_the_quotas_of_a_family(kind: str, on_demand: str, spot: str) -> None:
    assert (quotas.code_of(kind, spot=False), quotas.code_of(kind, spot=True)) == (on_demand, spot)


def test_machines_that_are_not_wanted_need_no_quota() -> None:
    counts = [quotas.MachineCount("g5.xlarge", 4, False, 0, 0), quotas.MachineCount("hpc7a.12xlarge", 4, True, 1, 1)]
    assert quotas.needs(counts) == {}
    settings = cluster(worker_count=3, spot=True, worker_min=2)
    master, workers = quotas.machine_counts(settings, {"g5.xlarge": TYPE})
    assert master == ("g5.xlarge", 4, False, 1, 1) and workers == ("g5.xlarge", 4, True, 2, 3)
    assert quotas.machine_counts(settings, {}) == []


def test_instances_without_options_count_as_one_vcpu() -> None:
    assert quotas.vcpus({}) == 1 and quotas.vcpus({"CpuOptions": {"CoreCount": 3}}) == 3
    assert quotas.vcpus({"CpuOptions": {"ThreadsPerCore": 2}}) == 2


@pytest.mark.parametrize(
    ("limit", "in_use", "problem"),
    [(12, 0, None), (11.9, 0, False), (8, 0, False), (7, 0, True), (12, 5, True), (3, 5, True)],
)
def test_a_quota_that_is_too_small(limit: float, in_use: int, problem: bool | None) -> None:
    quota = {"QuotaName": "G", "QuotaCode": "L-1", "Value": limit}
    findings = list(quotas.check("us-east-1", quota, (8, 12), in_use))
    assert [finding.is_problem for finding in findings] == ([] if problem is None else [problem])


def test_the_quotas_of_the_plan_count_what_others_use() -> None:
    others = [{"InstanceType": "g5.xlarge", "CpuOptions": {"CoreCount": 2, "ThreadsPerCore": 2}}]
    (quota,) = planner.resolve(replace(FACTS, other_instances=others), cluster(worker_count=2))["quotas"]
    assert quota == {"code": "L-DB2E81BA", "name": "G and VT", "limit": 64, "used": 4, "need": 12}
    assert planner.resolve(replace(FACTS, other_instances=None), cluster())["quotas"] == []
    assert planner.resolve(replace(FACTS, quotas={}), cluster())["quotas"] == []


# Ways out of a network


def route(**target: str) -> dict[str, Any]:
    return {"DestinationCidrBlock": "0.0.0.0/0", **target}


@pytest.mark.parametrize(
    ("routes", "target"),
    [
        ([route(GatewayId="igw-1")], "igw-1"),
        ([route(NatGatewayId="nat-1")], "nat-1"),
        ([route(TransitGatewayId="tgw-1")], "tgw-1"),
        ([route(NetworkInterfaceId="eni-1")], "eni-1"),
        ([route(VpcPeeringConnectionId="pcx-1")], "pcx-1"),
        ([route(CoreNetworkArn="arn:x")], "elsewhere"),
        ([route(GatewayId="igw-1", State="active")], "igw-1"),
        ([route(GatewayId="igw-1", State="blackhole"), route(NatGatewayId="nat-1")], "nat-1"),
        ([{"DestinationCidrBlock": "10.0.0.0/8", "GatewayId": "tgw-1"}], ""),
        ([], ""),
    ],
)
def test_where_a_default_route_leads(routes: list[dict[str, Any]], target: str) -> None:
    own = {"Associations": [{"SubnetId": "subnet-1"}], "Routes": routes}
    other = {"Associations": [{"SubnetId": "subnet-2"}], "Routes": [route(GatewayId="igw-9")]}
    main = {"Associations": [{"Main": True}], "Routes": [route(GatewayId="igw-8")]}
    for tables in ([own, other, main], [main, other, own]):
        assert network.default_route_target("subnet-1", tables) == target
    assert network.default_route_target("subnet-3", [own, main, other]) == "igw-8"


@pytest.mark.parametrize(
    ("vpc", "blocks"),
    [
        ({"CidrBlock": "10.0.0.0/16"}, ["10.0.0.0/16"]),
        ({}, []),
        (
            {
                "CidrBlock": "10.0.0.0/16",
                "CidrBlockAssociationSet": [
                    {"CidrBlock": "10.0.0.0/16", "CidrBlockState": {"State": "associated"}},
                    {"CidrBlock": "10.1.0.0/16", "CidrBlockState": {"State": "disassociating"}},
                    {"CidrBlock": "10.2.0.0/16"},
                ],
            },
            ["10.0.0.0/16", "10.2.0.0/16"],
        ),
    ],
)
def test_the_blocks_of_a_vpc(vpc: dict[str, Any], blocks: list[str]) -> None:
    assert network.cidrs_in_use(vpc) == blocks


def test_the_vpc_of_the_plan() -> None:
    own = network.vpc_of_plan(replace(FACTS, vpcs=[{"VpcId": VPC, "CidrBlock": "10.0.0.0/16"}]), cluster())
    assert (own["external"], own["id"], own["cidrs"], own["subnets"]) == (False, VPC, ["10.0.0.0/16"], {})
    assert (own["public_cidr"], own["private_cidr"]) == ("10.0.0.0/17", "10.0.128.0/17")


def test_the_users_vpc_in_the_plan() -> None:
    assert network.vpc_of_plan(in_vpc(), cluster(**SETTINGS)) == {
        **{"external": True, "id": VPC, "cidr": "10.9.0.0/16", "cidrs": ["10.9.0.0/16"]},
        **{"public_cidr": "", "private_cidr": ""},
        "subnets": {ZONES[0]: {"public": PUBLIC, "private": PRIVATE}},
    }
    unknown = network.vpc_of_plan(replace(FACTS, vpcs=None), cluster(**SETTINGS))
    assert (unknown["id"], unknown["cidr"], unknown["cidrs"], unknown["subnets"]) == (VPC, "", [], {})


EFS = "fs-0123456789abcdef0"


def target(vpc: str = VPC, zone: str = ZONES[0]) -> dict[str, Any]:
    return {
        "MountTargetId": "fsmt-1",
        "SubnetId": "subnet-1",
        "VpcId": vpc,
        "AvailabilityZoneName": zone,
        "IpAddress": "10.0.0.9",
    }


def with_file_system(*targets: dict[str, Any], state: str = "available", **system: Any) -> AccountFacts:
    systems = [{"FileSystemId": EFS, "LifeCycleState": state, **system}]
    return replace(
        FACTS, file_systems=systems, mount_targets=list(targets), vpcs=[{"VpcId": VPC, "CidrBlock": "10.0.0.0/16"}]
    )


def test_the_file_system_of_the_plan() -> None:
    facts = with_file_system(
        target(), {"MountTargetId": "fsmt-2", "SubnetId": "subnet-2"}, AvailabilityZoneName=ZONES[1]
    )
    assert network.file_system_of_plan(facts, cluster(efs_id=EFS)) == {
        "id": EFS,
        "external": True,
        "zone": ZONES[1],
        "throughput": "",
        "mount_targets": [
            {"id": "fsmt-1", "zone": ZONES[0], "subnet_id": "subnet-1", "address": "10.0.0.9"},
            {"id": "fsmt-2", "zone": "", "subnet_id": "subnet-2", "address": ""},
        ],
    }
    empty = {"id": "", "external": False, "zone": "", "throughput": "elastic", "mount_targets": []}
    assert network.file_system_of_plan(FACTS, cluster()) == empty


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (with_file_system(target()), ""),
        (with_file_system(target(), state="updating"), ""),
        (with_file_system({**target(), "VpcId": ""}), ""),
        (with_file_system(target(), state="creating"), f"cluster_efs_id is {EFS}: the file system is creating and not"),
        (
            with_file_system(target(), target("vpc-9"), target("vpc-8")),
            f"The file system {EFS} has mount targets in vpc-8, vpc-9, and the cluster is in {VPC}: it can have them "
            "in one VPC only. Make the cluster in that VPC (-e cluster_vpc_id=vpc-8 and its subnets), or delete them.",
        ),
        (
            replace(with_file_system(target()), vpcs=[]),
            f"has mount targets in {VPC}, and the cluster gets a network of its own: it can",
        ),
    ],
)
def test_a_file_system_that_cannot_be_used(facts: AccountFacts, problem: str) -> None:
    problems = texts(facts, efs_id=EFS)
    assert [problem in text for text in problems] == ([True] if problem else [])


def test_file_systems_with_the_tag_are_named_in_order() -> None:
    facts = replace(FACTS, file_systems=[{"FileSystemId": name} for name in ("fs-2", "fs-1")])
    (problem,) = texts(facts)
    assert problem.startswith("The file systems fs-1, fs-2 all have") and "(-e cluster_efs_id=fs-1)" in problem
    assert "aws efs describe-file-systems --region us-east-1. site.yml never deletes a file system." in problem


# Zones

LIMITED = [{"ZoneName": ZONES[0], "ZoneId": "use1-az3"}, {"ZoneName": ZONES[1], "ZoneId": "use1-az1"}]


@pytest.mark.parametrize(
    ("facts", "settings", "zones"),
    [
        (FACTS, {}, list(ZONES)),
        (FACTS, {"availability_zones": [ZONES[1], ZONES[0]]}, [ZONES[1], ZONES[0]]),
        (replace(FACTS, zones=[{"ZoneName": zone} for zone in reversed(ZONES)]), {}, list(ZONES)),
        (replace(FACTS, zones=LIMITED), {}, [ZONES[1], ZONES[0]]),
        (replace(FACTS, zones=LIMITED), {"availability_zones": list(ZONES)}, list(ZONES)),
        (replace(FACTS, offers=[{"InstanceType": "g5.xlarge", "Location": ZONES[1]}]), {}, [ZONES[1]]),
        (replace(FACTS, offers=None), {}, []),
        (replace(FACTS, zones=None), {}, []),
        (
            replace(FACTS, groups=[{"AutoScalingGroupName": "x", "Instances": [{"AvailabilityZone": ZONES[1]}]}]),
            {},
            [ZONES[1]],
        ),
        (with_file_system(AvailabilityZoneName=ZONES[1]), {}, [ZONES[1]]),
    ],
)
def test_the_zones_to_try(facts: AccountFacts, settings: dict[str, Any], zones: list[str]) -> None:
    assert network.choose_zones(facts, cluster(**settings))[0] == zones


def test_zones_that_are_unknown_are_no_problem() -> None:
    for facts in (replace(FACTS, zones=None), replace(FACTS, offers=None)):
        assert texts(facts) == []


def test_zones_that_do_not_exist_and_those_that_lack_a_type() -> None:
    (unknown,) = texts(FACTS, availability_zones=["us-east-1x", ZONES[0]])
    assert unknown == (
        'cluster_availability_zones is ["us-east-1x"]: us-east-1 has us-east-1a, us-east-1b. Example: '
        """-e '{"cluster_availability_zones": ["us-east-1a", "us-east-1b"]}'"""
    )
    types = {"g5.xlarge": TYPE, "g5.2xlarge": {**TYPE, "name": "g5.2xlarge"}}
    offers = [{"InstanceType": name, "Location": zone} for name, zone in zip(types, ZONES, strict=True)]
    (none,) = texts(replace(FACTS, types=types, offers=offers), master_instance_type="g5.2xlarge")
    assert none == (
        "cluster_instance_type is g5.xlarge: no zone of us-east-1 offers g5.2xlarge and g5.xlarge: choose other types."
    )


# Types


@pytest.mark.parametrize(
    ("name", "offered", "sentence"),
    [
        ("g5.huge", ["g4.xlarge", "g5.2xlarge", "g5.4xlarge", "g5.8xlarge", "g5.xlarge"],
         "take g5.2xlarge or g5.4xlarge or g5.8xlarge. Example: -e cluster_instance_type=g5.xlarge"),
        ("g5.huge", ["g5.2xlarge"], "take g5.2xlarge. Example: -e cluster_instance_type=g5.2xlarge"),
        ("g55.xlarge", ["g5.xlarge", "u-6tb1.metal"], "take g5.xlarge. Example: -e cluster_instance_type=g5.xlarge"),
        ("zzz.nothing", ["g5.2xlarge"],
         "take another type or another region. Example: -e cluster_instance_type=g5.xlarge"),
    ],
)  # fmt: skip
def test_a_type_that_the_region_has_not(name: str, offered: list[str], sentence: str) -> None:
    problems = texts(replace(FACTS, types={}, offered_types=offered), instance_type=name)
    assert problems == [f"cluster_instance_type is {name}: us-east-1 has no such type, {sentence}"]


OFFERED = ["a1.xlarge", "g3.4xlarge", "g4ad.xlarge", "g4dn.xlarge", "g5.xlarge", "g5g.xlarge", "g6.12xlarge"]
OFFERED += ["m5.large", "m5.xlarge", "m9g.large", "mac2.metal", "p2.8xlarge", "p2.xlarge", "p5.48xlarge", "r9g.large"]


@pytest.mark.parametrize(
    ("name", "framework", "settings", "expected"),
    [
        # No Graviton, no GPUs without a driver, no other maker.
        ("p9.large", "", {}, ["p5.48xlarge", "g5.xlarge", "g6.12xlarge"]),
        ("p2.huge", "", {}, ["p5.48xlarge", "g4dn.xlarge", "g5.xlarge"]),
        ("g4dm.xlarge", "", {}, ["g4dn.xlarge", "g5.xlarge", "g6.12xlarge"]),
        # MXNet does not compute on an H100.
        ("p9.large", "mxnet", {}, ["g5.xlarge", "g6.12xlarge", "g4dn.xlarge"]),
        ("m5.largo", "", {}, ["m5.large", "m5.xlarge"]),
        ("m9.large", "", {}, ["m5.large", "m5.xlarge"]),
        ("zzz.nothing", "", {}, []),
        # The master trains with the workers, so it has as many GPUs.
        ("p9.large", "", {"master_instance_type": "g5.xlarge"}, ["g5.xlarge", "g4dn.xlarge"]),
    ],
)  # fmt: skip
def test_suggested_types_are_such_as_the_plan_accepts(
    name: str, framework: str, settings: dict[str, Any], expected: list[str]
) -> None:
    types = {"g5.xlarge": TYPE} if "master_instance_type" in settings else {}
    requested = {"instance_type": name, "master_instance_type": name, "default_framework": framework, **settings}
    facts = replace(FACTS, types=types, offered_types=OFFERED)
    assert suggest(facts, cluster(**requested), "instance_type", name, gpu_tables([])) == expected


@pytest.mark.parametrize(("architecture", "expected"), [("x86_64", ["g5.xlarge"]), ("arm64", ["g5g.xlarge"])])
def test_suggested_types_have_the_architecture_of_the_image(architecture: str, expected: list[str]) -> None:
    own_image = replace(FACTS.image, described=[{**IMAGE, "Architecture": architecture}])
    facts = replace(FACTS, types={}, offered_types=["g5.xlarge", "g5g.xlarge"], image=own_image)
    assert suggest(facts, cluster(instance_type="g7x.xlarge"), "instance_type", "g7x.xlarge", {}) == expected


@pytest.mark.parametrize(
    ("master", "worker", "settings", "problem"),
    [
        ({"gpus": 2}, {}, {}, "it has 2 GPUs and g5.xlarge has 1 GPU, but the master trains with the workers"),
        ({"gpus": 0}, {}, {}, "it has no GPUs and g5.xlarge has 1 GPU"),
        ({"gpus": 2}, {}, {"master_trains": False}, ""),
        ({"spot": False}, {}, {"spot": True}, ""),
        ({"placement": False}, {}, {"placement_group": "true"}, "t0.large cannot be in a placement group. Example: -e "
         "cluster_placement_group=auto"),
        ({"placement": False}, {"placement": False}, {"placement_group": "true"}, "g5.xlarge and t0.large cannot"),
        ({"placement": False}, {}, {"placement_group": "auto"}, ""),
        ({"efa_cards": [0]}, {}, {"efa": "true"}, "g5.xlarge cannot use EFA. Example: -e cluster_efa=auto"),
    ],
)  # fmt: skip
def test_types_that_do_not_go_together(
    master: dict[str, Any], worker: dict[str, Any], settings: dict[str, Any], problem: str
) -> None:
    types = {"t0.large": {**TYPE, "name": "t0.large", **master}, "g5.xlarge": {**TYPE, **worker}}
    offers = [{"InstanceType": name, "Location": zone} for name in types for zone in ZONES]
    problems = texts(replace(FACTS, types=types, offers=offers, quotas={}), master_instance_type="t0.large", **settings)
    assert [problem in text for text in problems] == ([True] if problem else []), problems


@pytest.mark.parametrize(
    ("setting", "master", "worker", "value"),
    [
        ("auto", [0], [0], True),
        ("auto", [0], [], False),
        ("auto", [], [0], False),
        ("true", [], [], True),
        ("false", [0], [0], False),
    ],
)
def test_auto_needs_both_types(setting: str, master: list[int], worker: list[int], value: bool) -> None:
    types = {"t0.large": {**TYPE, "name": "t0.large", "efa_cards": master}, "g5.xlarge": {**TYPE, "efa_cards": worker}}
    plan = planner.resolve(replace(FACTS, types=types), cluster(efa=setting, master_instance_type="t0.large"))
    assert plan["efa"] is value and (plan["type"]["name"], plan["master_type"]["name"]) == ("g5.xlarge", "t0.large")


def test_key_pairs_are_named_in_order() -> None:
    (problem,) = texts(replace(FACTS, key_pairs=[{"KeyName": "b"}, {"KeyName": "a"}]))
    assert problem == (
        "cluster_key_name is my-key: us-east-1 has no such key pair, choose one of a, b. Example: -e cluster_key_name=a"
    )
    assert texts(replace(FACTS, key_pairs=None)) == []


def test_families_that_resemble_the_setting_come_first() -> None:
    families = ["alpha", "base-gpu-ubuntu-22.04", "zeta"]
    facts = replace(FACTS, image=ImageFacts(architecture="x86_64", families=families))
    (problem,) = texts(facts, image="base-gpu-ubuntu-20.04")
    assert problem == (
        "cluster_image is base-gpu-ubuntu-20.04: us-east-1 has no such family for x86_64, take one of "
        "base-gpu-ubuntu-22.04, alpha, zeta. Example: -e cluster_image=base-gpu-ubuntu-22.04"
    )


def test_the_image_of_the_plan() -> None:
    assert machines.image_of_plan(FACTS) == {
        "id": "ami-1",
        "name": "Deep Learning AMI (Ubuntu 22.04)",
        "root_device": "/dev/sda1",
        "kept": False,
    }
    kept = replace(FACTS, image=ImageFacts("ami-1", is_pinned=True, described=[{"ImageId": "ami-1"}]))
    assert machines.image_of_plan(kept) == {"id": "ami-1", "name": "", "root_device": "", "kept": True}
    assert (
        machines.login_user(FACTS, cluster()) == "ubuntu"
        and machines.login_user(FACTS, cluster(login_user="me")) == "me"
    )
    assert machines.login_user(replace(FACTS, image=ImageFacts()), cluster()) == ""


# Prices

LISTED = {
    "machine a, hour": Price(1.0, "2026-11-01"),
    "machine b, hour": Price(0.5, "2026-10-01"),
    "EMR on a, hour": Price(0.3, "2026-11-01"),
    "EMR on b, hour": Price(0.125, "2026-11-01"),
    "disk gp3, GB-month": Price(0.73, "2026-11-01"),
    "disk gp3, MiB/s-month": Price(0.073, "2026-11-01"),
    "NAT gateway, hour": Price(0.04, "2026-11-01"),
    "NAT gateway, GB": Price(0.05, "2026-11-01"),
    "public address, hour": Price(0.005, "2026-11-01"),
    "file system, GB-month": Price(0.3, "2026-11-01"),
    "file system, GB read": Price(0.03, "2026-11-01"),
    "file system, GB written": Price(0.06, "2026-11-01"),
}
ALL = prices.PriceList("eu-west-1", LISTED)


@pytest.mark.parametrize(
    ("options", "parts", "amount"),
    [
        ({}, {"master a": 1, "worker b": 2, "disk of 100 GiB": 3, "NAT gateway": 1, "public address": 2}, 2.35),
        ({"public": False}, {"NAT gateway": 1, "public address": 1}, 2.345),
        ({"vpc_id": "vpc-1"}, {"NAT gateway": 0, "public address": 1}, 2.305),
        ({"vpc_id": "vpc-1", "public": False}, {"NAT gateway": 0, "public address": 0}, 2.3),
        ({"emr": True}, {"NAT gateway": 0, "public address": 3, "EMR on a": 1, "EMR on b": 2}, 2.865),
        ({"emr": True, "public": False}, {"NAT gateway": 1, "public address": 1, "EMR on a": 1}, 2.895),
        ({"worker_count": 0}, {"worker b": 0, "disk of 100 GiB": 1}, 1.15),
    ],
)
def test_the_parts_of_the_hourly_costs(options: dict[str, Any], parts: dict[str, int], amount: float) -> None:
    cost = hourly(ALL, "a", "b", **options)
    counted = {part["what"]: part["count"] for part in cost["parts"]}
    assert {what: counted.get(what, 0) for what in parts} == parts
    assert cost["amount"] == pytest.approx(amount) and cost["known"]
    assert (cost["currency"], cost["file_system_gb_month"]) == ("USD", 0.3)


def test_notes_on_prices() -> None:
    cost = hourly(ALL, "a", "b", spot=True, emr=True)
    notes = {part["what"]: part["note"] for part in cost["parts"]}
    assert (notes["master a"], notes["worker b"]) == ("", "spot: at most this")
    assert (notes["EMR on a"], notes["EMR on b"]) == ("", "")
    gateway = hourly(ALL, "a", "b")
    assert {part["what"]: part["note"] for part in gateway["parts"]}["NAT gateway"] == "and 0.05 for each GB through it"
    assert gateway["source"] == "AWS's Price List API, 2026-10-01"
    odd = hourly(ALL, "a", "none", worker_count=1, root_volume_type="io9")
    assert [part["each"] for part in odd["parts"]][1:3] == [None, None] and not odd["known"]
    assert prices.PriceList("us-east-1").amount("nothing") is None


def test_the_costs_as_text() -> None:
    cost = hourly(ALL, "a", "none")
    assert prices.lines(cost) == [
        "      1.000  1 x master a",
        "  not known  2 x worker none",
        "      0.300  3 x disk of 100 GiB",
        "      0.040  1 x NAT gateway (and 0.05 for each GB through it)",
        "      0.010  2 x public address",
        "      1.350  an hour in all, 32.40 a day, and what is not known",
        f"  Prices: {cost['source']}.",
        "  File system: 0.30 a month for each GB stored.",
        "  Each GB read from the file system costs 0.03, each GB written to it 0.06.",
        "  Training pays that for its data set in every epoch; with -e data_on=node once for each node.",
    ]


@pytest.mark.parametrize(
    ("mode", "listed", "sentence"),
    [
        ("elastic", LISTED, "Each GB read from the file system costs 0.03, each GB written to it 0.06."),
        ("elastic", {}, "Each GB read from the file system or written to it costs an amount that is not known."),
        ("bursting", LISTED, "Reads and writes of the file system cost nothing more (bursting throughput)."),
        (
            "provisioned",
            LISTED,
            "The file system's provisioned throughput is billed by the MiB/s, and is not part of this sum.",
        ),
        (
            "",
            LISTED,
            "Each GB read from the file system costs 0.03, each GB written to it 0.06. This holds for elastic "
            "throughput; the file system's mode is not known.",
        ),
    ],
)
def test_what_reads_and_writes_of_the_file_system_cost(mode: str, listed: dict[str, Price], sentence: str) -> None:
    priced = prices.PriceList("us-east-1", listed)
    cost = prices.hourly(priced, cluster(), emr=False, file_system_throughput=mode)
    sentences = prices.access_sentences(cost)
    assert sentences[0] == sentence
    is_billed_by_the_gb = mode in ("elastic", "")
    assert any("data_on=node" in line for line in sentences) == is_billed_by_the_gb


@pytest.mark.parametrize(
    ("kind", "throughput", "billed"),
    [("gp3", 0, 0), ("gp3", 125, 0), ("gp3", 126, 1), ("gp3", 750, 625), ("gp2", 250, 0), ("io2", 1000, 0)],
)
def test_the_throughput_that_is_billed(kind: str, throughput: int, billed: int) -> None:
    assert prices.billed_throughput(kind, throughput) == billed


@pytest.mark.parametrize("emr", [False, True])
def test_the_throughput_of_disks_is_a_part_of_the_costs(emr: bool) -> None:
    usual = hourly(ALL, "a", "b", emr=emr)
    fast = hourly(ALL, "a", "b", emr=emr, root_volume_throughput=750)
    (part,) = [part for part in fast["parts"] if part not in usual["parts"]]
    assert (part["what"], part["count"]) == ("disk throughput of 750 MiB/s", 3)
    assert fast["amount"] - usual["amount"] == pytest.approx(3 * 625 * 0.073 / 730, abs=1e-4)
    assert "      0.188  3 x disk throughput of 750 MiB/s (125 are included in the disk's price)" in prices.lines(fast)
    without = {item: price for item, price in LISTED.items() if "MiB/s" not in item}
    unknown = hourly(prices.PriceList("eu-west-1", without), "a", "b", root_volume_throughput=750)
    assert not unknown["known"]
    assert hourly(prices.PriceList("eu-west-1", without), "a", "b", root_volume_throughput=125)["known"]


# The plan as text


def rendered(facts: AccountFacts = FACTS, emr: bool = False, **settings: Any) -> dict[str, str]:
    options = cluster(**settings)
    plan = {**planner.resolve(facts, options), "notes": ["it rains"], "changes": [], "duplicates": {"lines": []}}
    if emr:
        plan["emr"] = {"release": "emr-7.14.0"}
    lines = planner.render(options, plan)
    assert lines[lines.index("Costs in USD, for as long as it exists:") - 1] == "  Note         it rains"
    return {line[:14].strip() or "more": line[15:] for line in reversed(lines[1:]) if line.startswith("  ")} | {
        "": lines[0]
    }


def test_a_new_cluster_as_text() -> None:
    lines = rendered(worker_count=2)
    assert lines[""] == "Cluster red in us-east-1, account 123456789012: will be created"
    assert lines["Machines"] == "1 master and 2 workers of g5.xlarge, 1 x A10G in each"
    assert lines["Image"] == "Deep Learning AMI (Ubuntu 22.04) (ami-1), user ubuntu"
    assert lines["Zone"] == "us-east-1a, else us-east-1b"
    assert lines["Network"] == "a new one, 10.0.0.0/16"
    assert lines["Logging in"] == "key pair my-key, from 198.51.100.1/32"
    assert lines["File system"] == "a new one, at /efs, kept by destroy.yml"
    assert lines["Bucket"] == "red-123456789012-us-east-1"
    settings = cluster(worker_count=2)
    machines_line = f"{settings['capacity_policy']}, at least {settings['worker_min']} of the workers; placement group"
    assert lines["more"] == machines_line


def test_site_yml_prints_the_plan_briefly() -> None:
    settings = cluster(worker_count=2)
    plan = {**planner.resolve(FACTS, settings), "notes": ["it rains"], "changes": [], "duplicates": {"lines": []}}
    lines = planner.render(settings, plan, brief=True)
    assert [line[2:14].strip() for line in lines[1:]] == [
        *("Machines", "", "Ends", "Network", "Logging in", "File system", "Note", "Price", ""),
    ]
    amount = plan["hourly"]["amount"]
    assert lines[-1] == "               Each GB read from the file system costs 0.03, each GB written to it 0.06."
    assert lines[-2] == (
        f"  Price        {'' if plan['hourly']['known'] else 'at least '}{amount:.3f} USD an hour, {amount * 24:.2f} a "
        f"day ({plan['hourly']['source']})"
    )


@pytest.mark.parametrize(
    ("current", "chosen", "is_external", "mode", "change"),
    [
        ("", "", False, "elastic", ""),
        ("", "bursting", False, "bursting", ""),
        ("elastic", "", False, "elastic", ""),
        ("bursting", "", False, "bursting", ""),
        ("provisioned", "", False, "provisioned", ""),
        ("bursting", "bursting", False, "bursting", ""),
        ("bursting", "elastic", False, "elastic", "bursting → elastic"),
        ("provisioned", "elastic", False, "elastic", "provisioned → elastic"),
        ("bursting", "elastic", True, "bursting", ""),
        ("elastic", "", True, "elastic", ""),
    ],
)
def test_the_throughput_mode_of_the_plan(
    current: str, chosen: str, is_external: bool, mode: str, change: str
) -> None:
    facts = with_file_system(ThroughputMode=current) if current else FACTS
    settings = cluster(efs_throughput=chosen, efs_id=EFS if is_external else "")
    assert network.file_system_of_plan(facts, settings)["throughput"] == mode
    expected = [f"throughput mode of file system {EFS} {change}"] if change else []
    assert network.throughput_change(facts, settings) == expected
    existing = replace(facts, groups=[{"AutoScalingGroupName": "red-master"}], worker_count=1)
    assert changes.lines(existing, settings, {"before": {"efs_throughput": "elastic"}, "remove_end": False}) == expected
    notes = [finding.text for finding in network.check_file_system(facts, settings) if "efs_throughput" in finding.text]
    assert len(notes) == int(is_external and bool(chosen))
    assert all(f"{EFS} keeps its throughput mode ({current})" in text for text in notes)


@pytest.mark.parametrize(
    ("facts", "settings", "line", "text"),
    [
        (replace(FACTS, groups=[{"AutoScalingGroupName": "red-master"}]), {}, "",
         "Cluster red in us-east-1, account 123456789012: exists, will be updated"),
        (replace(FACTS, emr_clusters=[{"Id": "j-1"}]), {}, "",
         "Cluster red in us-east-1, account 123456789012: exists, will be updated"),
        (FACTS, {"worker_count": 1}, "Machines", "1 master and 1 worker of g5.xlarge, 1 x A10G in each"),
        (FACTS, {"worker_count": 1, "spot": True}, "Machines",
         "1 master and 1 worker of g5.xlarge, 1 x A10G in each, workers as spot instances"),
        (FACTS, {"worker_count": 0, "spot": True}, "Machines",
         "1 master and 0 workers of g5.xlarge, 1 x A10G in each"),
        (replace(FACTS, types={"g5.xlarge": {**TYPE, "gpus": 0}}), {"worker_count": 1}, "Machines",
         "1 master and 1 worker of g5.xlarge, no GPUs"),
        (replace(FACTS, types={"g5.xlarge": TYPE, "m.l": {**TYPE, "name": "m.l"}},
                 offers=[{"InstanceType": name, "Location": ZONES[0]} for name in ("g5.xlarge", "m.l")]),
         {"worker_count": 1, "master_instance_type": "m.l"}, "Machines",
         "1 master and 1 worker (m.l and g5.xlarge), 1 x A10G in each"),
        (replace(FACTS, image=replace(FACTS.image, is_pinned=True)), {}, "Image",
         "Deep Learning AMI (Ubuntu 22.04) (ami-1, kept), user ubuntu"),
        (replace(FACTS, image=ImageFacts()), {"login_user": "me"}, "Image", "its own image, user me"),
        (FACTS, {"availability_zones": [ZONES[1]]}, "Zone", "us-east-1b"),
        (with_file_system(), {}, "Network", f"{VPC} (10.0.0.0/16), its own"),
        (with_file_system(), {}, "File system", f"{EFS}, the cluster's own, at /efs, kept by destroy.yml"),
        (with_file_system(), {"keep_efs": False}, "File system",
         f"{EFS}, the cluster's own, at /efs, deleted by destroy.yml"),
        (with_file_system(), {"efs_id": EFS}, "File system", f"{EFS}, an existing one, at /efs"),
        (FACTS, {"public": False}, "Logging in",
         "key pair my-key, from 198.51.100.1/32, to the master's private address"),
    ],
)  # fmt: skip
def test_other_clusters_as_text(facts: AccountFacts, settings: dict[str, Any], line: str, text: str) -> None:
    assert rendered(facts, **settings)[line] == text


def test_extras_and_ends_as_text() -> None:
    settings = cluster(worker_count=2, ttl_hours=1.5, idle_minutes=30, efa="true", placement_group="true")
    lines = planner.render(settings, {**planner.resolve(FACTS, settings), "notes": [], "duplicates": {"lines": []}})
    assert lines[2].endswith("of the workers; placement group, EFA")
    assert lines[3] == "  Ends         1.5 hours after their creation or after 30 minutes without work"
    assert rendered()["Ends"] == "never by themselves: -e cluster_ttl_hours=8 or -e cluster_idle_minutes=60"
    assert rendered(emr=True)["Ends"].startswith("after ")
    assert rendered(emr=True, emr_idle_minutes=0)["Ends"] == "never by themselves: -e cluster_emr_idle_minutes=60"
    assert rendered(emr=True)["Image"].startswith("emr-7.14.0 of EMR, Deep Learning AMI")


def test_what_exists_counts_for_the_plan() -> None:
    ends = {"ttl": {"red-workers": 5.0}}
    plan = planner.resolve(replace(FACTS, ends=ends, partition="aws-cn"), cluster())
    assert (plan["exists"], plan["ends"], plan["partition"]) == (False, ends, "aws-cn")
    assert plan["domain"] == "amazonaws.com.cn" and plan["emr"] == {}
    assert (plan["key_name"], plan["import_key"]) == ("my-key", False)
    emr = replace(FACTS, emr=EmrFacts([], [], release="emr-7.14.0"), emr_clusters=[{"Id": "j-1"}, {"Id": "j-2"}])
    settings = {**cluster(), "emr_log_uri": ""}
    assert planner.resolve(emr, settings)["emr"] == {
        "release": "emr-7.14.0",
        "logs": "red-123456789012-us-east-1/emr-logs",
        "cluster_id": "j-1",
    }


def test_settings_of_types_name_the_workers_first() -> None:
    settings = {"instance_type": "a", "master_instance_type": "b"}
    assert plan_facts.type_names(settings) == {"a": "instance_type", "b": "master_instance_type"}
    assert plan_facts.type_names({**settings, "master_instance_type": "a"}) == {"a": "instance_type"}


def test_the_image_of_the_tables_has_a_root() -> None:
    assert images.root_gib(IMAGE) == 75


class Actions:
    """Stands in for AWS: what it lists as scheduled actions."""

    def pages(self, *_operation: str, **_params: Any) -> list[dict[str, Any]]:
        soon = datetime.fromtimestamp(time.time() + 600, UTC)
        sizes = {"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0}
        shared = {"AutoScalingGroupName": "red-workers", "StartTime": soon, "Recurrence": "* * * * *", **sizes}
        return [{**shared, "ScheduledActionName": name} for name in ("red-ttl", "z z")]


@pytest.mark.parametrize(
    ("names", "left", "ends"),
    [
        ((), ["red-ttl", "z%20z"], True),
        (("z z", "other"), ["red-ttl", "z%20z"], True),
        (("z%20z",), ["red-ttl"], True),
        # It is scheduled anew.
        (("red-ttl",), ["z%20z"], False),
    ],
)
def test_an_action_of_others_prevents_a_short_life_unless_it_is_named(
    names: tuple[str, ...], left: list[str], ends: bool
) -> None:
    described = plan_facts._describe_actions(plan_facts._Reader(Actions()), "red", names)
    assert [action.shown for action in described["foreign_actions"]] == left
    assert bool(described["ends"]["ttl"]) == ends
    seen = replace(FACTS, **described)
    problems = [finding.text for finding in planner._check_foreign_actions(seen) if finding.is_problem]
    for name, problem in zip(left, problems, strict=True):
        assert "it would end the machines within the hour. To delete it: " in problem
        assert problem.endswith(f"ansible-playbook deeplearning.aws.site -e delete_actions={name}")
    unmatched = [name for name in names if name in ("z z", "other")]
    notes = [finding.text for finding in planner._check_foreign_actions(seen) if not finding.is_problem]
    assert [text.partition(",")[0] for text in notes] == [f"delete_actions names {name}" for name in unmatched]
    to_delete = [{"group": "red-workers", "name": name} for name in ("red-ttl", "z z") if quote(name) not in left]
    assert planner.resolve(seen, cluster())["delete_actions"] == to_delete


def test_duplicates_that_are_deleted_are_part_of_the_plan() -> None:
    settings = cluster()
    deleted = {"lines": ["NAT gateway nat-1 (0.045 USD an hour)", "Elastic IP address eipalloc-1 (198.51.100.1)"]}
    plan = {**planner.resolve(FACTS, settings), "notes": [], "changes": [], "duplicates": deleted}
    lines = planner.render(settings, plan, brief=True)
    assert "  Deletes      NAT gateway nat-1 (0.045 USD an hour)" in lines
    assert "  Deletes      Elastic IP address eipalloc-1 (198.51.100.1)" in lines
