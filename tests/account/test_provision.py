"""What site.yml makes in AWS, looked at attribute by attribute by plain boto3; that it repeats, moves to another zone,
keeps to its own cluster, and follows its settings. All of it is tried on one cluster, in another region than usual."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.boot import HOOK
from botocore.exceptions import ClientError

from localcloud.testing.catalog import API_ONLY, BASE
from tests.account.kit import CLOUD_HALF, account_in, new_session
from tests.account.observed import REGION, ZONES, Seen, play, tags
from tests.forking import ForkingPython

pytestmark = pytest.mark.gate

HERE = "198.51.100.1/32"
WITHOUT_NAT = f"{REGION}a"
NO_NAT = {
    "code": "NotAvailableInZone",
    "message": "Nat Gateway is not available in this availability zone",
    "status": 400,
}


def rules(permissions: list[Any]) -> set[tuple[Any, ...]]:
    return {
        (rule["IpProtocol"], rule.get("FromPort"), source)
        for rule in permissions
        for source in [block["CidrIp"] for block in rule.get("IpRanges", ())]
        + [pair["GroupId"] for pair in rule.get("UserIdGroupPairs", ())]
    }


def check_network(seen: Seen) -> None:
    vpc_id = seen.vpc()["VpcId"]
    assert seen.vpc()["CidrBlock"] == "10.0.0.0/16"
    for attribute in ("enableDnsSupport", "enableDnsHostnames"):
        answer = seen.ec2.describe_vpc_attribute(VpcId=vpc_id, Attribute=attribute)
        assert answer[attribute[0].upper() + attribute[1:]]["Value"]
    public, private = seen.subnet("public"), seen.subnet("private")
    assert {public["VpcId"], private["VpcId"]} == {vpc_id}
    assert public["AvailabilityZone"] == private["AvailabilityZone"]
    assert not public["MapPublicIpOnLaunch"] and not private["MapPublicIpOnLaunch"]

    gateway = seen.one("describe_internet_gateways", "InternetGateways", f"{seen.cluster}-igw")
    assert [attachment["VpcId"] for attachment in gateway["Attachments"]] == [vpc_id]
    gateways = seen.ec2.describe_nat_gateways(Filter=seen.ours)["NatGateways"]
    (nat,) = [gateway for gateway in gateways if gateway["State"] != "deleted"]
    seen.check_tags(nat, f"{seen.cluster}-nat")
    assert (nat["SubnetId"], nat["State"]) == (public["SubnetId"], "available")
    address = seen.one("describe_addresses", "Addresses", f"{seen.cluster}-nat")
    assert nat["NatGatewayAddresses"][0]["AllocationId"] == address["AllocationId"]

    ways = {"public": {"GatewayId": gateway["InternetGatewayId"]}, "private": {"NatGatewayId": nat["NatGatewayId"]}}
    for kind, way in ways.items():
        table = seen.table(kind)
        (default,) = [route for route in table["Routes"] if route.get("DestinationCidrBlock") == "0.0.0.0/0"]
        assert way.items() <= default.items()
        assert [association.get("SubnetId") for association in table["Associations"]] == [seen.subnet(kind)["SubnetId"]]
    endpoint = seen.one("describe_vpc_endpoints", "VpcEndpoints", f"{seen.cluster}-s3")
    assert endpoint["ServiceName"] == f"com.amazonaws.{seen.region}.s3" and endpoint["VpcEndpointType"] == "Gateway"
    assert set(endpoint["RouteTableIds"]) == {seen.table(kind)["RouteTableId"] for kind in ways}


def check_security_groups(seen: Seen) -> None:
    members, ssh, efs = (seen.group(kind) for kind in ("members", "ssh", "efs"))
    itself = ("-1", None, members["GroupId"])
    assert rules(members["IpPermissions"]) == {itself}
    assert rules(members["IpPermissionsEgress"]) == {itself, ("-1", None, "0.0.0.0/0")}
    assert rules(ssh["IpPermissions"]) == {("tcp", 22, HERE)}
    assert rules(efs["IpPermissions"]) == {("tcp", 2049, members["GroupId"])}
    assert not efs["IpPermissionsEgress"] and not ssh["IpPermissionsEgress"]


def check_storage(seen: Seen) -> None:
    system = seen.file_system()
    seen.check_tags(system, f"{seen.cluster}-efs")
    assert system["Encrypted"] and system["CreationToken"] == seen.cluster
    assert (system["PerformanceMode"], system["ThroughputMode"]) == ("generalPurpose", "elastic")
    (target,) = seen.targets()
    assert (target["SubnetId"], target["LifeCycleState"]) == (seen.subnet("private")["SubnetId"], "available")
    groups = seen.efs.describe_mount_target_security_groups(MountTargetId=target["MountTargetId"])
    assert groups["SecurityGroups"] == [seen.group("efs")["GroupId"]]


def check_bucket(seen: Seen) -> None:
    bucket = seen.bucket()
    (rule,) = seen.s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    blocked = seen.s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
    assert len(blocked) == 4 and all(blocked.values())
    actual = {tag["Key"]: tag["Value"] for tag in seen.s3.get_bucket_tagging(Bucket=bucket)["TagSet"]}
    assert actual["deeplearning:cluster"] == seen.cluster and actual["team"] == "research"


def check_iam(seen: Seen) -> None:
    bucket = f"arn:aws:s3:::{seen.bucket()}"
    for role in ("master", "worker"):
        name = f"{seen.cluster}-{seen.region}-{role}"
        profile = seen.iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
        assert [role["RoleName"] for role in profile["Roles"]] == [name]
        trust = seen.iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]["Statement"]
        assert [statement["Principal"] for statement in trust] == [{"Service": "ec2.amazonaws.com"}]
        assert tags(seen.iam.get_role(RoleName=name)["Role"])["deeplearning:cluster"] == seen.cluster
        assert seen.iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"] == []
        (policy,) = seen.iam.list_role_policies(RoleName=name)["PolicyNames"]
        document = seen.iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
        statements = {statement["Sid"]: statement for statement in document["Statement"]}
        assert statements["ReportItself"]["Resource"] == [bucket + "/members/${aws:userid}/report.json"]
        assert statements["WriteNothingElse"]["NotResource"] == statements["ReportItself"]["Resource"]
        data = f"arn:aws:s3:::123456789012-{seen.region}-deeplearning-data"
        assert statements["ListTheBuckets"]["Resource"] == [bucket, data]
        assert statements["ReadTheBuckets"]["Resource"] == [f"{bucket}/*", f"{data}/*"]
        for statement in ("ReadTheBuckets", "ListTheBuckets", "ReportItself"):
            assert statements[statement]["Condition"] == {"StringEquals": {"aws:ResourceAccount": "123456789012"}}
        assert statements["ReadFurtherData"]["Resource"] == ["arn:aws:s3:::datasets/imagenet/*"]
        assert statements["ListFurtherBucket1"]["Condition"] == {"StringLike": {"s3:prefix": ["imagenet/*"]}}
        assert "WriteFurtherData" not in statements
        assert ("AssignRanksAndMarkUse" in statements) == (role == "master")
    assert statements.keys() == {
        "ReadTheBuckets",
        "ListTheBuckets",
        "ReportItself",
        "ReadFurtherData",
        "ListFurtherBucket1",
        "WriteNothingElse",
        "AnswerTheLaunchHook",
    }
    name = f"{seen.cluster}-{seen.region}-master"
    document = seen.iam.get_role_policy(RoleName=name, PolicyName=policy)["PolicyDocument"]
    (ranks,) = [statement for statement in document["Statement"] if statement["Sid"] == "AssignRanksAndMarkUse"]
    assert ranks["Resource"] == [f"arn:aws:ec2:{seen.region}:123456789012:instance/*"]
    assert ranks["Condition"]["StringEquals"] == {"ec2:ResourceTag/deeplearning:cluster": seen.cluster}
    assert ranks["Condition"]["ForAllValues:StringEquals"] == {"aws:TagKeys": ["deeplearning:rank", "deeplearning:run"]}


def check_machines(seen: Seen, workers: int = 2) -> None:
    members, ssh = seen.group("members")["GroupId"], seen.group("ssh")["GroupId"]
    (key,) = seen.listed("describe_key_pairs", "KeyPairs")
    assert key["KeyName"] == seen.cluster
    expected = {"master": ("public", 1, [members, ssh], "master"), "workers": ("private", workers, [members], "worker")}
    for kind, (subnet, size, groups, role) in expected.items():
        template, version = seen.template(kind)
        seen.check_tags(
            {"Tags": [tag for tag in template["Tags"] if tag["Key"] != "deeplearning:image"]}, f"{seen.cluster}-{kind}"
        )
        data = version["LaunchTemplateData"]
        assert (data["ImageId"], data["InstanceType"], data["KeyName"]) == (API_ONLY.id, "t3.medium", seen.cluster)
        assert data["IamInstanceProfile"]["Arn"].endswith(f":instance-profile/{seen.cluster}-{seen.region}-{role}")
        if role == "master":
            (interface,) = data["NetworkInterfaces"]
            assert interface["AssociatePublicIpAddress"] and interface["Groups"] == groups
        else:
            assert data["SecurityGroupIds"] == groups and "NetworkInterfaces" not in data
        assert data["MetadataOptions"]["HttpTokens"] == "required"
        assert data["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
        assert data["MetadataOptions"]["InstanceMetadataTags"] == "disabled"
        (disk,) = data["BlockDeviceMappings"]
        assert disk["Ebs"] == {"VolumeSize": 100, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
        assert f'"role": "{role}"' in base64.b64decode(data["UserData"]).decode() and "Placement" not in data
        kinds = {specification["ResourceType"]: tags(specification) for specification in data["TagSpecifications"]}
        assert kinds.keys() == {"instance", "volume", "network-interface"}
        assert all(
            actual["deeplearning:role"] == role and actual["deeplearning:cluster"] == seen.cluster
            for actual in kinds.values()
        )

        group = seen.scaling_group(kind)
        assert (group["MinSize"], group["DesiredCapacity"], group["MaxSize"]) == (0, size, size)
        assert group["VPCZoneIdentifier"] == seen.subnet(subnet)["SubnetId"]
        assert group["LaunchTemplate"]["Version"] == str(version["VersionNumber"])
        assert [process["ProcessName"] for process in group["SuspendedProcesses"]] == ["AZRebalance"]
        passed_on = {tag["Key"]: tag["PropagateAtLaunch"] for tag in group["Tags"]}
        assert passed_on["deeplearning:role"] and not passed_on["Name"]
        assert len(group["Instances"]) == size
        (hook,) = seen.scaling.describe_lifecycle_hooks(AutoScalingGroupName=f"{seen.cluster}-{kind}")["LifecycleHooks"]
        assert (hook["LifecycleHookName"], hook["DefaultResult"]) == (HOOK, "ABANDON")

    master = seen.master()
    address = seen.one("describe_addresses", "Addresses", f"{seen.cluster}-master")
    assert address["InstanceId"] == master["InstanceId"] and master["PublicIpAddress"] == address["PublicIp"]
    for instance in seen.instances():
        actual = tags(instance)
        assert actual["deeplearning:cluster"] == seen.cluster and actual["team"] == "research"
        assert "deeplearning:rank" not in actual
        assert actual["Name"] == f"{seen.cluster}-{actual['deeplearning:role']}"
    assert len(seen.instances()) == workers + 1


def check_everything(seen: Seen) -> None:
    check_network(seen)
    check_security_groups(seen)
    check_storage(seen)
    check_bucket(seen)
    check_iam(seen)
    check_machines(seen)


@dataclass
class Made:
    """A cluster, and what was said when it was planned and made."""

    account: Any
    seen: Seen
    planned: Any
    planned_writes: list[str]
    created: Any


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory, forking: ForkingPython) -> Iterator[Made]:
    """Planned on an empty account, then made; small machines that do not boot."""
    with account_in(tmp_path_factory.mktemp("red"), forking=forking) as account:
        account.wants(
            "red",
            cluster_region=REGION,
            cluster_availability_zones=[WITHOUT_NAT, *ZONES],
            cluster_worker_count=2,
            cluster_ssh_allowed_cidrs=[HERE],
            cluster_tags={"team": "research"},
            cluster_s3_read=["datasets/imagenet"],
            provision_settle_seconds=1,
        )
        started = time.time()
        planned = play(account, CLOUD_HALF, "--check", "--diff")
        planned_writes = account.writes(started)
        account.cloud.faults.add("error", {"action": "ec2:CreateNatGateway"}, value=NO_NAT, left=1)
        account.cloud.faults.add("capacity", {"type": "t3.medium", "zone": ZONES[0]}, value=1)
        created = play(account, CLOUD_HALF)
        yield Made(account, Seen(account), planned, planned_writes, created)


def test_on_an_empty_account_check_mode_reads_as_a_plan(red: Made) -> None:
    assert red.planned_writes == [] and red.planned.changed > 0
    for task in ("Create the VPC", "Create the NAT gateway", "Create the route tables", "Create the S3 endpoint"):
        assert re.search(rf"TASK \[.* \| {task}\] .*\nchanged:", red.planned.output), task
    for line in ("changed: [localhost] => (item=red-workers)", f"cidr_ip: {HERE}", "+    name: red-efs"):
        assert line in red.planned.output


def test_the_result_matches_the_plan(red: Made) -> None:
    assert red.created.changed > 0
    assert f"Cluster red ({REGION}, account 123456789012) is ready" in red.created.output
    check_everything(red.seen)
    summary = json.loads((red.account.folder / ".deeplearning" / "red.json").read_text(encoding="utf-8"))
    assert summary["master"]["instance_id"] == red.seen.master()["InstanceId"]


@pytest.mark.parametrize("role", ["master", "worker"])
def test_no_member_can_change_what_the_cluster_was_made_with(red: Made, role: str) -> None:
    record = {"Bucket": f"red-123456789012-{REGION}", "Key": "settings.json"}
    body = red.account.client("s3", REGION).get_object(**record)["Body"].read()
    assert json.loads(body)["settings"]["cluster_worker_count"] == 2
    issued = red.account.cloud.credentials.issue(f"red-{REGION}-{role}", "i-0123456789abcdef0", 3600)
    session = new_session(issued.access_key, issued.secret, REGION, issued.token)
    client = session.client("s3", endpoint_url=red.account.endpoint)
    for operation in (client.put_object, client.delete_object):
        with pytest.raises(ClientError) as refused:
            operation(**record)
        assert refused.value.response["Error"]["Code"] == "AccessDenied"


def test_without_nat_gateways_or_room_in_a_zone_it_has_moved_to_the_next(red: Made) -> None:
    for zone in (WITHOUT_NAT, ZONES[0]):
        assert f"Remove what is in {zone}" in red.created.output
    assert red.created.output.count("Wait for the mount target]") == 1
    assert red.seen.subnet("private")["AvailabilityZone"] == ZONES[1]
    assert {instance["Placement"]["AvailabilityZone"] for instance in red.seen.instances()} == {ZONES[1]}


@pytest.mark.parametrize(
    "arguments",
    [pytest.param((), id="again"), pytest.param(("--check", "--diff"), id="check mode", marks=pytest.mark.long)],
)
def test_a_finished_one_is_left_alone(red: Made, arguments: tuple[str, ...]) -> None:
    """All of it runs as users run it. What is not given is as the cluster was made: workers, key, image."""
    which = ("cluster_name", "cluster_region", "provision_settle_seconds")
    settings = {name: red.account.settings[name] for name in which}
    before, started = red.seen.snapshot(), time.time()
    again = play(replace(red.account, settings=settings, forking=None), CLOUD_HALF, *arguments)
    assert again.changed == 0, again.output
    assert "Changes      none of the settings" in again.output
    assert red.account.writes(started) == []
    assert red.seen.snapshot() == before


def test_workers_that_a_run_uses_are_refused_before_anything_is_written(red: Made) -> None:
    worker = next(
        instance["InstanceId"] for instance in red.seen.instances() if tags(instance)["deeplearning:role"] == "worker"
    )
    used = {"Resources": [worker], "Tags": [{"Key": "deeplearning:rank", "Value": "3"}]}
    used["Tags"].append({"Key": "deeplearning:run", "Value": "lenet-1"})
    red.seen.ec2.create_tags(**used)
    started = time.time()
    refused = red.account.play(CLOUD_HALF, cluster_worker_count=0, remove_workers=2)
    written = red.account.writes(started)
    red.seen.ec2.delete_tags(Resources=[worker], Tags=[{"Key": tag["Key"]} for tag in used["Tags"]])
    output = " ".join(refused.output.split())
    assert refused.code == 2 and f"-e remove_in_use={worker} removes them all the same" in output, refused.output
    assert "deeplearning-worker3 (lenet-1)" in output and written == []


def test_without_its_record_the_plan_asks_for_what_aws_shows(red: Made) -> None:
    """A plan by the defaults would be of other machines, and say that nothing changes."""
    s3, record = red.account.client("s3", REGION), {"Bucket": red.seen.bucket(), "Key": "settings.json"}
    body = s3.get_object(**record)["Body"].read()
    s3.delete_object(**record)
    which = ("cluster_name", "cluster_region", "cluster_login_user")
    least = (*which, "cluster_ssh_allowed_cidrs", "cluster_public_key_file")
    plain = replace(red.account, settings={name: red.account.settings[name] for name in least})
    refused = plain.play("plan.yml")
    output = " ".join(refused.output.split())
    assert refused.code == 2, refused.output
    shown = {"cluster_image": "localcloud-api-only", "cluster_instance_type": "t3.medium"}
    for setting, value in shown.items():
        assert f"Example: -e {setting}={value}" in output, refused.output
    planned = plain.play("plan.yml", remove_workers=1, **shown | {"cluster_instance_type": "t3.large"})
    s3.put_object(**record, Body=body)
    for line in ("Changes      workers 2 → 1: 1 to be terminated", "type t3.medium → t3.large (new machines)"):
        assert line in planned.output, planned.output
    assert "the cluster's bucket has no record of its settings" in " ".join(planned.output.split())


@pytest.mark.long
def test_two_clusters_side_by_side_do_not_touch_each_other(red: Made) -> None:
    before = red.seen.snapshot()
    play(red.account, CLOUD_HALF, cluster_name="blue", cluster_availability_zones=[ZONES[1]])
    check_everything(Seen(red.account, "blue"))
    assert red.seen.snapshot() == before

    play(red.account, "destroy.yml", cluster_name="blue", destroy="blue", cluster_keep_efs=False)
    assert red.seen.snapshot() == before


def test_it_follows_its_settings_and_goes_without_a_trace(red: Made) -> None:
    """More workers, another image, another place to come from; what a user has added by hand stays."""
    account, seen = red.account, red.seen
    ssh = seen.group("ssh")["GroupId"]
    by_hand = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "192.0.2.7/32"}]}
    seen.ec2.authorize_security_group_ingress(GroupId=ssh, IpPermissions=[by_hand])
    before = {instance["InstanceId"] for instance in seen.instances()}
    refused = account.play("plan.yml", cluster_worker_count=1)
    assert refused.code == 2 and "-e remove_workers=1. To keep them" in " ".join(refused.output.split())
    account.settings.update(cluster_worker_count=3, cluster_image=BASE.id, cluster_ssh_allowed_cidrs=["203.0.113.0/24"])

    changed = play(account, CLOUD_HALF)
    assert changed.changed > 0 and "Changes      workers 2 → 3\n" in changed.output
    assert rules(seen.group("ssh")["IpPermissions"]) == {("tcp", 22, "203.0.113.0/24"), ("tcp", 22, "192.0.2.7/32")}
    for kind in ("master", "workers"):
        _, version = seen.template(kind)
        assert (version["VersionNumber"], version["LaunchTemplateData"]["ImageId"]) == (2, BASE.id)
        assert seen.scaling_group(kind)["LaunchTemplate"]["Version"] == "2"
    now = {instance["InstanceId"]: instance["ImageId"] for instance in seen.instances()}
    assert before < now.keys() and len(now) == 4
    assert {now[instance] for instance in before} == {API_ONLY.id}

    play(account, "destroy.yml", destroy="red", cluster_keep_efs=False)
    assert not seen.listed("describe_vpcs", "Vpcs") and not seen.listed("describe_addresses", "Addresses")
