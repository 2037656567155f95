"""The plan: what AWS does not have or what does not fit is a sentence each, all at once; nothing is ever written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import images, network, planner, prices, quotas
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import setting_rules

from localcloud.testing.catalog import PRICES_DATE
from tests.unit.conftest import Account
from tests.unit.modules import run_module
from tests.unit.prices import DATE, LIST
from tests.unit.prices import hourly as hourly_of

DENIED = {"code": "AccessDeniedException", "message": "No.", "status": 400}
FAMILY = "base-oss-nvidia-driver-gpu-ubuntu-22.04"
MANY = {"region": "us-east-1", "QuotaName": "Running On-Demand G and VT instances", "QuotaCode": "L-DB2E81BA"}


@pytest.fixture
def ask(aws: Account, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """What the module answers, with these settings besides the least that must be given."""
    aws.client("ec2").create_key_pair(KeyName="my-key")

    def plan(region: str = "us-east-1", check: bool = False, **settings: Any) -> dict[str, Any]:
        if region == "ap-southeast-2":
            aws.client("ec2", region).create_key_pair(KeyName="my-key")
        options = {
            "name": "red",
            "ssh_allowed_cidrs": ["198.51.100.1/32"],
            "key_name": "my-key",
            "region": region,
            **settings,
        }
        checked = setting_rules.check({f"cluster_{name}": value for name, value in options.items()})
        assert checked.problems == []
        cluster = setting_rules.complete(checked.values)
        return run_module(capsys, "plan", check, region=region, cluster=cluster)

    return plan


@pytest.fixture
def planned(ask: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def plan(**settings: Any) -> dict[str, Any]:
        answer = ask(**settings)
        assert not answer.get("failed"), answer["msg"]
        assert answer["changed"] is False
        result: dict[str, Any] = answer["plan"]
        return result

    return plan


@pytest.fixture
def refused(ask: Callable[..., dict[str, Any]]) -> Callable[..., list[str]]:
    def plan(**settings: Any) -> list[str]:
        answer = ask(**settings)
        assert answer["failed"]
        message = str(answer["msg"])
        return [line.removeprefix("- ") for line in message.split("\n- ")[1:]] or [message]

    return plan


def test_members_cannot_write_to_the_clusters_own_bucket(refused: Any, planned: Any, aws: Account) -> None:
    own = "red-123456789012-us-east-1"
    for place in (own, f"{own}/members", f"s3://{own}/data/coco/", f"{own}/results-old"):
        (sentence,) = refused(s3_write=["other", place])
        assert sentence.startswith(f'cluster_s3_write is ["other", "{place.removeprefix("s3://").rstrip("/")}"]: ')
        assert sentence.endswith(f"""Example: -e '{{"cluster_s3_write": ["{own}/results"]}}'""")
    planned(s3_write=[f"{own}/results", f"{own}/results/run1", "other", f"{own}-2"], s3_read=[own])


def test_an_empty_account(planned: Any, aws: Account) -> None:
    plan = planned()
    assert plan["account"] == "123456789012"
    assert plan["exists"] is False
    assert plan["zones"][:2] == ["us-east-1a", "us-east-1b"]
    assert plan["vpc"] == {
        "external": False,
        "id": "",
        "cidr": "10.0.0.0/16",
        "cidrs": ["10.0.0.0/16"],
        "public_cidr": "10.0.0.0/17",
        "private_cidr": "10.0.128.0/17",
        "subnets": {},
    }
    assert plan["image"]["id"].startswith("ami-")
    assert plan["image"]["root_device"] == "/dev/sda1"
    assert plan["user"] == "ubuntu"
    assert plan["type"] == plan["master_type"]
    assert {key: plan["type"][key] for key in ("name", "vcpus", "gpus", "gpu_name")} == {
        "name": "g5.xlarge",
        "vcpus": 4,
        "gpus": 1,
        "gpu_name": "A10G",
    }
    assert plan["bucket"] == "red-123456789012-us-east-1"
    assert plan["groups"] == {"master": "red-master", "worker": "red-workers"}
    assert plan["hourly"]["known"] is True
    assert plan["lines"][0] == "Cluster red in us-east-1, account 123456789012: will be created"
    assert not [
        record for record in aws.cloud.calls.since() if record["writes"] and "KeyPair" not in record["operation"]
    ]


def test_no_call_is_made_twice(planned: Any, aws: Account) -> None:
    before = len(aws.calls())
    planned(**network_of(aws), master_instance_type="g5.2xlarge", security_group_ids=[])
    # The price list takes one type in a call, and a quota is asked for by its code.
    of_one = ("pricing:GetProducts", "service-quotas:GetServiceQuota")
    reads = [call for call in aws.calls()[before:] if call not in of_one]
    calls = [call for call in reads if call.rpartition(":")[2].startswith(("Describe", "Get"))]
    assert sorted(set(calls)) == sorted(calls)


def test_check_mode_returns_the_same(ask: Any) -> None:
    assert ask(check=True) == ask()


def test_another_region(planned: Any) -> None:
    plan = planned(region="ap-southeast-2")
    assert {zone[:-1] for zone in plan["zones"]} == {"ap-southeast-2"}
    assert plan["bucket"] == "red-123456789012-ap-southeast-2"


def test_all_problems_are_reported_at_once(ask: Any) -> None:
    answer = ask(instance_type="g5.enormous", key_name="missing", image="no-such-family")
    assert answer["msg"].startswith(
        "3 problems prevent the plan:\n- cluster_instance_type is g5.enormous: us-east-1 has no"
    )
    assert answer["msg"].count("\n- ") == 3


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"instance_type": "g5.enormous"}, "us-east-1 has no such type, take g5.12xlarge or"),
    ({"image": "base-oss-nvidia-driver-gpu-ubuntu-20.04"}, f"ubuntu-24.04, {FAMILY}"),
    ({"image": "ami-0123456789abcdef0"}, "us-east-1 has no image ami-0123456789abcdef0 that this account may use"),
    (
        {"instance_type": "p3.2xlarge"},
        "it cannot run the image base-oss-nvidia-driver-gpu-ubuntu-22.04: that has NVIDIA's open driver, which is "
        "for newer GPUs. us-east-1 has no family with the proprietary driver: give the id of an image of your own",
    ),
    ({"instance_type": "p2.xlarge"}, "no current image has a driver for GPUs this old, choose a newer type."),
    ({"instance_type": "g5g.xlarge"}, "us-east-1 has no such family for arm64"),
    (
        {"key_name": "missing"},
        "us-east-1 has no such key pair, choose one of my-key. Example: -e cluster_key_name=my-key",
    ),
    ({"availability_zones": ["us-east-1z"]}, "us-east-1 has us-east-1a, us-east-1b"),
    ({"master_instance_type": "g5.12xlarge"}, "it has 4 GPUs and g5.xlarge has 1 GPU, but the master trains"),
    ({"master_instance_type": "t3.medium"}, "it has no GPUs and g5.xlarge has 1 GPU"),
    ({"efa": "true"}, "cluster_efa is true: g5.xlarge cannot use EFA. Example: -e cluster_efa=auto"),
    ({"placement_group": "true", "instance_type": "t3.medium"}, "t3.medium cannot be in a placement group"),
    ({"efs_id": "fs-0123456789abcdef0"}, "us-east-1 has no such file system in this account"),
    ({"security_group_ids": ["sg-0123456789abcdef0"]}, "us-east-1 has no such security group in this account"),
    (
        {
            "vpc_id": "vpc-0123456789abcdef0",
            "public_subnet_ids": ["subnet-0123456789abcdef0"],
            "private_subnet_ids": ["subnet-0123456789abcdef1"],
        },
        "us-east-1 has no such VPC in this account",
    ),
]


def test_what_aws_does_not_have_or_does_not_fit(refused: Any) -> None:
    # In one account, as it takes longer to make one than to ask it.
    problems = {message: refused(**settings) for settings, message in UNFIT}
    assert len(problems) == len(UNFIT)
    unexpected = {
        message: refusal for message, refusal in problems.items() if len(refusal) != 1 or message not in refusal[0]
    }
    assert unexpected == {}


def test_a_region_that_does_not_exist(refused: Any) -> None:
    (problem,) = refused(region="us-east-7")
    assert problem.startswith("cluster_region is us-east-7: AWS has no such region")
    assert "-e cluster_region=us-east-" in problem


def test_a_master_that_does_not_train_may_be_small(planned: Any) -> None:
    plan = planned(master_instance_type="t3.medium", master_trains=False)
    assert plan["master_type"]["gpus"] == 0


@pytest.mark.parametrize(("kind", "efa", "placement"), [("p4d.24xlarge", True, True), ("t3.medium", False, False)])
def test_auto_follows_from_the_type(planned: Any, kind: str, efa: bool, placement: bool) -> None:
    plan = planned(instance_type=kind)
    assert (plan["efa"], plan["placement_group"]) == (efa, placement)
    assert planned(instance_type=kind, efa=False, placement_group=False)["efa"] is False


def launch_template(aws: Account, image: str, setting: str) -> None:
    tags = [{"Key": "deeplearning:cluster", "Value": "red"}, {"Key": "deeplearning:image", "Value": setting}]
    aws.client("ec2").create_launch_template(
        LaunchTemplateName="red-workers",
        LaunchTemplateData={"ImageId": image, "InstanceType": "g5.xlarge"},
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
    )


def test_a_cluster_keeps_the_image_that_it_was_made_with(planned: Any, aws: Account) -> None:
    newest = planned()["image"]["id"]
    older = planned(image="base-oss-nvidia-driver-gpu-ubuntu-24.04")["image"]["id"]
    launch_template(aws, older, FAMILY)
    assert planned()["image"]["id"] == older
    assert planned()["image"]["kept"] is True
    assert planned(name="blue")["image"]["id"] == newest
    assert planned(image="base-oss-nvidia-driver-gpu-amazon-linux-2023")["image"]["kept"] is False


def test_an_image_that_is_gone_is_replaced_by_the_newest(planned: Any, aws: Account) -> None:
    newest = planned()["image"]["id"]
    launch_template(aws, "ami-0123456789abcdef0", FAMILY)
    assert planned()["image"]["id"] == newest


def test_a_deprecated_image_can_be_kept_and_named(planned: Any, aws: Account) -> None:
    older = planned(image="base-oss-nvidia-driver-gpu-ubuntu-24.04")["image"]["id"]
    launch_template(aws, older, FAMILY)
    aws.cloud.faults.add("deprecate-image", {"image": older})
    kept = planned()["image"]
    assert (kept["id"], kept["kept"]) == (older, True)
    assert planned(name="blue", image=older)["image"]["id"] == older


AMAZON_LINUX = "base-oss-nvidia-driver-gpu-amazon-linux-2023"


def test_tls_needs_an_image_that_can_have_the_program(refused: Any, planned: Any, aws: Account) -> None:
    (sentence,) = refused(efs_tls=True)
    assert sentence.startswith("cluster_efs_tls is true: the image Deep Learning Base OSS Nvidia")
    assert f"-e cluster_image={AMAZON_LINUX}" in sentence and sentence.endswith("Example: -e cluster_efs_tls=false")
    assert planned(efs_tls=True, image=AMAZON_LINUX)["notes"] == planned()["notes"]
    # An image of one's own may have it, whatever it is called.
    ubuntu = planned()["image"]["id"]
    assert planned(image=ubuntu)["notes"] == planned()["notes"]
    (note,) = [note for note in planned(efs_tls=True, image=ubuntu)["notes"] if note not in planned()["notes"]]
    assert "must contain amazon-efs-utils" in note


def test_prometheus_needs_an_image_of_a_distribution_that_has_it(refused: Any, planned: Any, aws: Account) -> None:
    (sentence,) = refused(monitoring=True, image=AMAZON_LINUX)
    assert sentence.startswith("cluster_monitoring is true: the image Deep Learning Base OSS Nvidia")
    assert "is Amazon Linux" in sentence and sentence.endswith("Example: -e cluster_monitoring=false")
    assert planned(monitoring=True)["notes"] == planned()["notes"]


def test_a_quota_too_small_for_the_least(refused: Any, aws: Account) -> None:
    aws.cloud.faults.add("quota", {"code": "L-DB2E81BA"}, 4)
    (problem,) = refused(worker_count=2)
    assert 'The quota "Running On-Demand G and VT instances" (L-DB2E81BA) in us-east-1 is 4 vCPUs' in problem
    assert "at least 8 are needed, and 12 for all machines. Request 12" in problem
    assert "console.aws.amazon.com/servicequotas/home/services/ec2/quotas/L-DB2E81BA" in problem


def test_a_quota_too_small_for_all_is_a_note(planned: Any, aws: Account) -> None:
    aws.cloud.faults.add("quota", {"code": "L-DB2E81BA"}, 8)
    plan = planned(worker_count=2)
    assert "12 are needed for all machines, so some will be missing" in plan["notes"][0]
    assert plan["quotas"][0]["need"] == 12


@pytest.mark.parametrize(
    ("code", "limit", "problem"),
    [
        ("L-0263D0A3", 4, None),
        ("L-0263D0A3", 3, "is 3 addresses, of which 2 are in use outside this cluster: the cluster needs 2. Request 4"),
        ("L-F678F1CE", 2, "is 2 VPCs, of which 2 are in use outside this cluster: the cluster needs 1. Request 3"),
    ],
)
def test_what_all_clusters_of_the_account_have_counts(
    refused: Any, planned: Any, aws: Account, code: str, limit: int, problem: str | None
) -> None:
    ec2 = aws.client("ec2")
    tags = [{"Key": "deeplearning:cluster", "Value": "other"}]
    for kind in ("elastic-ip", "vpc"):
        specified = [{"ResourceType": kind, "Tags": tags}]
        if kind == "vpc":
            ec2.create_vpc(CidrBlock="10.9.0.0/16", TagSpecifications=specified)
        else:
            for _number in range(2):
                ec2.allocate_address(TagSpecifications=specified)
    aws.cloud.faults.add("quota", {"code": code}, limit)
    if problem:
        assert problem in refused()[0]
    else:
        planned()


@pytest.mark.parametrize(
    ("settings", "emr", "addresses", "vpcs"),
    [
        ({}, False, 2, 1),
        ({"public": False}, False, 1, 1),
        ({"vpc_id": "vpc-1"}, False, 1, 0),
        ({"vpc_id": "vpc-1", "public": False}, False, 0, 0),
        ({}, True, 0, 1),
        ({"public": False}, True, 1, 1),
    ],
)
def test_what_a_cluster_needs_of_the_account(settings: dict[str, Any], emr: bool, addresses: int, vpcs: int) -> None:
    needs = quotas.account_needs({"vpc_id": "", "public": True, **settings}, emr)
    assert (needs.get(quotas.ADDRESSES, 0), needs.get(quotas.VPCS, 0)) == (addresses, vpcs)


def test_a_new_account_has_the_default_quotas(planned: Any, aws: Account) -> None:
    own = planned(worker_count=2)["quotas"]
    aws.cloud.faults.add("default-quotas", {})
    assert planned(worker_count=2)["quotas"] == own and own[0]["need"] == 12


def test_spot_has_a_quota_of_its_own(refused: Any, planned: Any, aws: Account) -> None:
    aws.cloud.faults.add("quota", {"code": "L-3819A6DF"}, 0)
    (problem,) = refused(spot=True)
    assert "L-3819A6DF" in problem
    assert planned()["notes"] == []


def network_of(aws: Account, zones: tuple[str, str] = ("us-east-1b", "us-east-1b")) -> dict[str, Any]:
    """A VPC with a public subnet and a private one."""
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{n}.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for n, zone in enumerate(zones)
    ]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(VpcId=vpc, InternetGatewayId=gateway)
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=subnets[0], AllocationId=address)["NatGateway"]["NatGatewayId"]
    aws.cloud.clock.advance(100)
    for subnet, way in zip(subnets, ({"GatewayId": gateway}, {"NatGatewayId": nat}), strict=True):
        table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
        ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **way)
        ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    return {"vpc_id": vpc, "public_subnet_ids": [subnets[0]], "private_subnet_ids": [subnets[1]]}


def test_an_existing_network(planned: Any, aws: Account) -> None:
    options = network_of(aws)
    plan = planned(**options)
    assert plan["zones"] == ["us-east-1b"]
    assert plan["vpc"]["subnets"] == {
        "us-east-1b": {"public": options["public_subnet_ids"][0], "private": options["private_subnet_ids"][0]}
    }
    assert plan["vpc"]["cidr"] == "10.9.0.0/16"


def test_an_existing_network_that_is_none(refused: Any, aws: Account) -> None:
    options = network_of(aws)
    swapped = {
        **options,
        "public_subnet_ids": options["private_subnet_ids"],
        "private_subnet_ids": options["public_subnet_ids"],
    }
    first, second = refused(**swapped)
    assert "and the master needs one with an internet gateway" in first
    assert "it is a public one" in second
    other = network_of(aws)
    (problem, *_more) = refused(**{**options, "public_subnet_ids": other["public_subnet_ids"]})
    assert f"it belongs to {other['vpc_id']} and not to {options['vpc_id']}" in problem
    (problem,) = refused(**network_of(aws, ("us-east-1a", "us-east-1b")))
    assert problem.startswith("No zone has both a public and a private one of the given subnets (subnet-")


def test_zones_without_the_subnets(refused: Any, aws: Account) -> None:
    (problem,) = refused(**network_of(aws), availability_zones=["us-east-1a"])
    assert problem == (
        "The cluster cannot be in us-east-1a, although the instance types are available there: the given subnets are "
        "in us-east-1b."
    )


def file_system(aws: Account, token: str, subnet: str = "", cluster: str = "") -> str:
    efs = aws.client("efs")
    tags = [{"Key": "deeplearning:cluster", "Value": cluster}] if cluster else []
    created: str = efs.create_file_system(CreationToken=token, Tags=tags)["FileSystemId"]
    aws.cloud.clock.advance(60)
    if subnet:
        efs.create_mount_target(FileSystemId=created, SubnetId=subnet)
        aws.cloud.clock.advance(300)
    return created


def test_the_file_system_that_was_kept_is_found_again(planned: Any, aws: Account) -> None:
    kept = file_system(aws, "red", cluster="red")
    file_system(aws, "blue", cluster="blue")
    file_system(aws, "other")
    plan = planned()
    assert plan["efs"] == {"id": kept, "external": False, "zone": "", "throughput": "bursting", "mount_targets": []}


def test_the_mode_of_a_kept_file_system_changes_only_by_the_setting_and_the_plan_says_so(
    planned: Any, aws: Account
) -> None:
    kept = file_system(aws, "red", cluster="red")
    plan = planned()
    assert plan["file_system_changes"] == [] and not any(line.startswith("  Changes") for line in plan["lines"])
    plan = planned(efs_throughput="elastic")
    assert (plan["exists"], plan["efs"]["throughput"]) == (False, "elastic")
    change = f"  Changes      throughput mode of file system {kept} bursting → elastic"
    assert change in plan["lines"] and change in plan["brief"]


def test_a_file_system_of_another_network_is_refused(refused: Any, planned: Any, aws: Account) -> None:
    options = network_of(aws)
    efs = file_system(aws, "theirs", options["private_subnet_ids"][0])
    (problem,) = refused(efs_id=efs)
    assert problem.startswith(f"The file system {efs} has mount targets in {options['vpc_id']}, and the cluster gets a")
    plan = planned(efs_id=efs, **options)
    assert plan["efs"]["external"] is True
    assert [target["subnet_id"] for target in plan["efs"]["mount_targets"]] == options["private_subnet_ids"]


def test_two_that_claim_to_be_the_clusters_own(refused: Any, aws: Account) -> None:
    file_system(aws, "red", cluster="red")
    file_system(aws, "another", cluster="red")
    assert "all have this cluster's tag: choose the one to use" in refused()[0]


def test_two_addresses_of_one_name_are_duplicates(refused: Any, aws: Account) -> None:
    tags = [{"Key": "deeplearning:cluster", "Value": "red"}, {"Key": "Name", "Value": "red-nat"}]
    specification = [{"ResourceType": "elastic-ip", "Tags": tags}]
    ec2 = aws.client("ec2")
    _first, second = sorted(
        ec2.allocate_address(Domain="vpc", TagSpecifications=specification)["AllocationId"] for _number in range(2)
    )
    assert f"-e remove_duplicates={second}" in refused()[0]
    assert len(ec2.describe_addresses()["Addresses"]) == 2


@pytest.mark.parametrize("action", ["ec2:DescribeInstanceTypes", "ssm:GetParameters", "efs:DescribeFileSystems"])
def test_a_missing_permission_is_reported_with_the_other_problems(refused: Any, aws: Account, action: str) -> None:
    words = {"code": "AccessDeniedException", "message": "No.", "status": 403}
    aws.cloud.faults.add("error", {"action": action}, words)
    problems = refused(key_name="missing")
    assert len(problems) == 2
    assert f"AWS does not allow {action.replace('efs:', 'elasticfilesystem:')} to these credentials" in "".join(
        problems
    )


def test_throttling_breaks_nothing(planned: Any, aws: Account) -> None:
    aws.cloud.faults.seed(2)
    aws.cloud.faults.add("throttle", {}, 0.3)
    assert planned()["zones"]


def test_without_credentials_there_is_one_sentence(refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (problem,) = refused()
    assert problem.startswith("AWS credentials are missing")


# --- Tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("g5.xlarge", "L-DB2E81BA"),
        ("gr6.4xlarge", "L-DB2E81BA"),
        ("p5.48xlarge", "L-417A185B"),
        ("t3.medium", "L-1216C47A"),
        ("trn1.2xlarge", "L-2C3B7624"),
        ("x2idn.16xlarge", "L-7295265B"),
        ("inf2.xlarge", "L-1945791B"),
    ],
)
def test_which_quota_a_type_counts_towards(kind: str, code: str) -> None:
    assert quotas.code_of(kind, spot=False) == code


def test_machines_of_one_quota_add_up() -> None:
    machines = [quotas.MachineCount("g5.xlarge", 4, False, 1, 1), quotas.MachineCount("g5.2xlarge", 8, False, 2, 5)]
    assert quotas.needs(machines) == {"L-DB2E81BA": (20, 44)}
    assert quotas.needs([*machines, quotas.MachineCount("g5.xlarge", 4, True, 0, 1)])["L-3819A6DF"] == (0, 4)


def test_other_instances_count_as_in_use() -> None:
    running = [
        {"InstanceType": "g5.xlarge", "CpuOptions": {"CoreCount": 2, "ThreadsPerCore": 2}},
        {"InstanceType": "g5.xlarge", "CpuOptions": {"CoreCount": 2, "ThreadsPerCore": 2}, "InstanceLifecycle": "spot"},
        {"InstanceType": "t3.medium", "CpuOptions": {"CoreCount": 1, "ThreadsPerCore": 2}},
    ]
    assert quotas.vcpus_of(running, "L-DB2E81BA") == 4
    (finding,) = quotas.check("us-east-1", {**MANY, "Value": 8.0}, (8, 8), 4)
    assert finding.is_problem
    assert "of which 4 are in use outside this cluster: at least 8 are needed" in finding.text
    assert "Request 12 " in finding.text
    assert list(quotas.check("us-east-1", {**MANY, "Value": 12.0}, (8, 8), 4)) == []


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20261016", "ubuntu"),
        ("Deep Learning Base OSS Nvidia Driver GPU AMI (Amazon Linux 2023) 20261016", "ec2-user"),
        ("al2023-ami-2023.1", "ec2-user"),
        ("debian-12-amd64", "admin"),
        ("Rocky-9-EC2", "rocky"),
        ("my image", ""),
    ],
)
def test_the_user_follows_from_the_image(name: str, user: str) -> None:
    assert images.user_of({"Name": name}) == user


KIND = {"name": "g5.xlarge", "gpus": 1, "gpu_maker": "NVIDIA", "architectures": ["x86_64"]}


@pytest.mark.parametrize(
    ("image", "kind", "message"),
    [
        ("Deep Learning OSS Nvidia Driver AMI", {}, ""),
        ("Deep Learning OSS Nvidia Driver AMI", {"name": "p2.xlarge"}, "no current image has a driver"),
        ("Deep Learning Proprietary Nvidia Driver AMI", {"name": "g2.2xlarge"}, "no current image has a driver"),
        ("Deep Learning OSS Nvidia Driver AMI", {"name": "g3s.xlarge"}, "open driver"),
        ("Deep Learning OSS Nvidia Driver AMI", {"name": "p3dn.24xlarge"}, "open driver"),
        ("Deep Learning Proprietary Nvidia Driver AMI", {"name": "p3.2xlarge"}, ""),
        ("Deep Learning Proprietary Nvidia Driver AMI", {"name": "p6-b200.48xlarge"}, "proprietary driver"),
        ("Deep Learning OSS Nvidia Driver AMI", {"name": "g4ad.xlarge", "gpu_maker": "AMD"}, "the type has AMD's"),
        ("Deep Learning OSS Nvidia Driver AMI", {"name": "t3.medium", "gpus": 0, "gpu_maker": ""}, ""),
        ("mine", {"name": "g2.2xlarge"}, ""),
        ("mine", {"architectures": ["arm64"]}, "that is for x86_64, and the type is arm64"),
    ],
)
def test_which_types_can_run_an_image(image: str, kind: dict[str, Any], message: str) -> None:
    why = images.misfit({"Name": image, "Architecture": "x86_64"}, {**KIND, **kind})
    assert (message in why) if message else not why


def test_the_way_out_of_a_subnet() -> None:
    main = {"Associations": [{"Main": True}], "Routes": [{"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1"}]}
    own = {
        "Associations": [{"SubnetId": "subnet-1"}],
        "Routes": [
            {"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local"},
            {"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"},
        ],
    }
    assert network.default_route_target("subnet-1", [main, own]) == "nat-1"
    assert network.default_route_target("subnet-2", [own, main]) == "igw-1"
    assert network.default_route_target("subnet-2", [own]) == ""
    blackhole = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1", "State": "blackhole"}
    assert network.default_route_target("subnet-1", [{**own, "Routes": [blackhole]}]) == ""


def hourly(worker: str = "g5.xlarge", workers: int = 2, public: bool = True) -> dict[str, Any]:
    return hourly_of(LIST, "g5.xlarge", worker, worker_count=workers, public=public)


def test_what_it_costs() -> None:
    cost = hourly()
    assert (cost["known"], cost["source"]) == (True, f"AWS's Price List API, {DATE}")
    assert cost["amount"] == pytest.approx(3 * 1.006 + 3 * 100 * 0.08 / 730 + 0.045 + 0.01, abs=0.001)
    unknown = hourly(worker="u7i-12tb.224xlarge", workers=1)
    assert unknown["known"] is False
    private = hourly(public=False)
    assert private["amount"] == pytest.approx(cost["amount"] - 0.005)
    assert any("not known  1 x worker u7i-12tb" in line for line in prices.lines(unknown))
    assert any("an hour in all" in line and "and what is not known" in line for line in prices.lines(unknown))


def test_prices_that_cannot_be_read_are_unknown(planned: Any, aws: Account) -> None:
    today = planned()["hourly"]
    assert today["known"] and today["source"] == f"AWS's Price List API, {PRICES_DATE}"
    aws.cloud.faults.add("error", {"action": "pricing:GetProducts"}, DENIED)
    plan = planned(max_hourly_cost="")
    assert (plan["hourly"]["amount"], plan["hourly"]["known"]) == (0, False)
    text = "\n".join(plan["lines"])
    assert "Prices: unknown: AWS's Price List API has not answered." in text
    assert "File system: price not known." in text
    assert "Each GB read from the file system or written to it costs an amount that is not known." in text


def test_a_limit_of_the_hourly_cost(refused: Any, planned: Any) -> None:
    assert planned(max_hourly_cost=2.2)["hourly"]["amount"] < 2.2
    (problem,) = refused(max_hourly_cost=2)
    assert problem.startswith(
        "cluster_max_hourly_cost is 2.0: with all machines the cluster costs up to 2.09 USD an hour"
    )
    assert problem.endswith(
        "take fewer or smaller machines, or raise this limit. Example: -e cluster_max_hourly_cost=3"
    )


def test_without_a_setting_the_limit_is_50_dollars(refused: Any, planned: Any) -> None:
    (problem,) = [line for line in refused(instance_type="g5.xlarge", worker_count=60) if "hourly_cost" in line]
    assert problem.startswith("cluster_max_hourly_cost is 50: ")
    assert problem.endswith("Example: -e cluster_max_hourly_cost=63")


def test_a_gpu_type_without_a_price_is_refused_under_a_limit(refused: Any, planned: Any, aws: Account) -> None:
    aws.cloud.faults.add("error", {"action": "pricing:GetProducts"}, DENIED)
    (problem,) = refused()
    assert problem == (
        "cluster_max_hourly_cost is 50: the price of master g5.xlarge, worker g5.xlarge is not known, so it cannot "
        "be compared with the limit. Prices come from AWS's price list, which needs pricing:GetProducts. To go without "
        "a limit, give it empty. Example: -e cluster_max_hourly_cost="
    )
    assert planned(max_hourly_cost="")["exists"] is False
    plan = planned(instance_type="c5.large")
    (text,) = [note for note in plan["notes"] if "hourly_cost" in note]
    assert text.startswith("the price of master c5.large, worker c5.large, ") and "leaves it out" in text


def test_the_halves_of_a_network_are_its_subnets() -> None:
    assert network.halves("10.0.0.0/16") == ("10.0.0.0/17", "10.0.128.0/17")
    assert network.halves("10.0.0.0/27") == ("10.0.0.0/28", "10.0.0.16/28")


@pytest.mark.parametrize(("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")])
def test_regions_of_other_partitions_are_refused(region: str, partition: str) -> None:
    with pytest.raises(UserError, match=f"cluster_region is {region}, which is in the partition {partition}: "):
        planner.check_region(Aws(region))
    planner.check_region(Aws("eu-west-1"))
