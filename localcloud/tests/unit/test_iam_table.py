"""What each call needs, and whether a caller with some policy may do it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from localcloud.api.services import BY_NAME
from localcloud.core.caller import Caller
from localcloud.iam import (
    TABLE,
    Denial,
    Need,
    Refusal,
    UnknownOperation,
    authorize,
    denied,
    parse_policy,
    required,
    unknown,
)
from localcloud.iam.authorize import evaluate
from localcloud_kits.iam_kit import ACCOUNT, EC2, IAM, REGION, FakeWorld, minimal, model

GROUP = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:0a1b:autoScalingGroupName/c-workers"
OPERATOR = Caller.user(f"{IAM}user/operator", "AIDAOPERATOR")


TEMPLATE = {
    "ImageId": "ami-1",
    "InstanceType": "g5.xlarge",
    "KeyName": "mine",
    "IamInstanceProfile": {"Name": "c-worker"},
    "Placement": {"GroupName": "c"},
    "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
    "BlockDeviceMappings": [
        {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 100, "VolumeType": "gp3", "Encrypted": True}}
    ],
    "SecurityGroupIds": ["sg-1", "sg-2"],
    "TagSpecifications": [
        {"ResourceType": "instance", "Tags": [{"Key": "deeplearning:cluster", "Value": "c"}]},
        {"ResourceType": "volume", "Tags": [{"Key": "deeplearning:cluster", "Value": "c"}]},
    ],
}
WORLD = FakeWorld(
    lookups={
        ("launch-template-name", "c-workers"): "lt-1",
        ("instance-profile-role", "c-worker"): f"{IAM}role/c/c-worker",
        ("instance-profile", "c-worker"): f"{IAM}instance-profile/c-worker",
        ("role", "c-worker"): f"{IAM}role/c/c-worker",
        ("auto-scaling-group", "c-workers"): GROUP,
        ("auto-scaling-instance", "i-1"): "c-workers",
        ("mount-target", "fsmt-1"): "fs-1",
        ("mount-target-interface", "fsmt-1"): "eni-1",
        ("address-association", "eipassoc-1"): "eipalloc-1",
        ("address-association-interface", "eipassoc-1"): "eni-1",
        ("route-table-association", "rtbassoc-1"): "rtb-1",
        ("route-table-association-subnet", "rtbassoc-1"): "subnet-1",
        ("key-pair-id", "key-1"): "mine",
    },
    tagged={
        f"{EC2}instance/i-1": {"deeplearning:cluster": "c"},
        f"{EC2}instance/i-2": {"deeplearning:cluster": "d"},
        f"{EC2}vpc/vpc-1": {"deeplearning:cluster": "c"},
        GROUP: {"deeplearning:cluster": "c"},
    },
    templates={("lt-1", "1"): TEMPLATE, ("lt-1", "$Default"): TEMPLATE},
    groups={
        "c-workers": {"LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "1"}, "VPCZoneIdentifier": "subnet-1"}
    },
)


def needs(service: str, operation: str, world: Any = WORLD, **params: Any) -> list[Need]:
    return required(service, operation, params, world, REGION)


def pairs(result: list[Need]) -> list[str]:
    """action and resource, with the account's own parts left out, as a short table"""
    return [f"{need.action} {need.resource.replace(EC2, '').replace(IAM, '')}" for need in result]


def refused(
    service: str, operation: str, *statements: Mapping[str, Any], world: Any = WORLD, **params: Any
) -> list[str]:
    document = parse_policy({"Version": "2012-10-17", "Statement": list(statements)}, name="test")
    return pairs(
        [denial.need for denial in authorize([document], needs(service, operation, world, **params), OPERATOR)]
    )


def allow(action: Any, resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def tags(*keys: str, value: str = "c") -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key in keys]


