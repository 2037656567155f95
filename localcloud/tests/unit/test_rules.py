"""Who may do what, as clients of AWS learn it: through the front, over HTTP, by the errors of each service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from localcloud.api import enforcement as rules
from localcloud.api.ec2.images import API_ONLY
from localcloud.api.iam.history import backend
from localcloud.core import cloud as core
from localcloud.core.caller import Caller
from localcloud.core.cloud import Call, Cloud
from localcloud.core.errors import AwsError
from localcloud.core.identity import Session
from localcloud.core.latency import Latency
from localcloud.iam import TABLE
from localcloud.testing.clock import ManualClock
from localcloud_kits.rules_kit import (
    EC2,
    REGION,
    ROOT,
    Aws,
    allow,
    deny,
    document,
    refused,
    tagged,
    tags,
    trust,
    when,
)

ALL = allow("*")
OURS = when("StringEquals", "aws:ResourceTag/cluster", "a")
BUCKET = "arn:aws:s3:::bucket-1"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time.time())


def launch(aws: Aws, **more: Any) -> str:
    """An instance that exists in the API alone."""
    params = {"ImageId": API_ONLY.id, "InstanceType": "t3.micro", "MinCount": 1, "MaxCount": 1, **more}
    return str(aws.ask("ec2", "RunInstances", **params)["Instances"][0]["InstanceId"])


# Actions, resources, conditions


def test_what_no_policy_allows_is_refused_until_one_does(aws: Aws) -> None:
    worker = aws.role("worker", allow("ec2:DescribeVpcs"))
    client = aws("ec2", worker)
    with refused(
        "UnauthorizedOperation",
        "You are not authorized to perform this operation. User: arn:aws:sts::123456789012:assumed-role/worker/one is "
        "not authorized to perform: ec2:DescribeInstances because no identity-based policy allows the "
        "ec2:DescribeInstances action",
    ):
        client.describe_instances()
    aws.policy("worker", allow("ec2:Describe*"))
    assert client.describe_instances()["Reservations"] == []
    before, after = aws.calls("DescribeInstances")
    assert before["result"] == "UnauthorizedOperation"
    assert (before["status"], after["result"], after["status"]) == (403, "ok", 200)
    assert before["caller"] == "arn:aws:sts::123456789012:assumed-role/worker/one"
    for call in (before, after):
        assert (call["action"], call["resource"]) == ("ec2:DescribeInstances", "*")
        assert call["required"] == [{"action": "ec2:DescribeInstances", "resource": "*"}]


def test_a_policy_bound_to_a_tag_ends_at_another_tag(aws: Aws) -> None:
    mine = launch(aws, TagSpecifications=tagged("instance", cluster="a"))
    other = launch(aws, TagSpecifications=tagged("instance", cluster="b"))
    client = aws("ec2", aws.role("worker", allow("ec2:TerminateInstances", f"{EC2}instance/*", **OURS)))
    with refused("UnauthorizedOperation", f"ec2:TerminateInstances on resource: {EC2}instance/{other}"):
        client.terminate_instances(InstanceIds=[other])
    with refused("UnauthorizedOperation"):
        client.terminate_instances(InstanceIds=[mine, other])
    client.terminate_instances(InstanceIds=[mine])
    assert [call["resource"].rpartition("/")[2] for call in aws.calls("TerminateInstances")] == [other, mine, mine]


def test_tags_count_late_for_policies(aws: Aws, clock: ManualClock) -> None:
    """As https://github.com/hashicorp/terraform-provider-aws/issues/6055 describes it."""

    def vpc(**more: Any) -> str:
        return str(aws("ec2").create_vpc(CidrBlock="10.0.0.0/16", **more)["Vpc"]["VpcId"])

    ours = {"TagSpecifications": tagged("vpc", cluster="a")}
    client = aws("ec2", aws.role("worker", allow("ec2:DeleteVpc", f"{EC2}vpc/*", **OURS)))
    old, untagged = vpc(**ours), vpc()
    aws.cloud.faults.add("late-tags", {}, 8.0)
    client.delete_vpc(VpcId=old)
    late, unused = vpc(**ours), vpc(**ours)
    aws("ec2").create_tags(Resources=[untagged], Tags=tags(cluster="a"))
    for seconds in (0, 7):
        clock.advance(seconds)
        for resource in (untagged, late):
            with refused("UnauthorizedOperation", f"ec2:DeleteVpc on resource: {EC2}vpc/{resource}"):
                client.delete_vpc(VpcId=resource)
    clock.advance(1)
    for resource in (untagged, late, unused):
        client.delete_vpc(VpcId=resource)


