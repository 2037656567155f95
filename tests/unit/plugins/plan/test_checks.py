"""The checks of a plan: facts and settings in, problems and notes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import data, machines, network, planner, quotas
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.facts import AccountFacts, ImageFacts
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.prices import PriceList

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

OPEN_DRIVER = {**IMAGE, "Name": "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)"}
FAMILIES = ["base-oss-nvidia-driver-gpu-ubuntu-22.04", "base-proprietary-nvidia-driver-amazon-linux-2"]


def image(**changes: Any) -> ImageFacts:
    return ImageFacts("ami-1", described=[{**IMAGE, **changes}])


def test_an_image_with_other_versions_of_frameworks_is_named() -> None:
    tags = [
        {"Key": "deeplearning:pins", "Value": "pytorch=old mxnet=same"},
        {"Key": "deeplearning:user", "Value": "me"},
    ]
    facts = replace(
        FACTS,
        image=image(Tags=tags, Name="red-image-1", Description="mxnet on ubuntu-22.04"),
        pins={"pytorch": "new", "mxnet": "same"},
    )
    older, lacking = texts(facts, is_problem=False, default_framework="tensorflow")
    assert "ami-1 has other versions of pytorch" in older and "deeplearning.aws.image" in older
    assert "no environment of tensorflow" in lacking
    assert texts(facts) == []
    current = replace(facts, pins={"pytorch": "old", "mxnet": "same"})
    assert texts(current, is_problem=False, default_framework="pytorch") == []


def test_an_image_of_the_users_own_may_have_a_python_that_it_does_not_show() -> None:
    facts, settings = replace(FACTS, image=image(Name="mine")), {"image": "ami-0123456789abcdef0", "login_user": "me"}
    assert texts(facts, **settings) == []
    (hint,) = texts(facts, is_problem=False, **settings)
    assert "the image mine shows no system with Python 3.11 or newer" in hint and "a package of it, no machine" in hint


def test_a_cluster_that_fits_has_no_findings() -> None:
    assert list(planner.check(FACTS, cluster())) == []


def test_a_key_of_the_accounts_own_needs_a_grant() -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/1"
    facts = replace(FACTS, disk_key=key)
    assert texts(facts) == []
    (note,) = texts(facts, is_problem=False)
    assert note.startswith(f"all new disks in us-east-1 are encrypted with the account's own KMS key {key}. ")
    # https://docs.aws.amazon.com/autoscaling/ec2/userguide/key-policy-requirements-EBS-encryption.html
    assert note.endswith(
        f": aws kms create-grant --region us-east-1 --key-id {key} --grantee-principal "
        "arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling "
        "--operations Encrypt Decrypt ReEncryptFrom ReEncryptTo GenerateDataKey GenerateDataKeyWithoutPlaintext "
        "DescribeKey CreateGrant"
    )


UNKNOWN = replace(
    FACTS,
    groups=None,
    types=None,
    image=ImageFacts(),
    quotas={},
    other_instances=None,
    vpcs=None,
    file_systems=None,
    zones=None,
    offers=None,
    key_pairs=None,
)


@pytest.mark.parametrize("settings", [{}, {"efs_id": "fs-0123456789abcdef0", "vpc_cidr": "10.1.0.0/16"}])
def test_unknown_facts_are_no_problem_of_their_own(settings: dict[str, Any]) -> None:
    assert list(planner.check(UNKNOWN, cluster(**settings))) == []
    plan = planner.resolve(UNKNOWN, cluster(**settings))
    assert (plan["zones"], plan["image"], plan["type"], plan["quotas"]) == ([], {}, {}, [])


@pytest.mark.parametrize(
    ("facts", "settings", "problem"),
    [
        ({"types": {}, "offered_types": []}, {}, "us-east-1 has no such type, take another type or another region"),
        ({"types": {}, "offered_types": ["g5.2xlarge", "m5.large"]}, {}, "us-east-1 has no such type, take g5.2xlarge"),
        ({"types": {"g5.xlarge": {**TYPE, "spot": False}}}, {"spot": True}, "not available as a spot instance"),
        ({"types": {"g5.xlarge": {**TYPE, "placement": False}}}, {"placement_group": "true"}, "in a placement group"),
        ({"image": image(State="pending")}, {}, "ami-1 is pending"),
        ({"image": image(Platform="windows")}, {}, "ami-1 is a Windows image"),
        ({"image": image(Name="Base AMI (Ubuntu 26.04)")}, {}, "its Python 3.14 is newer than Ansible and the framew"),
        ({"image": image(Architecture="arm64")}, {}, "cluster_instance_type is g5.xlarge: it cannot run the image"),
        ({}, {"root_volume_gib": 50}, "cluster_root_volume_gib is 50: the image needs 75 or more"),
        ({"image": image(Name="mine")}, {"image": "ami-0123456789abcdef0"}, "the image mine does not show its user"),
        (
            {"image": image(Name="mine")},
            {"login_user": "me"},
            f"cluster_image is {FAMILIES[0]}: the image mine shows no system with Python 3.11 or newer, by which "
            f"machines configure themselves. Example: -e cluster_image={FAMILIES[0]}",
        ),
        ({"image": ImageFacts("ami-1", described=[])}, {}, "us-east-1 has no image ami-1 that this account may use"),
        (
            {
                "image": ImageFacts("ami-1", described=[OPEN_DRIVER], families=FAMILIES),
                "types": {"p3dn.24xlarge": {**TYPE, "name": "p3dn.24xlarge"}},
                "offers": [{"InstanceType": "p3dn.24xlarge", "Location": zone} for zone in ZONES],
                "quotas": {},
            },
            {"instance_type": "p3dn.24xlarge"},
            f"take one with the proprietary driver, such as -e cluster_image={FAMILIES[1]}, or a newer type",
        ),
        ({"image": ImageFacts(architecture="arm64", families=[])}, {}, "has no such family for arm64, give an AMI"),
        ({"key_pairs": []}, {}, "us-east-1 has no such key pair, and no others"),
        (
            {"vpcs": [{"VpcId": "vpc-1", "CidrBlock": "10.0.0.0/16"}]},
            {"vpc_cidr": "10.1.0.0/16"},
            "the cluster's network has 10.0.0.0/16, which cannot be changed: keep it, or destroy first",
        ),
        ({"offers": []}, {}, "no zone of us-east-1 offers g5.xlarge: choose other types"),
        (
            {"offers": FACTS.offers[1:]},  # type: ignore[index]
            {"availability_zones": ["us-east-1a"]},
            "none of them has g5.xlarge, which us-east-1b have",
        ),
        (
            {"groups": [{"AutoScalingGroupName": "red-workers", "Instances": [{"AvailabilityZone": "us-east-1b"}]}]},
            {"availability_zones": ["us-east-1a"]},
            "The cluster cannot be in us-east-1a, although the instance types are available there: the cluster's "
            "machines are in us-east-1b and do not move.",
        ),
        (
            {"file_systems": [{"FileSystemId": "fs-1", "AvailabilityZoneName": "us-east-1b"}]},
            {"availability_zones": ["us-east-1a"]},
            "the file system fs-1 is in us-east-1b alone",
        ),
        (
            {"file_systems": [{"FileSystemId": "fs-0123456789abcdef0", "LifeCycleState": "deleting"}]},
            {"efs_id": "fs-0123456789abcdef0"},
            "cluster_efs_id is fs-0123456789abcdef0: the file system is deleting and not available",
        ),
        (
            {"security_groups": [{"GroupId": "sg-0123456789abcdef0", "VpcId": "vpc-2"}]},
            {"security_group_ids": ["sg-0123456789abcdef0"]},
            "it belongs to vpc-2, and the cluster gets a network of its own",
        ),
        (
            {
                "security_groups": [{"GroupId": "sg-0123456789abcdef0", "VpcId": "vpc-2"}],
                "vpcs": [{"VpcId": "vpc-1", "CidrBlock": "10.0.0.0/16"}],
            },
            {"security_group_ids": ["sg-0123456789abcdef0"]},
            "it belongs to vpc-2, and the cluster is in vpc-1",
        ),
    ],
)
def test_each_problem_is_one_sentence(facts: dict[str, Any], settings: dict[str, Any], problem: str) -> None:
    (text,) = texts(replace(FACTS, **facts), **settings)
    assert problem in text


def test_subnets_of_the_user_choose_the_zone() -> None:
    assert texts(in_vpc(), **SETTINGS) == []
    assert network.choose_zones(in_vpc(), cluster(**SETTINGS))[0] == [ZONES[0]]
    plan = planner.resolve(in_vpc(), cluster(**SETTINGS))
    assert plan["vpc"]["subnets"] == {ZONES[0]: {"public": PUBLIC, "private": PRIVATE}}


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (in_vpc(zone=ZONES[1]), "No zone has both a public and a private one of the given subnets"),
        (in_vpc(private_route={"GatewayId": "igw-1"}), "it is a public one (its default route leads to igw-1)"),
        (replace(in_vpc(), subnets=in_vpc().subnets[:1]), "us-east-1 has no such subnet"),  # type: ignore[index]
        (replace(in_vpc(), vpcs=[], subnets=None), "us-east-1 has no such VPC in this account"),
    ],
)
def test_subnets_that_do_not_fit(facts: AccountFacts, problem: str) -> None:
    (text,) = texts(facts, **SETTINGS)
    assert problem in text


def endpoint(service: str, **changed: Any) -> dict[str, Any]:
    kind = {"VpcEndpointType": "Interface", "PrivateDnsEnabled": True, "State": "available"}
    return {"ServiceName": f"com.amazonaws.us-east-1.{service}", **kind, **changed}


GATEWAY = endpoint("s3", VpcEndpointType="Gateway", RouteTableIds=[f"rtb-{PRIVATE}"])
ALL_ENDPOINTS = [endpoint("autoscaling"), endpoint("ec2"), endpoint("sts"), GATEWAY]
UBUNTU_24 = "Deep Learning AMI (Ubuntu 24.04)"


@pytest.mark.parametrize(
    ("endpoints", "name", "problem"),
    [
        (ALL_ENDPOINTS, UBUNTU_24, ""),
        (
            [],
            UBUNTU_24,
            "no VPC endpoint of autoscaling, ec2, s3, sts: add a default route",
        ),
        (ALL_ENDPOINTS[2:], UBUNTU_24, "no VPC endpoint of autoscaling, ec2: "),
        ([*ALL_ENDPOINTS[1:], endpoint("autoscaling", State="pending")], UBUNTU_24, "endpoint of autoscaling: "),
        ([*ALL_ENDPOINTS[1:], endpoint("autoscaling", PrivateDnsEnabled=False)], UBUNTU_24, "of autoscaling: "),
        ([*ALL_ENDPOINTS[1:], endpoint("application-autoscaling")], UBUNTU_24, "endpoint of autoscaling: "),
        ([*ALL_ENDPOINTS[:3], GATEWAY | {"RouteTableIds": ["rtb-1"]}], UBUNTU_24, "no VPC endpoint of s3: "),
        (ALL_ENDPOINTS, IMAGE["Name"], f"the image {IMAGE['Name']} shows no Python 3.11 or newer of its own"),
    ],
)
def test_without_a_route_to_the_internet_endpoints_and_the_images_python_are_needed(
    endpoints: list[dict[str, Any]], name: str, problem: str
) -> None:
    facts = replace(in_vpc(private_route={}), endpoints=endpoints, image=image(Name=name))
    problems = texts(facts, **SETTINGS)
    assert [problem in text for text in problems] == ([True] if problem else []), problems
    if not problem:
        (hint,) = texts(facts, is_problem=False, **SETTINGS)
        assert f"{PRIVATE} has no default route, so its machines reach no package index" in hint


@pytest.mark.parametrize(
    ("free", "existing", "need"),
    [(4, 0, None), (3, 0, 4), (0, 3, 1), (1, 3, None), (2, 1, 3)],
)
def test_a_subnet_has_an_address_for_each_machine_that_is_missing_and_the_mount_target(
    free: int, existing: int, need: int | None
) -> None:
    groups = [{"AutoScalingGroupName": "red-workers", "Instances": [{"AvailabilityZone": ZONES[0]}] * existing}]
    problems = texts(replace(in_vpc(free=free), groups=groups), **SETTINGS, worker_count=3)
    problem = f"cluster_private_subnet_ids is {PRIVATE}: it has {free} free addresses, and {need} are needed"
    assert [text.partition(":")[0] for text in problems] == ([problem.partition(":")[0]] if need else [])
    assert all(problem in text for text in problems)


def test_a_small_network_of_its_own() -> None:
    assert texts(FACTS, vpc_cidr="10.0.0.0/27", worker_count=10) == []
    (text,) = texts(FACTS, vpc_cidr="10.0.0.0/27", worker_count=11)
    assert "its half 10.0.0.16/28, the private subnet, has room for 11 addresses, and 12 are needed" in text
    assert len(texts(FACTS, vpc_cidr="10.0.0.0/27", worker_count=10, public=False)) == 1


PRIVATE_ONLY = {"vpc_id": VPC, "private_subnet_ids": [PRIVATE], "public": False}


def test_a_private_cluster_needs_a_private_subnet_alone() -> None:
    facts = in_vpc(zone=ZONES[1], free=2)
    assert texts(facts, **PRIVATE_ONLY, worker_count=0) == []
    assert "it has 2 free addresses, and 3 are needed" in texts(facts, **PRIVATE_ONLY, worker_count=1)[0]
    plan = planner.resolve(facts, cluster(**PRIVATE_ONLY))
    assert (plan["vpc"]["subnets"], plan["zones"]) == ({ZONES[1]: {"private": PRIVATE}}, [ZONES[1]])


@pytest.mark.parametrize(("subnets", "public"), [(("subnet-1", "subnet-2"), True), (("subnet-2", "subnet-2"), False)])
def test_a_master_does_not_move_between_the_subnets(subnets: tuple[str, str], public: bool) -> None:
    groups = [
        {"AutoScalingGroupName": name, "VPCZoneIdentifier": subnet, "Instances": [{"AvailabilityZone": ZONES[0]}]}
        for name, subnet in zip(("red-master", "red-workers"), subnets, strict=True)
    ]
    assert texts(replace(FACTS, groups=groups), public=public) == []
    (text,) = texts(replace(FACTS, groups=groups), public=not public)
    assert (
        f"subnet and does not move: keep it there, or destroy first. Example: -e cluster_public={str(public).lower()}"
        in text
    )


def test_a_large_quota_needs_no_count_of_other_instances() -> None:
    large = {"L-DB2E81BA": {**FACTS.quotas["L-DB2E81BA"], "Value": 100_000.0}}
    assert planner.resolve(replace(FACTS, quotas=large, other_instances=None), cluster())["quotas"][0]["used"] == 0


def test_a_quota_that_aws_does_not_list_hides_no_other() -> None:
    """The master's is the first, and it is not known."""
    settings = cluster(master_instance_type="m5.large", worker_min=20, worker_count=20)
    facts = replace(FACTS, types={**FACTS.types, "m5.large": {**TYPE, "name": "m5.large", "vcpus": 2}})
    (problem,) = machines.check_quotas(facts, settings)
    assert problem.is_problem and "L-DB2E81BA" in problem.text


