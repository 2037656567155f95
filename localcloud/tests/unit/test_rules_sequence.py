"""A policy of just what the calls say they need lets a small provisioning through, and is the least that does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from localcloud.api import enforcement as rules
from localcloud.api.ec2.images import API_ONLY
from localcloud.api.iam.identities import OPERATOR, bootstrap
from localcloud.core.caller import Caller
from localcloud.core.cloud import Call, Cloud
from localcloud.core.errors import AwsError
from localcloud.testing.clock import ManualClock
from localcloud_kits.rules_kit import REGION, allow, document, tagged, tags, trust

ACTIONS = [
    "autoscaling:CreateAutoScalingGroup",
    "autoscaling:CreateOrUpdateTags",
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:CreateLaunchTemplate",
    "ec2:CreateNetworkInterface",
    "ec2:CreateSecurityGroup",
    "ec2:CreateSubnet",
    "ec2:CreateTags",
    "ec2:CreateVpc",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:RunInstances",
    "elasticfilesystem:CreateFileSystem",
    "elasticfilesystem:CreateMountTarget",
    "elasticfilesystem:TagResource",
    "iam:AddRoleToInstanceProfile",
    "iam:CreateInstanceProfile",
    "iam:CreateRole",
    "iam:CreateServiceLinkedRole",
    "iam:PassRole",
    "iam:PutRolePolicy",
    "iam:TagInstanceProfile",
    "iam:TagRole",
    "s3:CreateBucket",
    "s3:PutBucketTagging",
    "s3:PutObject",
]
"""what an operator needs for it"""


class Operator:
    """Asks as the front does: what is needed, whether it is allowed, and only then the service."""

    def __init__(self, cloud: Cloud, clock: ManualClock, caller: Caller) -> None:
        self.cloud, self.clock, self.caller = cloud, clock, caller
        self.needed: set[str] = set()

    def ask(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        call = Call(self.cloud, service, operation, params, REGION, self.caller)
        needs = rules.required(call)
        self.needed |= {need["action"] for need in needs.as_json()}
        rules.enforce(call, needs, "198.51.100.1")
        return self.cloud.ask(service, operation, REGION, params, self.caller)

    def provision(self) -> None:
        def ours(*kinds: str) -> dict[str, Any]:
            return {
                "TagSpecifications": [specification for kind in kinds for specification in tagged(kind, cluster="c")]
            }

        bare = {"Tags": tags(cluster="c")}
        ask = self.ask
        vpc = ask("ec2", "CreateVpc", CidrBlock="10.0.0.0/16", **ours("vpc"))["Vpc"]["VpcId"]
        subnet = ask("ec2", "CreateSubnet", VpcId=vpc, CidrBlock="10.0.0.0/24", **ours("subnet"))["Subnet"]["SubnetId"]
        group = ask("ec2", "CreateSecurityGroup", GroupName="c", Description="c", VpcId=vpc, **ours("security-group"))[
            "GroupId"
        ]
        ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "198.51.100.1/32"}]}
        ask("ec2", "AuthorizeSecurityGroupIngress", GroupId=group, IpPermissions=[ssh])
        trusted = trust({"Service": "ec2.amazonaws.com"})
        ask("iam", "CreateRole", RoleName="c", AssumeRolePolicyDocument=trusted, **bare)
        ask("iam", "PutRolePolicy", RoleName="c", PolicyName="c", PolicyDocument=document(allow("s3:GetObject")))
        ask("iam", "CreateInstanceProfile", InstanceProfileName="c", **bare)
        ask("iam", "AddRoleToInstanceProfile", InstanceProfileName="c", RoleName="c")
        data = {
            "ImageId": API_ONLY.id,
            "InstanceType": "t3.micro",
            "SecurityGroupIds": [group],
            "IamInstanceProfile": {"Name": "c"},
            **ours("instance", "volume"),
        }
        ask("ec2", "CreateLaunchTemplate", LaunchTemplateName="c-nodes", LaunchTemplateData=data)
        ask(
            "autoscaling",
            "CreateAutoScalingGroup",
            AutoScalingGroupName="c",
            MinSize=1,
            MaxSize=1,
            LaunchTemplate={"LaunchTemplateName": "c-nodes"},
            VPCZoneIdentifier=subnet,
            Tags=[{"Key": "cluster", "Value": "c", "PropagateAtLaunch": True}],
        )
        files = ask("efs", "CreateFileSystem", CreationToken="c", **bare)["FileSystemId"]
        self.clock.advance(1)
        ask("efs", "CreateMountTarget", FileSystemId=files, SubnetId=subnet, SecurityGroups=[group])
        ask("s3", "CreateBucket", Bucket="c-bucket")
        ask("s3", "PutBucketTagging", Bucket="c-bucket", Tagging={"TagSet": tags(cluster="c")})
        ask("s3", "PutObject", Bucket="c-bucket", Key="a", Body=b"1")


@pytest.fixture
def operator(cloud: Cloud, clock: ManualClock) -> Iterator[Operator]:
    caller, _ = cloud.credentials.resolve(bootstrap(cloud)[0], None)
    yield Operator(cloud, clock, caller)


def restrict(cloud: Cloud, actions: list[str]) -> None:
    admin = "arn:aws:iam::aws:policy/AdministratorAccess"
    cloud.moto("iam", "DetachUserPolicy", REGION, {"UserName": OPERATOR, "PolicyArn": admin})
    policy = {"UserName": OPERATOR, "PolicyName": "p", "PolicyDocument": document(allow(actions))}
    cloud.moto("iam", "PutUserPolicy", REGION, policy)


def test_the_sequence_needs_exactly_these_actions(cloud: Cloud, operator: Operator) -> None:
    operator.provision()
    assert sorted(operator.needed) == ACTIONS


def test_a_policy_of_these_actions_covers_the_sequence(cloud: Cloud, operator: Operator) -> None:
    restrict(cloud, ACTIONS)
    operator.provision()


@pytest.mark.parametrize("missing", ACTIONS)
def test_the_sequence_fails_without_any_one_of_these_actions(cloud: Cloud, operator: Operator, missing: str) -> None:
    restrict(cloud, [action for action in ACTIONS if action != missing])
    with pytest.raises(AwsError, match=f"is not authorized to perform: {missing}[ ]") as caught:
        operator.provision()
    assert caught.value.code in ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")