def test_tags_of_a_new_file_system_count_late(aws: Aws, clock: ManualClock) -> None:
    aws.cloud.faults.add("late-tags", {}, 8.0)
    system = aws("efs").create_file_system(CreationToken="t", Tags=tags(cluster="a"))["FileSystemId"]
    client = aws("efs", aws.role("worker", allow("elasticfilesystem:DeleteFileSystem", **OURS)))
    with refused("AccessDeniedException", "elasticfilesystem:DeleteFileSystem"):
        client.delete_file_system(FileSystemId=system)
    clock.advance(8)
    client.delete_file_system(FileSystemId=system)


def test_the_tags_that_a_request_brings_are_conditions_too(aws: Aws) -> None:
    asked = when("StringEquals", "aws:RequestTag/cluster", "a")
    client = aws("ec2", aws.role("worker", allow(["ec2:CreateVpc", "ec2:CreateTags"], **asked)))
    for wrong in ({}, {"TagSpecifications": tagged("vpc", cluster="b")}):
        with refused("UnauthorizedOperation", "ec2:CreateVpc"):
            client.create_vpc(CidrBlock="10.0.0.0/16", **wrong)
    client.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tagged("vpc", cluster="a"))
    aws.policy("worker", allow("ec2:CreateVpc", **asked))
    with refused("UnauthorizedOperation", f"ec2:CreateTags on resource: {EC2}vpc/*"):
        client.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tagged("vpc", cluster="a"))


def test_a_node_may_set_one_tag_on_its_own_cluster_and_no_other(aws: Aws) -> None:
    """What the master of a cluster has: ranks, and nothing else."""
    mine = launch(aws, TagSpecifications=tagged("instance", cluster="a"))
    other = launch(aws, TagSpecifications=tagged("instance", cluster="b"))
    condition = {**OURS["Condition"], "ForAllValues:StringEquals": {"aws:TagKeys": ["rank"]}}
    client = aws("ec2", aws.role("master", allow("ec2:CreateTags", f"{EC2}instance/*", Condition=condition)))
    client.create_tags(Resources=[mine], Tags=tags(rank="1"))
    for resource, new_tags in ((mine, tags(cluster="b")), (mine, tags(rank="1", cluster="b")), (other, tags(rank="1"))):
        with refused("UnauthorizedOperation", "ec2:CreateTags"):
            client.create_tags(Resources=[resource], Tags=new_tags)


def test_an_explicit_deny_wins(aws: Aws) -> None:
    client = aws("ec2", aws.role("worker", ALL, deny("ec2:CreateVpc")))
    client.describe_vpcs()
    with refused("UnauthorizedOperation", "with an explicit deny in an identity-based policy"):
        client.create_vpc(CidrBlock="10.0.0.0/16")


def test_what_the_table_does_not_know_is_refused(aws: Aws) -> None:
    with refused("UnauthorizedOperation", "The local cloud does not know which permissions ec2:DescribeFpgaImages"):
        aws("ec2").describe_fpga_images()
    [call] = aws.calls("DescribeFpgaImages")
    assert (call["action"], call["result"], call["required"]) == (
        "ec2:DescribeFpgaImages",
        "UnauthorizedOperation",
        [],
    )


def test_the_table_knows_what_the_local_cloud_answers(cloud: Cloud) -> None:
    assert [name for name in core._handlers if name not in TABLE] == []


def test_some_calls_need_nothing(aws: Aws) -> None:
    assert aws("sts", aws.role("worker")).get_caller_identity()["Account"] == "123456789012"
    assert [(call["action"], call["required"]) for call in aws.calls("GetCallerIdentity")] == [("", [])]