@pytest.mark.parametrize(
    ("size", "store", "data_on", "problem"),
    [
        (4, 0, "node", ""),
        (21, 0, "node", "cluster_root_volume_gib is 100: photos takes 21.0 GiB beside the image (75) and the "
         "frameworks (20). Example: -e cluster_root_volume_gib=117"),
        (21, 232.8, "node", ""),
        (400, 232.8, "instance_store", "cluster_instance_type is g5.xlarge: photos takes 400.0 GiB, and its instance "
         "store has 233: take a larger type."),
        (4, 0, "instance_store", "cluster_instance_type is g5.xlarge: it has no instance store, and data_on is "
         "instance_store. Example: -e cluster_instance_type=g5.xlarge"),
        (None, 0, "node", "dataset is photos: it is neither coco2017, cifar10, mnist, tensorpack nor staged in "
         "123456789012-us-east-1-deeplearning-data. Example: -e dataset=coco2017"),
    ],
)  # fmt: skip
def test_a_data_set_has_to_fit_on_the_nodes_own_disks(
    size: float | None, store: float, data_on: str, problem: str
) -> None:
    facts = replace(FACTS, types={"g5.xlarge": {**TYPE, "instance_store_gib": store}})
    (finding,) = data.check(facts, cluster(), "photos", size, data_on)
    disk = f"instance store of {store:.0f} GiB" if store else "root volume of 100 GiB"
    fits = f"photos takes {size or 0:.1f} GiB of each g5.xlarge's {disk}."
    assert finding == (problem or fits, bool(problem))


