"""Requests and answers are compared with AWS's models, and what these do not have is recorded."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.core.utils import get_service_model

from localcloud.core import cloud as core
from localcloud.core.caller import Caller
from localcloud.core.cloud import Cloud
from localcloud.core.lateness import OBSERVER
from localcloud.endpoint.front import Front
from localcloud.models import VARIABLE, Origin, limits, origin_of, origins_from, origins_variable, wire
from localcloud.models.values import Text, compare
from localcloud.testing.clock import ManualClock
from localcloud_kits.rules_kit import CONFIG, REGION, SESSION, Aws, document, trust
from localcloud_kits.server_kit import Swapped

OURS = CONFIG.merge(Config(user_agent_extra="example.tool"))
ORIGINS = (
    Origin("tool", r".*(Ansible/|example\.tool)"),
    Origin("agent", "Botocore/", on_instances=True),
    Origin("boot", "Python-urllib/", on_instances=True),
)
TRUST = trust({"AWS": "arn:aws:iam::123456789012:root"})


@pytest.fixture
def clock() -> ManualClock:
    """Clients sign with the time that it really is."""
    return ManualClock(time.time())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder/unit.forms"


@pytest.fixture
def aws(cloud: Cloud, http: tuple[Swapped, int], file: Path, monkeypatch: pytest.MonkeyPatch) -> Aws:
    monkeypatch.setenv(VARIABLE, str(file))
    for name, value in origins_variable(*ORIGINS).items():
        monkeypatch.setenv(name, value)
    app, port = http
    app.front = Front(cloud)
    return Aws(cloud, port)


@pytest.fixture
def ours(aws: Aws) -> Callable[[str], Any]:
    """Clients as the collection has them."""

    def client(service: str) -> Any:
        return SESSION.client(service, REGION, None, True, None, aws._url, *aws._operator, None, OURS)

    return client


def forms(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def problems(file: Path) -> list[str]:
    return [f"{form['call']} {form['side']} {problem}" for form in forms(file) for problem in form["problems"]]


def model(service: str, operation: str) -> Any:
    return get_service_model(service).operation_model(operation)


# Through the endpoint


def test_requests_and_answers_of_each_protocol_are_read_whole(ours: Callable[[str], Any], file: Path) -> None:
    tags = [{"Key": "a", "Value": "b"}]
    vpc = ours("ec2").create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": tags}])[
        "Vpc"
    ]["VpcId"]
    ours("ec2").describe_vpcs(Filters=[{"Name": "vpc-id", "Values": [vpc, "vpc-1"]}])
    ours("iam").create_role(RoleName="r", AssumeRolePolicyDocument=TRUST, Tags=tags)
    ours("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[], Filters=[{"Name": "tag-key"}])
    ours("efs").create_file_system(CreationToken="one", Tags=tags)
    ours("efs").describe_file_systems(MaxItems=5)
    ours("emr").list_clusters(ClusterStates=["RUNNING"])
    ours("s3").create_bucket(Bucket="bucket-1")
    ours("s3").put_bucket_tagging(Bucket="bucket-1", Tagging={"TagSet": tags})
    ours("s3").put_bucket_policy(Bucket="bucket-1", Policy=document(DENY))
    ours("s3").get_bucket_policy(Bucket="bucket-1")
    ours("s3").put_object(Bucket="bucket-1", Key="a", Body=b"a", Metadata={"b": "c"})
    ours("s3").get_object(Bucket="bucket-1", Key="a")["Body"].read()
    ours("s3").list_objects_v2(Bucket="bucket-1", Prefix="a")
    ours("ssm").get_parameters(Names=["/a"])
    ours("sts").get_caller_identity()
    members = {(form["call"], form["side"]): set(form["members"]) for form in forms(file)}
    assert problems(file) == ["s3:PutObject answer x-amz-sdk-checksum-algorithm: no such member"]
    assert "TagSpecifications[].Tags[].Value" in members["ec2:CreateVpc", "request"]
    assert "Filters[].Values" in members["ec2:DescribeVpcs", "request"]
    assert "Vpcs[].CidrBlockAssociationSet[].CidrBlockState.State" in members["ec2:DescribeVpcs", "answer"]
    assert "Tags[].Key" in members["iam:CreateRole", "request"]
    assert "Role.Arn" in members["iam:CreateRole", "answer"]
    assert "Filters[].Name" in members["autoscaling:DescribeAutoScalingGroups", "request"]
    assert "Tags[].Key" in members["efs:CreateFileSystem", "request"]
    assert members["efs:DescribeFileSystems", "request"] == {"MaxItems"}
    assert members["emr:ListClusters", "request"] == {"ClusterStates"}
    assert "Tagging.TagSet[].Key" in members["s3:PutBucketTagging", "request"]
    assert members["s3:GetBucketPolicy", "answer"] == {"Policy"}
    assert {"Contents[].Key", "KeyCount"} <= members["s3:ListObjectsV2", "answer"]
    assert members["ssm:GetParameters", "answer"] == {"Parameters", "InvalidParameters"}


DENY = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteBucket", "Resource": "arn:aws:s3:::bucket-1"}


@pytest.mark.parametrize(
    ("service", "method", "operation"),
    [
        ("ec2", "describe_vpcs", "DescribeVpcs"),
        ("autoscaling", "describe_auto_scaling_groups", "DescribeAutoScalingGroups"),
        ("emr", "list_clusters", "ListClusters"),
        ("efs", "describe_file_systems", "DescribeFileSystems"),
        ("s3", "list_buckets", "ListBuckets"),
    ],
)
def test_an_invented_parameter_is_recorded(
    ours: Callable[[str], Any], file: Path, service: str, method: str, operation: str
) -> None:
    client = ours(service)

    def invent(params: dict[str, Any], **_more: Any) -> None:
        if service == "emr":
            params["body"] = b'{"Invented": "1"}'
        elif isinstance(params["body"], dict):
            params["body"]["Invented"] = "1"
        else:
            params["url"] += "?Invented=1"

    client.meta.events.register("before-call", invent)
    getattr(client, method)()
    assert problems(file) == [f"{service}:{operation} request Invented: no such member"]


def test_a_misspelt_member_of_an_answer_is_recorded(
    ours: Callable[[str], Any], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The serializer drops it, so no client ever sees it."""
    answer = {"AutoScalingGroup": []}
    monkeypatch.setitem(core._handlers, ("autoscaling", "DescribeAutoScalingGroups"), lambda _call: answer)
    ours("autoscaling").describe_auto_scaling_groups()
    wrong = "autoscaling:DescribeAutoScalingGroups answer AutoScalingGroup"
    assert problems(file) == [f"{wrong}: no such member", f"{wrong}s: missing"]


