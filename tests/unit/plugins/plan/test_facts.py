"""What is read from AWS for a plan, by the account that it is read from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws, AwsError
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.names import tag_list
from ansible_collections.deeplearning.aws.plugins.module_utils.plan import facts
from ansible_collections.deeplearning.aws.plugins.module_utils.plan.facts import AccountFacts
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import setting_rules

from localcloud.testing.latency import Latency
from tests.unit.conftest import Account

Read = Callable[..., AccountFacts]
BUCKET = "logs-of-ours"
DENIED = {"code": "AccessDeniedException", "message": "No.", "status": 403}


@pytest.fixture
def read(aws: Account) -> Read:
    def gather(emr: bool = True, **settings: Any) -> AccountFacts:
        minimum = {
            "name": "red",
            "ssh_allowed_cidrs": ["198.51.100.1/32"],
            "key_name": "my-key",
            "region": "us-east-1",
            "instance_type": "m5.xlarge",
        }
        checked = setting_rules.check({f"cluster_{key}": value for key, value in {**minimum, **settings}.items()}, emr)
        assert checked.problems == []
        cluster = setting_rules.complete(checked.values, emr)
        return facts.gather_facts(Aws("us-east-1"), cluster, {"pytorch": "1"}, emr)

    return gather


def test_a_release_has_applications_and_types(read: Read, aws: Account) -> None:
    gathered = read()
    assert gathered.emr and gathered.failures == () and gathered.pins == {"pytorch": "1"}
    assert {"hadoop", "spark"} <= set(gathered.emr.applications or ())
    assert "m5.xlarge" in (gathered.emr.types or ()) and not set(gathered.emr.types or ()) & {"hadoop"}
    assert gathered.emr.log_bucket_problem == "" and "s3:HeadBucket" not in aws.calls()
    assert {"machine m5.xlarge, hour", "EMR on m5.xlarge, hour"} < set(gathered.prices.current)


def test_all_types_of_a_release_are_read_page_by_page(
    read: Read, aws: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read().emr
    call = Aws.call
    pages = iter([("", ["a.large", "b.large"]), ("2", ["c.large"]), ("3", [])])

    def paged(self: Aws, service: str, operation: str, **params: Any) -> dict[str, Any]:
        if operation != "list_supported_instance_types":
            return call(self, service, operation, **params)
        marker, names = next(pages)
        assert (params["ReleaseLabel"], params.get("Marker", "")) == ("emr-7.14.0", marker)
        following = {"": {"Marker": "2"}, "2": {"Marker": "3"}}.get(marker, {})
        return {**({"SupportedInstanceTypes": [{"Type": name} for name in names]} if names else {}), **following}

    monkeypatch.setattr(Aws, "call", paged)
    emr = read().emr
    assert emr and whole and emr.types == ["a.large", "b.large", "c.large"] and emr.applications == whole.applications


def test_a_release_that_does_not_exist_has_no_applications_and_its_types_are_not_read(read: Read, aws: Account) -> None:
    gathered = read(emr_release="emr-7.99.0")
    assert gathered.emr and (gathered.emr.applications, gathered.emr.types) == ([], None)
    assert gathered.failures == () and "emr:ListSupportedInstanceTypes" not in aws.calls()


def test_the_release_is_the_newest_of_its_series(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    call = Aws.call
    pages = iter([("", ["emr-7.9.0", "emr-7.14.0"]), ("2", ["emr-7.13.1", "emr-7.15.0-beta"])])

    def paged(self: Aws, service: str, operation: str, **params: Any) -> dict[str, Any]:
        if operation != "list_release_labels":
            return call(self, service, operation, **params)
        token, labels = next(pages)
        assert (params["Filters"], params.get("NextToken", "")) == ({"Prefix": "emr-7."}, token)
        return {"ReleaseLabels": labels, **({} if token else {"NextToken": "2"})}

    monkeypatch.setattr(Aws, "call", paged)
    gathered = read().emr
    assert gathered and gathered.release == "emr-7.14.0" and gathered.applications


def test_the_accounts_own_key_of_new_disks_is_read(read: Read, aws: Account) -> None:
    assert read(emr=False).disk_key == "" and "ec2:GetEbsDefaultKmsKeyId" not in aws.calls()
    key = "arn:aws:kms:us-east-1:123456789012:key/1"
    aws.cloud.faults.add("ebs-key", {}, key)
    assert read(emr=False).disk_key == key
    before = len(aws.calls())
    assert read(emr=True).disk_key == "" and "ec2:GetEbsEncryptionByDefault" not in aws.calls()[before:]


def test_the_key_of_aws_is_none_of_the_accounts_own(read: Read, aws: Account) -> None:
    aws.cloud.faults.add("ebs-key", {}, "alias/aws/ebs")
    assert read(emr=False).disk_key == "" and "ec2:GetEbsDefaultKmsKeyId" in aws.calls()


@pytest.mark.parametrize("action", ["ec2:GetEbsEncryptionByDefault", "ec2:GetEbsDefaultKmsKeyId"])
def test_a_key_of_disks_that_may_not_be_read_is_no_failure(read: Read, aws: Account, action: str) -> None:
    aws.cloud.faults.add("ebs-key", {}, "arn:aws:kms:us-east-1:123456789012:key/1")
    aws.cloud.faults.add("error", {"action": action}, DENIED)
    gathered = read(emr=False)
    assert (gathered.disk_key, gathered.failures) == ("", ()) and action in aws.calls()


def test_a_release_of_the_settings_is_not_looked_up(read: Read, aws: Account) -> None:
    gathered = read(emr_release="emr-7.12.0").emr
    assert gathered and gathered.release == "emr-7.12.0" and "emr:ListReleaseLabels" not in aws.calls()


def test_releases_that_may_not_be_listed_are_a_failure(read: Read, aws: Account) -> None:
    aws.cloud.faults.add("error", {"action": "emr:ListReleaseLabels"}, DENIED)
    gathered = read()
    (failure,) = gathered.failures
    assert gathered.emr and gathered.emr.release == "" and "elasticmapreduce:ListReleaseLabels" in failure


@pytest.mark.parametrize(
    ("action", "unknown", "permission"),
    [
        ("emr:DescribeReleaseLabel", ("applications", "types"), "elasticmapreduce:DescribeReleaseLabel"),
        ("emr:ListSupportedInstanceTypes", ("types",), "elasticmapreduce:ListSupportedInstanceTypes"),
    ],
)
def test_what_may_not_be_read_is_unknown(
    read: Read, aws: Account, action: str, unknown: tuple[str, ...], permission: str
) -> None:
    aws.cloud.faults.add("error", {"action": action}, DENIED)
    gathered = read()
    assert gathered.emr
    assert {name for name in ("applications", "types") if getattr(gathered.emr, name) is None} == set(unknown)
    (failure,) = gathered.failures
    assert permission in failure


def test_a_cluster_that_lives_keeps_its_release(read: Read, aws: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        facts, "find_clusters", lambda _aws, name: [{"Id": "j-1", "Name": name, "ReleaseLabel": "emr-7.5.0"}]
    )
    gathered = read()
    assert gathered.emr_clusters == [{"Id": "j-1", "Name": "red", "ReleaseLabel": "emr-7.5.0"}]
    assert gathered.emr and gathered.emr.release == "emr-7.5.0" and "emr:ListReleaseLabels" not in aws.calls()
    assert gathered.emr and (gathered.emr.applications, gathered.emr.types) == (None, None)
    assert "emr:DescribeReleaseLabel" not in aws.calls()


def test_emr_clusters_that_may_not_be_listed_are_unknown(read: Read, aws: Account) -> None:
    aws.cloud.faults.add("error", {"action": "emr:ListClusters"}, DENIED)
    for emr in (True, False):
        gathered = read(emr)
        assert gathered.emr_clusters is None and len(gathered.failures) == 1
        assert (gathered.emr is not None) is emr


@pytest.mark.parametrize(
    ("bucket", "fault", "problem"),
    [
        (BUCKET, None, ""),
        ("no-such-bucket", None, "there is no bucket no-such-bucket"),
        (BUCKET, DENIED, f"the bucket {BUCKET} cannot be used, as it does not belong to this account or refuses"),
    ],
)
def test_the_bucket_for_logs_is_checked(
    read: Read, aws: Account, bucket: str, fault: dict[str, Any] | None, problem: str
) -> None:
    aws.client("s3").create_bucket(Bucket=BUCKET)
    if fault:
        aws.cloud.faults.add("error", {"action": "s3:HeadBucket"}, fault)
    gathered = read(emr_log_uri=f"s3://{bucket}/logs/of/emr/")
    assert gathered.emr and gathered.emr.log_bucket_problem.startswith(problem)
    assert bool(gathered.emr.log_bucket_problem) == bool(problem) and gathered.failures == ()


def test_the_bucket_for_logs_must_be_the_accounts(read: Read, aws: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.client("s3").create_bucket(Bucket=BUCKET)
    aws.cloud.faults.add("foreign-bucket", {"bucket": BUCKET}, "210987654321")
    gathered = read(emr_log_uri=f"s3://{BUCKET}/logs")
    assert gathered.emr and "does not belong to this account" in gathered.emr.log_bucket_problem


def test_credentials_that_end_while_the_bucket_is_checked_stop_all(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    call = Aws.call

    def ends(self: Aws, service: str, operation: str, **params: Any) -> dict[str, Any]:
        if operation == "head_bucket":
            raise AwsError("The AWS credentials have expired.", "400", is_fatal=True)
        return call(self, service, operation, **params)

    monkeypatch.setattr(Aws, "call", ends)
    with pytest.raises(AwsError, match="have expired"):
        read(emr_log_uri="s3://logs/of/emr")


@pytest.mark.parametrize("action", ["ec2:DescribeInstanceTypes", "emr:DescribeReleaseLabel", "emr:ListClusters"])
def test_credentials_that_end_are_no_missing_permission(read: Read, aws: Account, action: str) -> None:
    words = {"code": "ExpiredTokenException", "message": "It is expired.", "status": 400}
    aws.cloud.faults.add("error", {"action": action}, words)
    with pytest.raises(AwsError, match="The AWS credentials have expired"):
        read()


def test_without_emr_nothing_of_it_is_read(read: Read, aws: Account) -> None:
    gathered = read(emr=False)
    assert gathered.emr is None and gathered.emr_clusters == []
    assert {call for call in aws.calls() if call.startswith("emr:")} == {"emr:ListClusters"}
    assert (
        "machine m5.xlarge, hour" in gathered.prices.current and "EMR on m5.xlarge, hour" not in gathered.prices.current
    )


def test_of_a_vpc_of_the_settings_its_parts_are_read_and_of_no_other(read: Read, aws: Account) -> None:
    ec2 = aws.client("ec2")
    vpcs = [ec2.create_vpc(CidrBlock=f"10.{number}.0.0/16")["Vpc"]["VpcId"] for number in range(2)]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.{number}.{part}.0/24")["Subnet"]["SubnetId"]
        for number, vpc in enumerate(vpcs)
        for part in range(3)
    ]
    groups = [ec2.create_security_group(GroupName="g", Description="g", VpcId=vpc)["GroupId"] for vpc in vpcs]
    for vpc in vpcs:
        ec2.create_vpc_endpoint(VpcId=vpc, ServiceName="com.amazonaws.us-east-1.s3", VpcEndpointType="Gateway")
    gathered = read(
        emr=False,
        vpc_id=vpcs[0],
        public_subnet_ids=[subnets[0]],
        private_subnet_ids=[subnets[1]],
        security_group_ids=[groups[0]],
    )
    assert gathered.failures == () and [vpc["VpcId"] for vpc in gathered.vpcs or ()] == [vpcs[0]]
    assert {subnet["SubnetId"] for subnet in gathered.subnets or ()} == set(subnets[:2])
    assert [endpoint["VpcId"] for endpoint in gathered.endpoints or ()] == [vpcs[0]]
    assert [table["VpcId"] for table in gathered.route_tables or ()] == [vpcs[0]]
    assert [group["GroupId"] for group in gathered.security_groups or ()] == [groups[0]]


def test_what_the_settings_do_not_name_is_not_read(read: Read, aws: Account) -> None:
    gathered = read(emr=False)
    assert (gathered.subnets, gathered.route_tables, gathered.endpoints) == (None, None, None)
    assert (gathered.security_groups, gathered.mount_targets) == (None, None)
    assert (gathered.vpcs, gathered.file_systems, gathered.groups, gathered.offered_types) == ([], [], [], [])
    assert list(gathered.types or ()) == ["m5.xlarge"]
    assert {zone["ZoneType"] for zone in gathered.zones or ()} == {"availability-zone"}
    assert {offer["InstanceType"] for offer in gathered.offers or ()} == {"m5.xlarge"}
    assert list(gathered.quotas) == ["L-1216C47A"] and gathered.key_pairs == []
    calls = {call.partition(":")[2] for call in aws.calls()}
    assert not calls & {"DescribeSubnets", "DescribeRouteTables", "DescribeVpcEndpoints", "DescribeMountTargets"}
    missing = read(emr=False, instance_type="m5.enormous")
    assert missing.types == {} and "m5.xlarge" in missing.offered_types and missing.offers == []
    assert list(missing.offered_types) == sorted(missing.offered_types)


def test_the_workers_are_those_of_their_group(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = Aws.pages

    def listed(self: Aws, service: str, operation: str, key: str, **params: Any) -> list[Any]:
        if operation != "describe_auto_scaling_groups":
            return pages(self, service, operation, key, **params)
        sizes = {"red-master": 1, "red-workers": 4}
        return [{"AutoScalingGroupName": name, "DesiredCapacity": size} for name, size in sizes.items()]

    monkeypatch.setattr(Aws, "pages", listed)
    gathered = read(emr=False, worker_count=4)
    assert (gathered.worker_count, gathered.leaving_workers) == (4, ())


def test_the_workers_that_would_leave_have_their_ranks_and_runs(
    read: Read, aws: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = Aws.pages
    tags = {"aws:autoscaling:groupName": "red-workers", "deeplearning:rank": "2", "deeplearning:run": "lenet-1"}
    machine = {"InstanceId": "i-2", "Tags": tag_list(tags)}
    asked = []

    def listed(self: Aws, service: str, operation: str, key: str, **params: Any) -> list[Any]:
        if operation == "describe_auto_scaling_groups":
            return [{"AutoScalingGroupName": "red-workers", "DesiredCapacity": 4}]
        if operation == "describe_instances" and params.get("Filters", [{}])[0].get("Name", "").startswith("tag:"):
            asked.append({condition["Name"]: condition["Values"] for condition in params["Filters"]})
            return [{"Instances": [machine]}]
        return pages(self, service, operation, key, **params)

    monkeypatch.setattr(Aws, "pages", listed)
    gathered = read(emr=False, worker_count=1)
    assert gathered.worker_count == 4 and list(gathered.leaving_workers) == [machine]
    states = {"instance-state-name": ["pending", "running"]}
    assert asked == [{"tag:aws:autoscaling:groupName": ["red-workers"], **states}]


def test_file_systems_of_others_and_those_that_end_do_not_count(
    read: Read, aws: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    efs = aws.client("efs")

    def create(token: str, cluster: str) -> str:
        tags = [{"Key": "deeplearning:cluster", "Value": cluster}]
        created = efs.create_file_system(CreationToken=token, Tags=tags)["FileSystemId"]
        aws.cloud.clock.advance(100)  # type: ignore[attr-defined]
        return str(created)

    ours, gone, theirs = create("a", "red"), create("b", "red"), create("c", "blue")
    monkeypatch.setattr(aws.cloud, "latency", Latency("test", {"file_system_deleted": 100}))
    efs.delete_file_system(FileSystemId=gone)
    gathered = read(emr=False)
    assert [system["FileSystemId"] for system in gathered.file_systems or ()] == [ours]
    assert gathered.mount_targets == []
    assert [system["FileSystemId"] for system in read(emr=False, efs_id=theirs).file_systems or ()] == [theirs]
    assert read(emr=False, efs_id="fs-0123456789abcdef0").file_systems == []
    assert read(emr=False, efs_id="fs-0123456789abcdef0").failures == ()


def test_the_facts_of_a_type() -> None:
    described = {
        "InstanceType": "g5.xlarge",
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 16384},
        "GpuInfo": {"Gpus": [{"Name": "A10G", "Manufacturer": "NVIDIA", "Count": 1}, {"Name": "B", "Count": 2}]},
        "InstanceStorageInfo": {"TotalSizeInGB": 250},
        "NetworkInfo": {
            "EfaSupported": True,
            "NetworkCards": [
                {"NetworkCardIndex": 0, "InterfaceTypes": ["interface", "efa-only"]},
                {"NetworkCardIndex": 1, "InterfaceTypes": ["interface"]},
                {"NetworkCardIndex": 2},
            ],
        },
        "PlacementGroupInfo": {"SupportedStrategies": ["cluster", "spread"]},
        "SupportedUsageClasses": ["on-demand", "spot"],
        "ProcessorInfo": {"SupportedArchitectures": ["i386", "x86_64"]},
    }
    assert facts.instance_type(described) == {
        "name": "g5.xlarge",
        "vcpus": 4,
        "memory_mib": 16384,
        "gpus": 3,
        "accelerated": True,
        "gpu_name": "A10G",
        "gpu_maker": "NVIDIA",
        "neuron_name": "",
        "efa_cards": [0],
        "instance_store_gib": 250e9 / 2**30,
        "placement": True,
        "spot": True,
        "architectures": ["i386", "x86_64"],
    }
    least = {"InstanceType": "t0", "VCpuInfo": {"DefaultVCpus": 1}}
    assert facts.instance_type(least) == {
        **{"name": "t0", "vcpus": 1, "memory_mib": 0, "gpus": 0, "gpu_name": "", "gpu_maker": "", "efa_cards": []},
        **{"accelerated": False, "neuron_name": ""},
        **{"instance_store_gib": 0, "placement": False, "spot": False, "architectures": []},
    }
    for kind in ("NeuronInfo", "InferenceAcceleratorInfo", "MediaAcceleratorInfo", "FpgaInfo"):
        assert facts.instance_type({**least, kind: {}})["accelerated"]
    trainium = {**least, "NeuronInfo": {"NeuronDevices": [{"Name": "Trainium3"}, {"Name": "other"}]}}
    assert facts.instance_type(trainium)["neuron_name"] == "Trainium3"
    without_efa = {**described, "NetworkInfo": {**described["NetworkInfo"], "EfaSupported": False}}  # type: ignore[dict-item]
    assert facts.instance_type(without_efa)["efa_cards"] == []