def test_types_that_need_capacity_blocks_and_quotas_that_are_unknown_have_notes() -> None:
    types = {"p6-b200.48xlarge": {**TYPE, "name": "p6-b200.48xlarge", "vcpus": 192}, "g5.xlarge": TYPE}
    offers = [{"InstanceType": name, "Location": zone} for name in types for zone in ZONES]
    facts = replace(FACTS, types=types, offers=offers, quotas={})
    settings = {"instance_type": "p6-b200.48xlarge", "master_instance_type": "g5.xlarge", "worker_count": 2}
    (scarce,) = texts(facts, is_problem=False, **settings)
    assert scarce.startswith(
        "p6-b200.48xlarge can rarely be had without a Capacity Block, which this collection cannot"
    )
    notes = texts(facts, is_problem=False, spot=True, **settings)
    assert len(notes) == 2 and "quota of Spot instances of p6-b200.48xlarge" in notes[1] and "2 x 192" in notes[1]


def test_a_type_with_accelerators_and_no_price_is_refused_under_a_limit() -> None:
    type_ = {**TYPE, "gpus": 0}
    facts = replace(FACTS, types={"g5.xlarge": type_}, prices=PriceList("us-east-1"))
    (problem,) = texts(facts, max_hourly_cost=50)
    assert "the price of master g5.xlarge, worker g5.xlarge is not known" in problem
    assert not texts(replace(facts, types={"g5.xlarge": {**type_, "accelerated": False}}), max_hourly_cost=50)