def test_a_request_that_is_refused_is_recorded_without_an_answer(ours: Callable[[str], Any], file: Path) -> None:
    with pytest.raises(ClientError):
        ours("ec2").run_instances(InstanceType="t3.mikro", ImageId="ami-1", MinCount=1, MaxCount=1)
    assert problems(file) == ["ec2:RunInstances request InstanceType: not one of its values, 't3.mikro'"]
    assert [form["side"] for form in forms(file)] == ["request"]


def test_each_form_is_recorded_once(ours: Callable[[str], Any], file: Path) -> None:
    for name in ("a", "b"):
        ours("ec2").describe_key_pairs(Filters=[{"Name": "key-name", "Values": [name]}])
    assert [form["side"] for form in forms(file)] == ["request", "answer"]
    ours("ec2").describe_key_pairs()
    assert [form["side"] for form in forms(file)] == ["request", "answer", "request"]


def test_only_answers_to_other_programs_are_recorded(aws: Aws, file: Path) -> None:
    aws("ec2").describe_key_pairs()
    assert [form["side"] for form in forms(file)] == ["answer"]


NODE_CALLER = Caller.session("arn:aws:iam::123456789012:role/red", "AROA", "i-0123")
PERSON = Caller.user("arn:aws:iam::123456789012:user/a", "AIDA")


@pytest.mark.parametrize(
    ("caller", "agent", "origin"),
    [
        (PERSON, "APN/1.0 Ansible/2.19 amazon.aws/10.1.2", "tool"),
        (PERSON, "Boto3/1.44 md/Botocore#1.44 example.tool", "tool"),
        (PERSON, "Boto3/1.44 md/Botocore#1.44", ""),
        (NODE_CALLER, "Botocore/1.29.27 ua/2.0", "agent"),
        (NODE_CALLER, "Python-urllib/3.11", "boot"),
        (NODE_CALLER, "Boto3/1.26 Botocore/1.29.27", ""),
    ],
)
def test_programs_are_recognized_by_their_user_agents(caller: Caller, agent: str, origin: str) -> None:
    origins = origins_from(origins_variable(*ORIGINS))
    assert origin_of(caller, {"user-agent": agent}, origins) == origin


@pytest.mark.parametrize(
    ("caller", "agent", "origin"),
    [(PERSON, "Boto3/1.44", "other"), (PERSON, f"Boto3/1.44 app/{OBSERVER}", ""), (NODE_CALLER, "curl", "instance")],
)
def test_without_a_choice_all_programs_but_observers_are_compared(caller: Caller, agent: str, origin: str) -> None:
    assert origin_of(caller, {"user-agent": agent}, origins_from({})) == origin


# Values and shapes