def specification(kind: str, *keys: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": tags(*keys)}]


ASG = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:"
EFS = f"arn:aws:elasticfilesystem:{REGION}:{ACCOUNT}:"
SSM = f"arn:aws:ssm:{REGION}:"


# One call for each kind of rule in the language of rules.py, and for each function that a row names.
NEEDS: dict[str, tuple[str, str, dict[str, Any], list[str]]] = {
    "nothing": ("sts", "GetCallerIdentity", {}, []),
    "no resource": ("ec2", "DescribeInstances", {}, ["ec2:DescribeInstances *"]),
    "a parameter that is absent": (
        "efs",
        "DescribeFileSystems",
        {},
        [f"elasticfilesystem:DescribeFileSystems {EFS}file-system/*"],
    ),
    "a list": (
        "ec2",
        "TerminateInstances",
        {"InstanceIds": ["i-1", "i-2"]},
        ["ec2:TerminateInstances instance/i-1", "ec2:TerminateInstances instance/i-2"],
    ),
    "a path into structures": (
        "autoscaling",
        "CreateOrUpdateTags",
        {"Tags": [{"ResourceId": "c-workers", "Key": "a", "Value": "b"}]},
        [f"autoscaling:CreateOrUpdateTags {GROUP}"],
    ),
    "what is created, in what, with optional resources and with tags": (
        "ec2",
        "CreateNatGateway",
        {
            "SubnetId": "subnet-1",
            "AllocationId": "eipalloc-1",
            "TagSpecifications": specification("natgateway", "Name"),
        },
        [
            "ec2:CreateNatGateway natgateway/*",
            "ec2:CreateNatGateway subnet/subnet-1",
            "ec2:CreateNatGateway elastic-ip/eipalloc-1",
            "ec2:CreateTags natgateway/*",
        ],
    ),
    "what is created with a name, and another action if it has tags": (
        "iam",
        "CreateRole",
        {"RoleName": "r", "Path": "/c/", "Tags": tags("a")},
        ["iam:CreateRole role/c/r", "iam:TagRole role/c/r"],
    ),
    "what a name refers to": (
        "ec2",
        "DisassociateAddress",
        {"AssociationId": "eipassoc-1"},
        ["ec2:DisassociateAddress elastic-ip/eipalloc-1", "ec2:DisassociateAddress network-interface/eni-1"],
    ),
    "what an unknown name refers to": (
        "ec2",
        "DisassociateRouteTable",
        {"AssociationId": "rtbassoc-9"},
        ["ec2:DisassociateRouteTable route-table/*"],
    ),
    "one of two parameters": (
        "ec2",
        "DeleteLaunchTemplate",
        {"LaunchTemplateName": "c-workers"},
        ["ec2:DeleteLaunchTemplate launch-template/lt-1"],
    ),
    "an action of another name": ("s3", "HeadBucket", {"Bucket": "b"}, ["s3:ListBucket arn:aws:s3:::b"]),
    "ids of any type": (
        "ec2",
        "CreateTags",
        {"Resources": ["i-1", "key-1", "nat-1"], "Tags": tags("a")},
        ["ec2:CreateTags instance/i-1", "ec2:CreateTags key-pair/mine", "ec2:CreateTags natgateway/nat-1"],
    ),
    "a role that is passed": (
        "autoscaling",
        "PutLifecycleHook",
        {"AutoScalingGroupName": "c-workers", "RoleARN": f"{IAM}role/n"},
        [f"autoscaling:PutLifecycleHook {GROUP}", "iam:PassRole role/n"],
    ),
    "a role that is put into a profile": (
        "iam",
        "AddRoleToInstanceProfile",
        {"RoleName": "c-worker", "InstanceProfileName": "c-worker"},
        ["iam:AddRoleToInstanceProfile instance-profile/c-worker", "iam:PassRole role/c/c-worker"],
    ),
    "a role of a service": (
        "iam",
        "CreateServiceLinkedRole",
        {"AWSServiceName": "autoscaling.amazonaws.com"},
        ["iam:CreateServiceLinkedRole role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"],
    ),
    "a role that is assumed": (
        "sts",
        "AssumeRole",
        {"RoleArn": f"{IAM}role/r", "Tags": tags("a")},
        ["sts:AssumeRole role/r", "sts:TagSession role/r"],
    ),
    "parameters that are set, and not False": (
        "s3",
        "CreateBucket",
        {"Bucket": "b", "ObjectOwnership": "BucketOwnerEnforced", "ObjectLockEnabledForBucket": False},
        ["s3:CreateBucket arn:aws:s3:::b", "s3:PutBucketOwnershipControls arn:aws:s3:::b"],
    ),
    "a version of an object": (
        "s3",
        "GetObject",
        {"Bucket": "b", "Key": "k", "VersionId": "1"},
        ["s3:GetObjectVersion arn:aws:s3:::b/k"],
    ),
    "an object with an ACL and tags": (
        "s3",
        "PutObject",
        {"Bucket": "b", "Key": "k", "Tagging": "a=1", "ACL": "private"},
        [f"s3:{action} arn:aws:s3:::b/k" for action in ("PutObject", "PutObjectAcl", "PutObjectTagging")],
    ),
    "a source as text": (
        "s3",
        "CopyObject",
        {"Bucket": "b", "Key": "k", "CopySource": "a/x%20y?versionId=7"},
        ["s3:GetObjectVersion arn:aws:s3:::a/x y", "s3:PutObject arn:aws:s3:::b/k"],
    ),
    "a source as a structure": (
        "s3",
        "CopyObject",
        {"Bucket": "b", "Key": "k", "CopySource": {"Bucket": "a", "Key": "x"}},
        ["s3:GetObject arn:aws:s3:::a/x", "s3:PutObject arn:aws:s3:::b/k"],
    ),
    "several objects": (
        "s3",
        "DeleteObjects",
        {"Bucket": "b", "Delete": {"Objects": [{"Key": "1"}, {"Key": "2", "VersionId": "v"}]}},
        ["s3:DeleteObject arn:aws:s3:::b/1", "s3:DeleteObjectVersion arn:aws:s3:::b/2"],
    ),
    "what a service creates in another one": (
        "efs",
        "CreateMountTarget",
        {"FileSystemId": "fs-1", "SubnetId": "subnet-1", "SecurityGroups": ["sg-1"]},
        [
            f"elasticfilesystem:CreateMountTarget {EFS}file-system/fs-1",
            "ec2:DescribeSubnets *",
            "ec2:DescribeNetworkInterfaces *",
            "ec2:CreateNetworkInterface network-interface/*",
            "ec2:CreateNetworkInterface subnet/subnet-1",
            "ec2:CreateNetworkInterface security-group/sg-1",
        ],
    ),
    "a file system that is created with tags": (
        "efs",
        "CreateFileSystem",
        {"CreationToken": "t", "Tags": tags("Name")},
        ["elasticfilesystem:CreateFileSystem *", f"elasticfilesystem:TagResource {EFS}file-system/*"],
    ),
    "an id that shows its type": (
        "efs",
        "TagResource",
        {"ResourceId": "fsap-1", "Tags": tags("a")},
        [f"elasticfilesystem:TagResource {EFS}access-point/fsap-1"],
    ),
    "parameters of the account and of AWS": (
        "ssm",
        "GetParameters",
        {"Names": ["a", "/aws/service/deeplearning/ami/x"]},
        [
            f"ssm:GetParameters {SSM}{ACCOUNT}:parameter/a",
            f"ssm:GetParameters {SSM}:parameter/aws/service/deeplearning/ami/x",
        ],
    ),
    "a resource of another service": (
        "ssm",
        "StartSession",
        {"Target": "i-1"},
        ["ssm:StartSession instance/i-1"],
    ),
    "an ARN of two parameters": (
        "service-quotas",
        "GetServiceQuota",
        {"ServiceCode": "ec2", "QuotaCode": "L-1"},
        [f"servicequotas:GetServiceQuota arn:aws:servicequotas:{REGION}:{ACCOUNT}:ec2/L-1"],
    ),
}


@pytest.mark.parametrize("kind", NEEDS)
def test_what_a_call_needs(kind: str) -> None:
    service, operation, params, expected = NEEDS[kind]
    assert pairs(needs(service, operation, **params)) == expected


# Launching ------------------------------------------------------------------------------------------------------------

LAUNCH = [
    "ec2:RunInstances instance/*",
    f"ec2:RunInstances arn:aws:ec2:{REGION}::image/ami-1",
    "ec2:RunInstances subnet/subnet-1",
    "ec2:RunInstances network-interface/*",
    "ec2:RunInstances security-group/sg-1",
    "ec2:RunInstances security-group/sg-2",
    "ec2:RunInstances volume/*",
    "ec2:RunInstances key-pair/mine",
    "ec2:RunInstances launch-template/lt-1",
    "ec2:RunInstances placement-group/c",
    "ec2:CreateTags instance/*",
    "ec2:CreateTags volume/*",
    "iam:PassRole role/c/c-worker",
]
BY_TEMPLATE = {"LaunchTemplate": {"LaunchTemplateName": "c-workers", "Version": "1"}}


def test_launching_from_a_template_needs_what_the_template_names() -> None:
    result = needs("ec2", "RunInstances", MinCount=1, MaxCount=1, SubnetId="subnet-1", **BY_TEMPLATE)
    assert pairs(result) == LAUNCH
    instance = result[0].context
    assert instance["ec2:InstanceType"] == "g5.xlarge"
    assert instance["ec2:MetadataHttpTokens"] == "required"
    assert instance["ec2:MetadataHttpPutResponseHopLimit"] == "1"
    assert instance["ec2:InstanceProfile"] == f"{IAM}instance-profile/c-worker"
    assert instance["ec2:LaunchTemplate"] == f"{EC2}launch-template/lt-1"
    assert instance["aws:RequestTag/deeplearning:cluster"] == "c"
    assert result[6].context["ec2:Encrypted"] == "true"
    assert result[10].context["ec2:CreateAction"] == "RunInstances"
    assert result[12].context["iam:PassedToService"] == "ec2.amazonaws.com"


def test_what_the_request_says_wins_over_the_template() -> None:
    result = needs("ec2", "RunInstances", InstanceType="c5.large", ImageId="ami-2", SubnetId="subnet-1", **BY_TEMPLATE)
    assert result[0].context["ec2:InstanceType"] == "c5.large"
    image = next(need for need in result if ":image/" in need.resource)
    assert image.resource.endswith("image/ami-2") and image.context["ec2:IsLaunchTemplateResource"] == "false"
    group = next(need for need in result if need.resource.endswith("sg-1"))
    assert group.context["ec2:IsLaunchTemplateResource"] == "true"


GROUP_OF_RESERVATIONS = f"arn:aws:resource-groups:{REGION}:{ACCOUNT}:group/theirs"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"CapacityReservationId": "cr-1"}, f"{EC2}capacity-reservation/cr-1"),
        ({"CapacityReservationResourceGroupArn": GROUP_OF_RESERVATIONS}, GROUP_OF_RESERVATIONS),
    ],
)
def test_launching_into_a_capacity_reservation_needs_it(target: dict[str, str], expected: str) -> None:
    reservation = {"CapacityReservationSpecification": {"CapacityReservationTarget": target}}
    template = {**TEMPLATE, **reservation}
    world = FakeWorld(templates={("lt-1", "1"): template}, tagged={expected: {"deeplearning:cluster": "d"}})
    from_template = {"LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "1"}}
    for request in ({"ImageId": "ami-1", **reservation}, from_template):
        checked = [need for need in needs("ec2", "RunInstances", world, **request) if need.resource == expected]
        assert [need.action for need in checked] == ["ec2:RunInstances"]
        assert checked[0].context["aws:ResourceTag/deeplearning:cluster"] == "d"
    preference = {"CapacityReservationSpecification": {"CapacityReservationPreference": "open"}}
    without_target = needs("ec2", "RunInstances", world, ImageId="ami-1", **preference)
    assert expected not in [need.resource for need in without_target]


def test_an_image_needs_the_snapshots_that_its_request_names() -> None:
    snapshots = f"arn:aws:ec2:{REGION}::snapshot/"
    world = FakeWorld(tagged={f"{snapshots}snap-1": {"deeplearning:cluster": "d"}})
    mapping = [{"DeviceName": "/dev/sdf", "Ebs": {"SnapshotId": "snap-1"}}, {"DeviceName": "/dev/sdg", "Ebs": {}}]
    result = needs("ec2", "CreateImage", world, InstanceId="i-1", Name="image", BlockDeviceMappings=mapping)
    checked = {need.resource: need.context for need in result}
    assert sorted(checked) == [
        f"{EC2}instance/i-1",
        f"arn:aws:ec2:{REGION}::image/*",
        f"{snapshots}*",
        f"{snapshots}snap-1",
    ]
    assert checked[f"{snapshots}snap-1"]["aws:ResourceTag/deeplearning:cluster"] == "d"


def test_launching_without_a_template() -> None:
    result = needs("ec2", "RunInstances", ImageId="ami-1", InstanceType="t3.micro")
    kinds = (
        "instance/*",
        f"arn:aws:ec2:{REGION}::image/ami-1",
        "subnet/*",
        "network-interface/*",
        "security-group/*",
        "volume/*",
    )
    assert pairs(result) == [f"ec2:RunInstances {kind}" for kind in kinds]


def test_what_efs_asks_of_ec2_in_the_callers_name_says_so() -> None:
    result = needs("efs", "DeleteMountTarget", MountTargetId="fsmt-1")
    assert [need.context.get("aws:ViaAWSService") for need in result] == [None, "true"]


def test_spot_needs_its_role_once() -> None:
    world = FakeWorld(linked=())
    asked = {"ImageId": "ami-1", "InstanceMarketOptions": {"MarketType": "spot"}}
    result = pairs(needs("ec2", "RunInstances", world, **asked))
    assert "ec2:RunInstances spot-instances-request/*" in result
    assert "iam:CreateServiceLinkedRole role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot" in result
    assert not any("CreateServiceLinkedRole" in pair for pair in pairs(needs("ec2", "RunInstances", **asked)))


def test_a_group_with_a_template_is_tried_in_its_callers_name() -> None:
    result = needs(
        "autoscaling",
        "CreateAutoScalingGroup",
        AutoScalingGroupName="c-new",
        MinSize=0,
        MaxSize=3,
        VPCZoneIdentifier="subnet-1",
        Tags=tags("deeplearning:cluster"),
        **BY_TEMPLATE,
    )
    new = f"{ASG}autoScalingGroup:*:autoScalingGroupName/c-new"
    assert pairs(result) == [
        f"autoscaling:CreateAutoScalingGroup {new}",
        f"autoscaling:CreateOrUpdateTags {new}",
        *LAUNCH,
    ]
    assert result[0].context["autoscaling:MaxSize"] == "3"
    assert result[0].context["autoscaling:LaunchTemplateVersionSpecified"] == "true"
    assert result[0].context["aws:RequestTag/deeplearning:cluster"] == "c"
    assert result[0].context["aws:TagKeys"] == ["deeplearning:cluster"]


@pytest.mark.parametrize("operation", ["CreateAutoScalingGroup", "UpdateAutoScalingGroup"])
@pytest.mark.parametrize(
    ("versions", "specified"),
    [
        ([], None),
        (["1"], "true"),
        (["$Latest"], "false"),
        ([None], "false"),
        (["1", "1"], "true"),
        (["1", "$Default"], "false"),
    ],
)
def test_a_group_has_numbered_versions_of_all_its_templates_or_not(
    operation: str, versions: list[str | None], specified: str | None
) -> None:
    templates = [{"LaunchTemplateId": "lt-1", **({"Version": version} if version else {})} for version in versions]
    specifications = [{"LaunchTemplateSpecification": template} for template in templates]
    alone = {"LaunchTemplate": templates[0]} if len(templates) == 1 else {}
    mixed = {"LaunchTemplate": {**specifications[0], "Overrides": specifications[1:]}} if templates else {}
    for params in (alone, {"MixedInstancesPolicy": mixed}) if alone else ({"MixedInstancesPolicy": mixed},):
        group, *_ = needs("autoscaling", operation, AutoScalingGroupName="c-workers", **params)
        assert group.context.get("autoscaling:LaunchTemplateVersionSpecified") == specified


def test_a_group_names_what_its_machines_are_made_of_and_registered_in() -> None:
    arguments = {"LaunchConfigurationName": "web", "TargetGroupARNs": ["arn:1"], "LoadBalancerNames": ["a", "b"]}
    sources = [{"Identifier": "arn:2", "Type": "elbv2"}]
    group, *_ = needs(
        "autoscaling", "CreateAutoScalingGroup", AutoScalingGroupName="c-new", TrafficSources=sources, **arguments
    )
    named = {key: value for key, value in group.context.items() if key.startswith("autoscaling:")}
    assert named == {
        "autoscaling:LaunchConfigurationName": "web",
        "autoscaling:TargetGroupARNs": "arn:1",
        "autoscaling:LoadBalancerNames": ["a", "b"],
        "autoscaling:TrafficSourceIdentifiers": "arn:2",
    }


def test_a_change_is_checked_against_the_groups_own_template() -> None:
    assert pairs(needs("autoscaling", "UpdateAutoScalingGroup", AutoScalingGroupName="c-workers")) == [
        f"autoscaling:UpdateAutoScalingGroup {GROUP}",
        *LAUNCH,
    ]


@pytest.mark.parametrize(
    ("service", "operation", "params", "role"),
    [
        (
            "autoscaling",
            "CreateAutoScalingGroup",
            {"AutoScalingGroupName": "g"},
            "autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
        ),
        (
            "efs",
            "CreateMountTarget",
            {"FileSystemId": "fs-1", "SubnetId": "subnet-1"},
            "elasticfilesystem.amazonaws.com/AWSServiceRoleForAmazonElasticFileSystem",
        ),
    ],
)
def test_the_first_use_makes_the_services_role(service: str, operation: str, params: dict[str, Any], role: str) -> None:
    target = f"iam:CreateServiceLinkedRole role/aws-service-role/{role}"
    first = needs(service, operation, FakeWorld(linked=()), **params)
    assert target in pairs(first) and target not in pairs(needs(service, operation, **params))
    assert first[-1].context["iam:AWSServiceName"] == role.partition("/")[0]


# Allowed and refused --------------------------------------------------------------------------------------------------

CLUSTER_ONLY = {"StringEquals": {"aws:RequestTag/deeplearning:cluster": "c"}}
OF_CLUSTER = {"StringEquals": {"aws:ResourceTag/deeplearning:cluster": "c"}}
CLUSTER_TAG = ("deeplearning:cluster",)


IN_TAGGED_VPCS = [
    allow("ec2:CreateSubnet", f"{EC2}subnet/*", Condition=CLUSTER_ONLY),
    allow("ec2:CreateSubnet", f"{EC2}vpc/*", Condition=OF_CLUSTER),
]
LAUNCHES: tuple[str, str, dict[str, Any]] = ("ec2", "RunInstances", {"SubnetId": "subnet-1", **BY_TEMPLATE})


def passes_to(service: str) -> list[dict[str, Any]]:
    condition = {"StringEquals": {"iam:PassedToService": service}}
    return [allow("ec2:*"), allow("iam:PassRole", f"{IAM}role/c/*", Condition=condition)]


@pytest.mark.parametrize(
    ("statements", "call", "expected"),
    [
        ([allow("ec2:DescribeVpcs")], ("ec2", "DescribeInstances", {}), ["ec2:DescribeInstances *"]),
        # one ARN and not another, one tag and not another
        *(
            (
                [statement],
                ("ec2", "StopInstances", {"InstanceIds": ["i-1", "i-2"]}),
                ["ec2:StopInstances instance/i-2"],
            )
            for statement in (
                allow("ec2:StopInstances", f"{EC2}instance/i-1"),
                allow("ec2:*", Condition=OF_CLUSTER),
                allow("ec2:*", Condition={"StringEquals": {"ec2:ResourceTag/deeplearning:cluster": "c"}}),
            )
        ),
        (
            [allow("autoscaling:*", Condition={"StringEquals": {"autoscaling:ResourceTag/deeplearning:cluster": "c"}})],
            ("autoscaling", "SetDesiredCapacity", {"AutoScalingGroupName": "c-workers"}),
            [],
        ),
        # tags of the request
        (
            [allow("ec2:CreateTags", Condition=CLUSTER_ONLY)],
            ("ec2", "CreateTags", {"Resources": ["i-1"], "Tags": tags("deeplearning:cluster")}),
            [],
        ),
        (
            [allow("ec2:CreateTags", Condition=CLUSTER_ONLY)],
            ("ec2", "CreateTags", {"Resources": ["i-1"], "Tags": tags("deeplearning:cluster", value="d")}),
            ["ec2:CreateTags instance/i-1"],
        ),
        # tags in a creating call are for what is created, not for what it is created in
        (
            [
                *IN_TAGGED_VPCS,
                allow("ec2:CreateTags", Condition={"StringEquals": {"ec2:CreateAction": "CreateSubnet"}}),
            ],
            ("ec2", "CreateSubnet", {"VpcId": "vpc-1", "TagSpecifications": specification("subnet", *CLUSTER_TAG)}),
            [],
        ),
        (
            [*IN_TAGGED_VPCS, allow("ec2:CreateTags", Condition={"StringEquals": {"ec2:CreateAction": "CreateVpc"}})],
            ("ec2", "CreateSubnet", {"VpcId": "vpc-2", "TagSpecifications": specification("subnet", *CLUSTER_TAG)}),
            ["ec2:CreateSubnet vpc/vpc-2", "ec2:CreateTags subnet/*"],
        ),
        # passing a role
        ([allow("ec2:*")], LAUNCHES, ["iam:PassRole role/c/c-worker"]),
        (passes_to("ec2.amazonaws.com"), LAUNCHES, []),
        (passes_to("lambda.amazonaws.com"), LAUNCHES, ["iam:PassRole role/c/c-worker"]),
        # only small instances
        (
            [
                allow(["ec2:*", "iam:*"]),
                {
                    "Effect": "Deny",
                    "Action": "ec2:RunInstances",
                    "Resource": f"{EC2}instance/*",
                    "Condition": {"StringNotLike": {"ec2:InstanceType": "t3.*"}},
                },
            ],
            LAUNCHES,
            ["ec2:RunInstances instance/*"],
        ),
        # a parameter as a condition
        (
            [allow("s3:ListBucket", Condition={"StringLike": {"s3:prefix": "runs/*"}})],
            ("s3", "ListObjectsV2", {"Bucket": "b", "Prefix": "runs/1"}),
            [],
        ),
        (
            [allow("*", Condition={"StringEquals": {"aws:RequestedRegion": "eu-west-1"}})],
            ("ec2", "DescribeVpcs", {}),
            ["ec2:DescribeVpcs *"],
        ),
        ([{"Effect": "Deny", "Action": "*", "Resource": "*"}], ("sts", "GetCallerIdentity", {}), []),
    ],
)
def test_allowed_and_refused(
    statements: list[dict[str, Any]], call: tuple[str, str, dict[str, Any]], expected: list[str]
) -> None:
    service, operation, params = call
    assert refused(service, operation, *statements, **params) == expected


# Whose word counts ----------------------------------------------------------------------------------------------------


def bucket_policy(effect: str, principal: Any, **more: Any) -> Any:
    statement = {"Effect": effect, "Principal": principal, "Action": "s3:*", "Resource": "arn:aws:s3:::b/*", **more}
    return parse_policy({"Version": "2012-10-17", "Statement": statement}, kind="resource", name="bucket")


ROOT = {"AWS": f"{IAM}root"}


@pytest.mark.parametrize(
    ("mine", "theirs", "allowed", "source"),
    [
        ([], ("Allow", {"AWS": OPERATOR.arn}), True, "resource"),
        ([], ("Allow", {"AWS": "AIDAOPERATOR"}), True, "resource"),
        ([], ("Allow", "*"), True, "resource"),
        ([], ("Allow", {"AWS": "*"}), True, "resource"),
        ([], ("Allow", ROOT), False, "identity"),
        ([], ("Allow", {"AWS": ACCOUNT}), False, "identity"),
        ([allow("s3:*")], ("Allow", ROOT), True, "identity"),
        ([], ("Allow", {"AWS": f"{IAM}user/other"}), False, "identity"),
        ([allow("s3:*")], ("Deny", ROOT), False, "resource"),
        ([allow("s3:*")], ("Deny", {"AWS": f"{IAM}user/other"}), True, "identity"),
        ([{"Effect": "Deny", "Action": "s3:*", "Resource": "*"}], ("Allow", "*"), False, "identity"),
    ],
)
def test_a_buckets_policy_and_the_callers_own(mine: list[Any], theirs: Any, allowed: bool, source: str) -> None:
    policies = [parse_policy({"Version": "2012-10-17", "Statement": mine})] if mine else []
    about = {"arn:aws:s3:::b": bucket_policy(*theirs)}
    [need] = needs("s3", "GetObject", Bucket="b", Key="k")
    decision = evaluate(policies, need, OPERATOR, about, None)
    assert (decision.allowed, decision.source) == (allowed, source)


def trust(principal: Any, **more: Any) -> Any:
    statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", **more}
    return parse_policy({"Version": "2012-10-17", "Statement": statement}, kind="trust", name="trust")


@pytest.mark.parametrize(
    ("mine", "principal", "more", "allowed"),
    [
        ([allow("sts:*")], None, {}, False),
        ([allow("sts:*")], ROOT, {}, True),
        ([], ROOT, {}, False),
        ([], {"AWS": OPERATOR.arn}, {}, True),
        ([allow("sts:*")], {"Service": "ec2.amazonaws.com"}, {}, False),
        ([allow("sts:*")], ROOT, {"Condition": {"StringEquals": {"sts:ExternalId": "secret"}}}, False),
    ],
)
def test_a_role_must_trust_the_caller(mine: list[Any], principal: Any, more: dict[str, Any], allowed: bool) -> None:
    role = f"{IAM}role/r"
    policies = [parse_policy({"Version": "2012-10-17", "Statement": mine})] if mine else []
    about = {role: trust(principal, **more)} if principal else {}
    asked = needs("sts", "AssumeRole", RoleArn=role, RoleSessionName="s")
    result = authorize(policies, asked, OPERATOR, resource_policies=about)
    assert (not result) is allowed
    if result:
        assert denied(BY_NAME["sts"].refusal, result[0], OPERATOR.arn).code == "AccessDenied"


def test_ec2_itself_may_assume_the_role_that_trusts_it() -> None:
    role, ec2 = f"{IAM}role/r", Caller.service("ec2.amazonaws.com")
    asked = needs("sts", "AssumeRole", RoleArn=role)
    assert authorize([], asked, ec2, resource_policies={role: trust({"Service": "ec2.amazonaws.com"})}) == []
    assert authorize([], asked, ec2, resource_policies={role: trust({"Service": "lambda.amazonaws.com"})})


def test_a_trust_policy_says_nothing_about_other_actions_on_the_role() -> None:
    asked = needs("iam", "GetRole", RoleName="c-worker")
    assert authorize([], asked, OPERATOR, resource_policies={f"{IAM}role/c/c-worker": trust("*")})


def test_a_boundary_must_allow_too() -> None:
    mine = [parse_policy({"Version": "2012-10-17", "Statement": allow("*")})]
    bound = [parse_policy({"Version": "2012-10-17", "Statement": allow("ec2:*")}, name="bound")]
    assert authorize(mine, needs("ec2", "DescribeVpcs"), OPERATOR, boundaries=bound) == []
    [denial] = authorize(mine, needs("s3", "ListBuckets"), OPERATOR, boundaries=bound)
    assert denied(BY_NAME["s3"].refusal, denial, OPERATOR.arn).message.endswith(
        "no permissions boundary allows the s3:ListAllMyBuckets action"
    )


# AWS's words ----------------------------------------------------------------------------------------------------------


def first(service: str, operation: str, *statements: Mapping[str, Any], **params: Any) -> Denial:
    policies = [parse_policy({"Version": "2012-10-17", "Statement": list(statements)})] if statements else []
    return authorize(policies, needs(service, operation, **params), OPERATOR)[0]


WHO = f"User: {OPERATOR.arn} is not authorized to perform: "


@pytest.mark.parametrize(
    ("service", "denial", "code", "message"),
    [
        (
            "ec2",
            first("ec2", "DescribeVpcs"),
            "UnauthorizedOperation",
            f"You are not authorized to perform this operation. {WHO}ec2:DescribeVpcs because no "
            f"identity-based policy allows "
            "the ec2:DescribeVpcs action",
        ),
        (
            "ec2",
            first("ec2", "DeleteVpc", {"Effect": "Deny", "Action": "*", "Resource": "*"}, VpcId="vpc-1"),
            "UnauthorizedOperation",
            f"You are not authorized to perform this operation. {WHO}ec2:DeleteVpc on resource: "
            f"{EC2}vpc/vpc-1 with an explicit "
            "deny in an identity-based policy",
        ),
        (
            "iam",
            first("iam", "GetRole", RoleName="x"),
            "AccessDenied",
            f"{WHO}iam:GetRole on resource: {IAM}role/x because no identity-based policy allows the iam:GetRole action",
        ),
        (
            "s3",
            first("s3", "HeadBucket", Bucket="b"),
            "AccessDenied",
            f"{WHO}s3:ListBucket on resource: arn:aws:s3:::b because no identity-based policy allows "
            f"the s3:ListBucket action",
        ),
        (
            "ssm",
            first("ssm", "GetParameter", Name="x"),
            "AccessDeniedException",
            f"{WHO}ssm:GetParameter on resource: {SSM}{ACCOUNT}:parameter/x because no identity-based "
            f"policy allows the "
            "ssm:GetParameter action",
        ),
        (
            "sts",
            first("sts", "AssumeRole", RoleArn=f"{IAM}role/r"),
            "AccessDenied",
            f"{WHO}sts:AssumeRole on resource: {IAM}role/r",
        ),
        (
            "autoscaling",
            first(
                "autoscaling",
                "UpdateAutoScalingGroup",
                allow(["autoscaling:*", "ec2:*"]),
                AutoScalingGroupName="c-workers",
            ),
            "AccessDenied",
            f"You are not authorized to use launch template: lt-1. {WHO}iam:PassRole on resource: "
            f"{IAM}role/c/c-worker because no "
            "identity-based policy allows the iam:PassRole action",
        ),
    ],
)
def test_how_a_refusal_is_worded(service: str, denial: Denial, code: str, message: str) -> None:
    error = denied(BY_NAME[service].refusal, denial, OPERATOR.arn)
    assert (error.code, error.message, error.status) == (code, message, 400 if service == "ssm" else 403)


@pytest.mark.parametrize(
    ("service", "operation"),
    [("ec2", "CreateTransitGateway"), ("ec2", "runinstances"), ("nowhere", "RunInstances")],
)
def test_what_is_unknown_is_refused(service: str, operation: str) -> None:
    with pytest.raises(UnknownOperation):
        needs(service, operation)
    assert unknown(Refusal("AccessDenied"), service, operation).status == 403


# The table itself -----------------------------------------------------------------------------------------------------

ROWS = sorted(TABLE)


def test_each_row_is_about_a_real_operation() -> None:
    names = {service: set(model(service).operation_names) for service, _ in ROWS}
    assert [row for row in ROWS if row[1] not in names[row[0]]] == []


def test_each_row_answers_for_any_valid_call() -> None:
    arn = re.compile(r"arn:aws:([^:]*:){3}.*")
    unanswered, wrong = [], {}
    for service, operation in ROWS:
        shape = model(service).operation_model(operation).input_shape
        for everything in (False, True):
            params = minimal(shape, everything=everything) if shape else {}
            for world in (WORLD, FakeWorld(linked=())):
                result = required(service, operation, params, world, REGION)
                if not result:
                    unanswered.append((service, operation))
                for need in result:
                    if need.action.count(":") != 1 or not (need.resource == "*" or arn.fullmatch(need.resource)):
                        wrong[service, operation] = need
    assert set(unanswered) == {("sts", "GetCallerIdentity")}
    assert wrong == {}


class Watched(dict[str, Any]):
    """Parameters that are all absent, and the names under which they were read."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return None


def test_each_parameter_that_a_row_names_exists() -> None:
    """Rows read parameters by name; a misspelt one would silently be absent."""
    shared = {
        "TagSpecifications",
        "Tags",
        "TagKeys",
        "LaunchTemplate",
        "DesiredConfiguration",
        "VPCZoneIdentifier",
        "AutoScalingGroupName",
        "Path",
        "ServiceLinkedRoleARN",
    }
    misspelt = {}
    for service, operation in ROWS:
        shape = model(service).operation_model(operation).input_shape
        params = Watched()
        required(service, operation, params, FakeWorld(linked=()), REGION)
        if extra := params.names - shared - set(shape.members if shape else ()):
            misspelt[service, operation] = extra
    assert misspelt == {}