@pytest.mark.parametrize(
    ("service", "operation", "params", "code", "action"),
    [
        ("ec2", "describe_vpcs", {}, "UnauthorizedOperation", "ec2:DescribeVpcs"),
        (
            "autoscaling",
            "describe_auto_scaling_groups",
            {},
            "AccessDenied",
            "autoscaling:DescribeAutoScalingGroups",
        ),
        ("iam", "get_role", {"RoleName": "worker"}, "AccessDenied", "iam:GetRole"),
        ("ssm", "get_parameter", {"Name": "/a"}, "AccessDeniedException", "ssm:GetParameter"),
        (
            "service-quotas",
            "get_service_quota",
            {"ServiceCode": "ec2", "QuotaCode": "L-1216C47A"},
            "AccessDeniedException",
            "servicequotas:GetServiceQuota",
        ),
        (
            "efs",
            "describe_file_systems",
            {},
            "AccessDeniedException",
            "elasticfilesystem:DescribeFileSystems",
        ),
        ("s3", "list_buckets", {}, "AccessDenied", "s3:ListAllMyBuckets"),
        ("s3", "put_object", {"Bucket": "bucket-1", "Key": "a"}, "AccessDenied", "s3:PutObject"),
    ],
)
def test_each_protocol_tells_it_in_its_way(
    aws: Aws, service: str, operation: str, params: dict[str, Any], code: str, action: str
) -> None:
    client = aws(service, aws.role("worker"))
    with refused(code, f"is not authorized to perform: {action}"):
        getattr(client, operation)(**params)
    [call] = aws.cloud.calls.since()
    status = 400 if service in ("service-quotas", "ssm") else 403
    assert (call["action"], call["result"], call["status"]) == (action, code, status)


# Passing roles

PASS = allow("iam:PassRole", "arn:aws:iam::123456789012:role/dl/*")


@pytest.fixture
def group(aws: Aws) -> dict[str, Any]:
    """What a group of instances with a profile is asked for."""
    aws.role("node", Path="/dl/")
    aws.profile("node")
    aws.ask("iam", "CreateServiceLinkedRole", AWSServiceName="autoscaling.amazonaws.com")
    data = {"ImageId": API_ONLY.id, "InstanceType": "t3.micro", "IamInstanceProfile": {"Name": "node"}}
    aws.ask("ec2", "CreateLaunchTemplate", LaunchTemplateName="nodes", LaunchTemplateData=data)
    subnet = aws.ask("ec2", "DescribeSubnets")["Subnets"][0]["SubnetId"]
    return {
        "AutoScalingGroupName": "nodes",
        "MinSize": 0,
        "MaxSize": 1,
        "LaunchTemplate": {"LaunchTemplateName": "nodes"},
        "VPCZoneIdentifier": subnet,
    }


def test_launching_with_a_profile_passes_its_role(aws: Aws, group: dict[str, Any]) -> None:
    client = aws("ec2", aws.role("operator", allow("ec2:*")))
    asked = {"MinCount": 1, "MaxCount": 1, "LaunchTemplate": group["LaunchTemplate"]}
    with refused(
        "UnauthorizedOperation", "iam:PassRole on resource: arn:aws:iam::123456789012:role/dl/node because no identity"
    ):
        client.run_instances(**asked)
    aws.policy("operator", allow("ec2:*"), {**PASS, **when("StringEquals", "iam:PassedToService", "ssm.amazonaws.com")})
    with refused("UnauthorizedOperation", "iam:PassRole"):
        client.run_instances(**asked, DryRun=True)
    aws.policy("operator", allow("ec2:*"), {**PASS, **when("StringEquals", "iam:PassedToService", "ec2.amazonaws.com")})
    with refused("DryRunOperation"):
        client.run_instances(**asked, DryRun=True)
    client.run_instances(**asked)
    required = [need["action"] for need in aws.calls("RunInstances")[0]["required"]]
    assert {"ec2:RunInstances", "iam:PassRole"} <= {*required}