@pytest.mark.parametrize(
    ("service", "operation", "value", "problem"),
    [
        ("ec2", "RunInstances", {"MinCount": Text("1"), "MaxCount": Text("x")}, "MaxCount: no integer, 'x'"),
        ("ec2", "RunInstances", {"MinCount": 1, "MaxCount": True}, "MaxCount: no integer, True"),
        ("ec2", "RunInstances", {"MinCount": 1}, "MaxCount: missing"),
        ("ec2", "RunInstances", {"MinCount": 1, "MaxCount": None}, "MaxCount: missing"),
        ("ec2", "DescribeVpcs", {"DryRun": Text("yes")}, "DryRun: no boolean, 'yes'"),
        ("ec2", "DescribeVpcs", {"VpcIds": Text("vpc-1")}, "VpcIds: no list, 'vpc-1'"),
        ("ec2", "DescribeVpcs", {"Filters": [Text("a")]}, "Filters[]: no structure, 'a'"),
        ("ec2", "DescribeVpcs", {"MaxResults": Text("3")}, "MaxResults: less than 5, 3"),
        ("ec2", "DescribeVpcs", {"MaxResults": Text("1001")}, "MaxResults: more than 1000, 1001"),
        ("emr", "ListClusters", {"CreatedAfter": "soon"}, "CreatedAfter: no timestamp, 'soon'"),
        ("emr", "ListClusters", {"CreatedAfter": 1.5}, ""),
        ("emr", "ListClusters", {"Marker": 1}, "Marker: no string, 1"),
        ("emr", "ListClusters", {"ClusterStates": ["RUNING"]}, "ClusterStates[]: not one of its values, 'RUNING'"),
        ("s3", "PutObject", {"Bucket": "b", "Key": "k", "Metadata": {"a": 1}}, "Metadata{}: no string, 1"),
        ("s3", "PutObject", {"Bucket": "b", "Key": "k", "Metadata": "a"}, "Metadata: no map, 'a'"),
        ("efs", "CreateFileSystem", {"CreationToken": "x" * 65}, "CreationToken: more than 64, 65"),
    ],
)
def test_what_a_shape_does_not_allow(service: str, operation: str, value: dict[str, Any], problem: str) -> None:
    form = compare(model(service, operation).input_shape, value, sizes=True)
    assert form.problems == ({problem} if problem else set())


def test_answers_do_not_follow_the_sizes_of_models() -> None:
    assert not compare(model("ssm", "GetParameters").output_shape, {"InvalidParameters": []}).problems


@pytest.mark.parametrize(
    ("service", "operation", "protocol", "body", "problem"),
    [
        ("ec2", "DescribeVpcs", "ec2", "<r><requestId>1</requestId><vpcSett/></r>", "vpcSett: no such member"),
        ("ec2", "DescribeVpcs", "ec2", "<r><vpcSet><item><vpcIdd>a</vpcIdd></item></vpcSet></r>",
         "Vpcs[].vpcIdd: no such member"),
        ("ec2", "DescribeVpcs", "ec2", "<r><vpcSet>a</vpcSet></r>", ""),
        ("sts", "GetCallerIdentity", "query", "<r><GetCallerIdentityResult><Ar>a</Ar></GetCallerIdentityResult></r>",
         "Ar: no such member"),
        ("sts", "GetCallerIdentity", "query", "<r><GetCallerIdentityResult/><ResponseMetadata/></r>", ""),
        ("ssm", "GetParameters", "json", '{"Parameter": []}', "Parameter: no such member"),
        ("s3", "ListObjectsV2", "rest-xml", "<r><Contents><Kex>a</Kex></Contents></r>",
         "Contents[].Kex: no such member"),
    ],
)  # fmt: skip
def test_what_an_answer_on_the_wire_has(service: str, operation: str, protocol: str, body: str, problem: str) -> None:
    operation_model = model(service, operation)
    values = wire.answer_values(operation_model, protocol, body.encode(), {})
    assert compare(operation_model.output_shape, values).problems == ({problem} if problem else set())


# Limits that the models do not have


def test_each_limit_has_a_source_and_members_that_exist() -> None:
    for call, entries in limits.limits().items():
        for limit in entries:
            assert limit.source.startswith("https://docs.aws.amazon.com/")
            for member in limit.members:
                shape = model(*call.split(":")).input_shape
                for name in member.split("."):
                    shape = shape.members[name.removesuffix("[]")]
                    shape = shape.member if name.endswith("[]") else shape
                assert (shape.type_name == "list") == (limit.of == "entries"), (call, member)
                assert not ({"max", "pattern"} & set(shape.metadata)), (call, member)


@pytest.mark.parametrize(
    ("call", "params", "problem"),
    [
        ("s3:PutObject", {"Key": "ä" * 513}, "Key: more than 1024 bytes, 1026"),
        ("s3:PutObject", {"Key": "ä" * 512}, ""),
        ("autoscaling:DetachInstances", {"InstanceIds": ["i-1"] * 21}, "InstanceIds: more than 20 entries, 21"),
        ("ec2:CreateSecurityGroup", {"Description": "x" * 256}, "Description: more than 255 characters, 256"),
        (
            "ec2:AuthorizeSecurityGroupIngress",
            {"IpPermissions": [{"IpRanges": [{"CidrIp": "10.0.0.0/8"}, {"Description": "it's"}]}]},
            r"IpPermissions[].IpRanges[].Description: has other characters than "
            r"[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]*, \"it's\"",
        ),
    ],
)
def test_a_limit_that_is_exceeded(call: str, params: dict[str, Any], problem: str) -> None:
    assert limits.problems(call, params) == ({problem.replace('\\"', '"')} if problem else set())