def account_quota_problems(kind: quotas.AccountQuota, limit: int, existing: list[Any], **settings: Any) -> list[str]:
    quota = {"QuotaName": kind.unit, "QuotaCode": kind.code, "Value": float(limit)}
    facts = replace(FACTS, account_usage={kind: (quota, existing)})
    return [finding.text for finding in machines.check_account_quotas(facts, cluster(**settings))]


def test_a_vpc_that_another_account_shares_does_not_count() -> None:
    own, shared = {"VpcId": "vpc-1", "OwnerId": FACTS.account}, {"VpcId": "vpc-2", "OwnerId": "999999999999"}
    assert account_quota_problems(quotas.VPCS, 2, [own, shared]) == []
    (problem,) = account_quota_problems(quotas.VPCS, 1, [own, shared])
    assert "is 1 VPCs, of which 1 are in use outside" in problem
    assert problem.endswith("Or use an existing VPC (cluster_vpc_id).")


def test_a_clusters_own_addresses_are_there_already() -> None:
    others = [{"PublicIp": f"198.51.100.{number}"} for number in range(4)]
    own = {"PublicIp": "198.51.100.9", "Tags": [{"Key": "deeplearning:cluster", "Value": cluster()["name"]}]}
    problems = [account_quota_problems(quotas.ADDRESSES, 5, [*others, *[own] * count]) for count in (0, 1, 2)]
    assert [len(findings) for findings in problems] == [1, 1, 0]


def test_in_an_existing_vpc_a_cluster_needs_no_address_without_a_public_master() -> None:
    existing = [{"PublicIp": "198.51.100.1"}]
    (problem,) = account_quota_problems(quotas.ADDRESSES, 1, existing, **SETTINGS)
    assert problem.endswith("Or set cluster_public=false.")
    assert account_quota_problems(quotas.ADDRESSES, 1, [], **SETTINGS) == []