def test_a_group_is_tried_in_its_makers_name(aws: Aws, group: dict[str, Any]) -> None:
    client = aws("autoscaling", aws.role("operator", allow("autoscaling:*")))
    with refused("AccessDenied", "You are not authorized to use launch template: nodes. User: "):
        client.create_auto_scaling_group(**group)
    aws.policy("operator", allow(["autoscaling:*", "ec2:RunInstances"]))
    with refused("AccessDenied", "is not authorized to perform: iam:PassRole on resource: arn:aws:iam::"):
        client.create_auto_scaling_group(**group)
    aws.policy("operator", allow(["autoscaling:*", "ec2:RunInstances"]), PASS)
    client.create_auto_scaling_group(**group)
    made = aws.calls("CreateAutoScalingGroup")[-1]
    assert made["action"] == "autoscaling:CreateAutoScalingGroup"
    assert made["resource"].endswith(":autoScalingGroupName/nodes")
    assert {need["action"] for need in made["required"]} == {
        "autoscaling:CreateAutoScalingGroup",
        "ec2:RunInstances",
        "iam:PassRole",
    }


def test_a_groups_tags_are_conditions(aws: Aws, group: dict[str, Any]) -> None:
    new_tags = [{"Key": "cluster", "Value": "a", "PropagateAtLaunch": True}]
    aws("autoscaling").create_auto_scaling_group(**group, Tags=new_tags)
    client = aws("autoscaling", aws.role("operator", allow("autoscaling:SetDesiredCapacity", **OURS)))
    client.set_desired_capacity(AutoScalingGroupName="nodes", DesiredCapacity=1)
    aws("autoscaling").create_or_update_tags(
        Tags=[{**new_tags[0], "Value": "b", "ResourceId": "nodes", "ResourceType": "auto-scaling-group"}]
    )
    with refused("AccessDenied", "autoscaling:SetDesiredCapacity on resource: arn:aws:autoscaling:"):
        client.set_desired_capacity(AutoScalingGroupName="nodes", DesiredCapacity=0)


def test_roles_are_put_into_profiles_by_those_who_may_pass_them(aws: Aws) -> None:
    aws.role("node")
    client = aws("iam", aws.role("operator", allow(["iam:CreateInstanceProfile", "iam:AddRoleToInstanceProfile"])))
    client.create_instance_profile(InstanceProfileName="node")
    with refused("AccessDenied", "iam:PassRole on resource: arn:aws:iam::123456789012:role/node"):
        client.add_role_to_instance_profile(InstanceProfileName="node", RoleName="node")


# Sessions of instances


def member(aws: Aws) -> tuple[str, Session]:
    """An instance with the role `node`, and the credentials that it was given."""
    instance = launch(aws, IamInstanceProfile={"Name": "node"})
    return instance, aws.cloud.credentials.for_instance("node", instance, 3600)


def test_an_instance_writes_its_own_prefix_and_no_others(aws: Aws) -> None:
    aws("s3").create_bucket(Bucket="bucket-1")
    aws.role("node", allow("s3:PutObject", f"{BUCKET}/members/${{aws:userid}}/*"))
    aws.profile("node")
    one, session = member(aws)
    two, other = member(aws)
    role_id = aws.ask("iam", "GetRole", RoleName="node")["Role"]["RoleId"]
    client = aws("s3", session)
    client.put_object(Bucket="bucket-1", Key=f"members/{role_id}:{one}/report.json", Body=b"{}")
    for key in (f"members/{role_id}:{two}/report.json", "members/report.json", f"members/{role_id}:{one}"):
        with refused("AccessDenied", f"s3:PutObject on resource: {BUCKET}/{key}"):
            client.put_object(Bucket="bucket-1", Key=key, Body=b"{}")
    aws("s3", other).put_object(Bucket="bucket-1", Key=f"members/{role_id}:{two}/report.json", Body=b"{}")
    assert [call["result"] for call in aws.calls("PutObject")] == ["ok", *["AccessDenied"] * 3, "ok"]
    assert aws.calls("PutObject")[0]["resource"] == f"{BUCKET}/members/{role_id}:{one}/report.json"


def test_the_owner_of_a_bucket_can_be_named_in_a_call_and_in_a_policy(aws: Aws) -> None:
    open_bucket(aws)
    mine = when("StringEquals", "aws:ResourceAccount", "123456789012")
    worker = aws("s3", aws.role("worker", allow("s3:PutObject", f"{BUCKET}/*", **mine)))
    mover = aws("s3", aws.role("mover", allow("s3:*")))
    calls: list[Callable[[], Any]] = [
        lambda: worker.put_object(Bucket="bucket-1", Key="key", Body=b""),
        lambda: mover.put_object(Bucket="bucket-1", Key="key", Body=b"", ExpectedBucketOwner="123456789012"),
        lambda: mover.copy_object(
            Bucket="bucket-2", Key="key", CopySource="bucket-1/key", ExpectedSourceBucketOwner="123456789012"
        ),
    ]
    aws("s3").create_bucket(Bucket="bucket-2")
    for call in calls:
        call()
    aws.cloud.faults.add("foreign-bucket", {"bucket": "bucket-1"})
    for call in calls:
        with refused("AccessDenied"):
            call()
    # Without naming the owner nothing is noticed: the other account lets everybody in.
    mover.put_object(Bucket="bucket-1", Key="key", Body=b"")


def open_bucket(aws: Aws) -> None:
    """Make a bucket whose policy lets every caller in."""
    client = aws("s3")
    client.create_bucket(Bucket="bucket-1")
    client.delete_public_access_block(Bucket="bucket-1")
    statement = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": [BUCKET, f"{BUCKET}/*"]}
    client.put_bucket_policy(Bucket="bucket-1", Policy=document(statement))


@pytest.mark.parametrize("exists", [False, True])
def test_a_bucket_of_another_account_is_closed(aws: Aws, exists: bool) -> None:
    client = aws("s3")
    if exists:
        client.create_bucket(Bucket="bucket-1")
    fault = aws.cloud.faults.add("foreign-bucket", {"bucket": "bucket-1"})
    for call in (
        lambda: client.list_objects_v2(Bucket="bucket-1"),
        lambda: client.put_object(Bucket="bucket-1", Key="key", Body=b""),
        lambda: client.delete_bucket(Bucket="bucket-1"),
    ):
        with refused("AccessDenied", "because no resource-based policy allows"):
            call()
    with refused("403"):
        client.head_bucket(Bucket="bucket-1")
    with refused("BucketAlreadyExists"):
        client.create_bucket(Bucket="bucket-1")
    assert client.list_buckets()["Buckets"] == []
    aws.cloud.faults.remove(fault)
    client.create_bucket(Bucket="bucket-1")
    client.head_bucket(Bucket="bucket-1")


def test_the_policy_of_a_foreign_bucket_is_not_enough_without_the_callers_own(aws: Aws) -> None:
    open_bucket(aws)
    guest = aws("s3", aws.role("guest", allow("s3:GetObject")))
    guest.list_objects_v2(Bucket="bucket-1")
    aws.cloud.faults.add("foreign-bucket", {"bucket": "bucket-1"})
    with refused("AccessDenied", "because no identity-based policy allows"):
        guest.list_objects_v2(Bucket="bucket-1")


def test_tags_of_the_role_can_be_compared_with_those_of_the_thing(aws: Aws) -> None:
    mine, other = (launch(aws, TagSpecifications=tagged("instance", cluster=name)) for name in ("a", "b"))
    same = when("StringEquals", "aws:ResourceTag/cluster", "${aws:PrincipalTag/cluster}")
    client = aws("ec2", aws.role("worker", allow("ec2:StopInstances", **same), Tags=tags(cluster="a")))
    client.stop_instances(InstanceIds=[mine])
    with refused("UnauthorizedOperation"):
        client.stop_instances(InstanceIds=[other])


# Where and when


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        (when("IpAddress", "aws:SourceIp", "127.0.0.0/8"), True),
        (when("IpAddress", "aws:SourceIp", "198.51.100.0/24"), False),
        (when("DateGreaterThan", "aws:CurrentTime", "2020-01-01T00:00:00Z"), True),
        (when("DateLessThan", "aws:CurrentTime", "2020-01-01T00:00:00Z"), False),
        (when("Bool", "aws:SecureTransport", "true"), True),
        (when("StringEquals", "aws:RequestedRegion", REGION), True),
        (when("ArnLike", "aws:PrincipalArn", "arn:aws:iam::*:role/dl/worker"), True),
    ],
)
def test_conditions_on_the_connection(aws: Aws, condition: dict[str, Any], allowed: bool) -> None:
    client = aws("ec2", aws.role("worker", allow("ec2:DescribeVpcs", **condition), Path="/dl/"))
    if allowed:
        client.describe_vpcs()
    else:
        with refused("UnauthorizedOperation"):
            client.describe_vpcs()


def test_what_comes_through_an_endpoint_has_no_public_source(cloud: Cloud) -> None:
    caller = Caller("user", "x", "arn:aws:iam::123456789012:user/x", "AIDAX")
    call = Call(cloud, "s3", "ListBuckets", {}, REGION, caller)
    assert rules.principal(call, "198.51.100.7").connection["aws:SourceIp"] == "198.51.100.7"
    assert "aws:SourceIp" not in rules.principal(call, "198.18.0.7").connection
    assert "aws:SourceIp" not in rules.principal(call, "").connection


# Policies of resources


def test_a_buckets_policy_allows_and_denies(aws: Aws) -> None:
    client = aws("s3")
    client.create_bucket(Bucket="bucket-1")
    reader, writer = aws.role("reader"), aws.role("writer", allow("s3:*"))
    client.put_object(Bucket="bucket-1", Key="a", Body=b"1")
    with refused("AccessDenied", f"s3:GetObject on resource: {BUCKET}/a"):
        aws("s3", reader).get_object(Bucket="bucket-1", Key="a")
    policy = document(
        {**allow("s3:GetObject", f"{BUCKET}/*"), "Principal": {"AWS": "arn:aws:iam::123456789012:role/reader"}},
        {**deny("s3:*", [BUCKET, f"{BUCKET}/*"], **when("Bool", "aws:SecureTransport", "false")), "Principal": "*"},
        {**deny("s3:DeleteObject", f"{BUCKET}/*"), "Principal": "*"},
    )
    client.put_bucket_policy(Bucket="bucket-1", Policy=policy)
    assert aws("s3", reader).get_object(Bucket="bucket-1", Key="a")["Body"].read() == b"1"
    aws("s3", writer).put_object(Bucket="bucket-1", Key="b", Body=b"2")
    with refused("AccessDenied", "with an explicit deny in a resource-based policy"):
        aws("s3", writer).delete_object(Bucket="bucket-1", Key="a")


def test_only_who_may_list_learns_that_an_object_is_not_there(aws: Aws) -> None:
    aws("s3").create_bucket(Bucket="bucket-1")
    aws("s3").put_object(Bucket="bucket-1", Key="a", Body=b"1")
    client = aws("s3", aws.role("reader", allow("s3:GetObject", f"{BUCKET}/*")))
    client.head_object(Bucket="bucket-1", Key="a")
    with refused("AccessDenied", f"s3:ListBucket on resource: {BUCKET} because"):
        client.get_object(Bucket="bucket-1", Key="none")
    with refused("403"):
        client.head_object(Bucket="bucket-1", Key="none")
    aws.policy("reader", allow("s3:GetObject", f"{BUCKET}/*"), allow("s3:ListBucket", BUCKET))
    with refused("NoSuchKey"):
        client.get_object(Bucket="bucket-1", Key="none")
    with refused("404"):
        client.head_object(Bucket="bucket-1", Key="none")
    with refused("NoSuchBucket"):
        aws("s3").get_object(Bucket="bucket-2", Key="none")


def test_a_file_systems_policy_denies(aws: Aws) -> None:
    made = aws.ask("efs", "CreateFileSystem", CreationToken="one")
    client = aws("efs", aws.role("worker", allow("elasticfilesystem:*")))
    aws.cloud.clock.advance(0)  # type: ignore[attr-defined]
    policy = {**deny("elasticfilesystem:DeleteFileSystem", made["FileSystemArn"]), "Principal": {"AWS": "*"}}
    aws.ask("efs", "PutFileSystemPolicy", FileSystemId=made["FileSystemId"], Policy=document(policy))
    client.describe_file_systems(FileSystemId=made["FileSystemId"])
    with refused("AccessDeniedException", "with an explicit deny in a resource-based policy"):
        client.delete_file_system(FileSystemId=made["FileSystemId"])


def test_a_role_is_assumed_by_whom_it_trusts(aws: Aws) -> None:
    aws.role("closed", AssumeRolePolicyDocument=trust({"Service": "ec2.amazonaws.com"}))
    aws.role("open", allow("ec2:DescribeVpcs"))
    aws.role("secret", AssumeRolePolicyDocument=trust({"AWS": ROOT}, **when("StringEquals", "sts:ExternalId", "xyz")))
    arn = "arn:aws:iam::123456789012:role/"
    client = aws("sts")
    issued = client.assume_role(RoleArn=f"{arn}open", RoleSessionName="me")["Credentials"]
    keys = (issued["AccessKeyId"], issued["SecretAccessKey"], issued["SessionToken"])
    aws.client("ec2", *keys).describe_vpcs()
    for name in ("closed", "secret", "none"):
        with refused("AccessDenied", f"is not authorized to perform: sts:AssumeRole on resource: {arn}{name}"):
            client.assume_role(RoleArn=f"{arn}{name}", RoleSessionName="me")
    client.assume_role(RoleArn=f"{arn}secret", RoleSessionName="me", ExternalId="xyz")
    # Trusting the account hands on to the caller's own policies.
    with refused("AccessDenied"):
        aws.client("sts", *keys).assume_role(RoleArn=f"{arn}open", RoleSessionName="again")


# Which policies


def test_users_have_their_own_policies(aws: Aws) -> None:
    client = aws("iam")
    client.create_user(UserName="ann", Tags=tags(team="x"))
    key = client.create_access_key(UserName="ann")["AccessKey"]
    keys = (key["AccessKeyId"], key["SecretAccessKey"])
    ann = aws.client("iam", *keys)
    with refused("AccessDenied", "iam:CreateAccessKey on resource: arn:aws:iam::123456789012:user/ann because"):
        ann.create_access_key(UserName="ann")
    own = "arn:aws:iam::123456789012:user/${aws:username}"
    client.put_user_policy(
        UserName="ann",
        PolicyName="self",
        PolicyDocument=document(allow("iam:*AccessKey", own, **when("StringEquals", "aws:PrincipalTag/team", "x"))),
    )
    assert ann.create_access_key(UserName="ann")["AccessKey"]["UserName"] == "ann"
    with refused("AccessDenied"):
        ann.create_access_key(UserName="operator")


def test_a_boundary_bounds(aws: Aws) -> None:
    edge = aws("iam").create_policy(PolicyName="edge", PolicyDocument=document(allow("ec2:Describe*")))["Policy"]["Arn"]
    client = aws("ec2", aws.role("worker", ALL, PermissionsBoundary=edge))
    client.describe_vpcs()
    with refused("UnauthorizedOperation", "because no permissions boundary allows the ec2:CreateVpc action"):
        client.create_vpc(CidrBlock="10.0.0.0/16")


class TestLate:
    @pytest.fixture
    def latency(self) -> Iterator[Latency]:
        latency = Latency("late", {"iam_in_effect": 15.0})
        yield latency

    def test_a_new_policy_takes_its_time(self, aws: Aws, clock: ManualClock) -> None:
        worker = aws.role("worker", allow("ec2:DescribeVpcs"))
        with refused("UnauthorizedOperation"):
            aws("ec2", worker).describe_vpcs()
        clock.advance(15)
        aws("ec2", worker).describe_vpcs()

    def test_a_condition_on_the_boundary_of_a_role_takes_its_time(self, aws: Aws, clock: ManualClock) -> None:
        edge = aws.ask("iam", "CreatePolicy", PolicyName="edge", PolicyDocument=document(ALL))["Policy"]["Arn"]
        bounded = when("StringEquals", "iam:PermissionsBoundary", edge)
        actions = ["iam:PutRolePermissionsBoundary", "iam:PutRolePolicy"]
        aws.role("node")
        client = aws("iam", aws.role("operator", allow(actions, **bounded)))
        clock.advance(15)
        policy = {"RoleName": "node", "PolicyName": "p", "PolicyDocument": document(ALL)}
        client.put_role_permissions_boundary(RoleName="node", PermissionsBoundary=edge)
        with refused("AccessDenied", "iam:PutRolePolicy"):
            client.put_role_policy(**policy)
        clock.advance(15)
        client.put_role_policy(**policy)


@pytest.mark.parametrize("stored", ["{}", document(), document(allow("ec2:*", **when("StringSortOfEquals", "a", "b")))])
def test_a_policy_that_cannot_be_read_denies(aws: Aws, stored: str) -> None:
    """None gets in by the API; should one be there nevertheless, it may have denied anything."""
    client = aws("ec2", aws.role("worker", ALL))
    client.describe_vpcs()
    role = next(role for role in backend().roles.values() if role.name == "worker")
    role.policies["broken"] = stored
    with refused("UnauthorizedOperation", "with an explicit deny in an identity-based policy"):
        client.describe_vpcs()


@pytest.mark.parametrize("operation", ["create_policy", "put_role_policy", "create_role"])
def test_an_unknown_condition_is_refused_when_it_is_written(aws: Aws, operation: str) -> None:
    aws.role("worker")
    policy = document(allow("ec2:*", **when("StringSortOfEquals", "aws:userid", "x")))
    params: dict[str, dict[str, str]] = {
        "create_policy": {"PolicyName": "p", "PolicyDocument": policy},
        "put_role_policy": {"RoleName": "worker", "PolicyName": "p", "PolicyDocument": policy},
        "create_role": {
            "RoleName": "other",
            "AssumeRolePolicyDocument": trust({"AWS": ROOT}, **when("StringSortOfEquals", "aws:userid", "x")),
        },
    }
    with refused("MalformedPolicyDocument", "Invalid Condition type : StringSortOfEquals."):
        getattr(aws("iam"), operation)(**params[operation])


def test_an_unknown_condition_is_refused_in_policies_of_resources_too(aws: Aws) -> None:
    aws("s3").create_bucket(Bucket="bucket-1")
    made = aws.ask("efs", "CreateFileSystem", CreationToken="one")
    aws.cloud.clock.advance(0)  # type: ignore[attr-defined]
    strange = when("StringSortOfEquals", "aws:userid", "x")
    with refused("MalformedPolicy"):
        aws("s3").put_bucket_policy(
            Bucket="bucket-1", Policy=document({**deny("s3:*", BUCKET, **strange), "Principal": "*"})
        )
    with refused("InvalidPolicyException"):
        aws("efs").put_file_system_policy(
            FileSystemId=made["FileSystemId"],
            Policy=document(
                {**deny("elasticfilesystem:*", made["FileSystemArn"], **strange), "Principal": {"AWS": "*"}}
            ),
        )


def test_it_costs_little_compared_with_the_call(aws: Aws) -> None:
    """Most calls are an operator's, who may do everything."""
    operator = aws.cloud.credentials.resolve(aws.operator_key, None)[0]
    call = Call(aws.cloud, "ec2", "DescribeInstances", {}, REGION, operator)

    def seconds(work: Callable[[], object]) -> float:
        started = time.process_time()
        for _ in range(20):
            work()
        return time.process_time() - started

    checks = min(seconds(lambda: rules.enforce(call, rules.required(call), "127.0.0.1")) for _attempt in range(5))
    client = aws("ec2")
    calls = min(seconds(client.describe_instances) for _attempt in range(5))
    assert checks < calls / 5, (checks, calls)


def test_services_may_do_everything_but_what_a_role_does_not_trust_them_with(cloud: Cloud, aws: Aws) -> None:
    def ask(service: str, operation: str, **params: Any) -> None:
        call = Call(cloud, service, operation, params, REGION, Caller.service("ec2.amazonaws.com"))
        rules.enforce(call, rules.required(call), "")

    aws.role("node", AssumeRolePolicyDocument=trust({"Service": "ec2.amazonaws.com"}))
    aws.role("other")
    ask("ec2", "TerminateInstances", InstanceIds=["i-1"])
    ask("ec2", "DescribeFpgaImages")
    ask("sts", "AssumeRole", RoleArn="arn:aws:iam::123456789012:role/node", RoleSessionName="i-1")
    with pytest.raises(AwsError, match="AccessDenied"):
        ask("sts", "AssumeRole", RoleArn="arn:aws:iam::123456789012:role/other", RoleSessionName="i-1")
