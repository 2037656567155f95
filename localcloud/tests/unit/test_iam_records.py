"""IAM's records: who has which policy, since when it counts, and what AWS refuses and moto does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from localcloud.api.iam import identities as iam
from localcloud.api.iam.history import (
    boundary_in_effect,
    policies_in_effect,
    profile_in_effect,
    trust_policy,
)
from localcloud.api.iam.linked_roles import ensure_service_linked_role
from localcloud.core.caller import Caller
from localcloud.core.cloud import Cloud
from localcloud.core.errors import AwsError
from localcloud.core.latency import Latency
from localcloud.testing.clock import ManualClock

DELAY = 15
SSM = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def latency() -> Latency:
    return Latency("test", {"iam_in_effect": DELAY})


@pytest.fixture
def ask(cloud: Cloud) -> Ask:
    def ask(operation: str, caller: Caller | None = None, **params: Any) -> dict[str, Any]:
        return cloud.ask("iam", operation, "us-east-1", params, caller or Caller.service("test"))

    return ask


def policy(action: str = "s3:GetObject", **more: Any) -> str:
    statement = {"Effect": "Allow", "Action": action, "Resource": "*", **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def trust(principal: Any) -> str:
    statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


EC2 = trust({"Service": "ec2.amazonaws.com"})


def role_caller(name: str) -> Caller:
    return Caller("role", name, f"arn:aws:sts::123456789012:assumed-role/{name}/i-1", "AROAX:i-1")


def actions(cloud: Cloud, caller: Caller) -> dict[str, Any]:
    """What the policies in effect allow, by policy."""
    return {
        name: document["Statement"][0]["Action"]
        for name, document in policies_in_effect(cloud, caller)
        if not name.startswith("Amazon")
    }


@pytest.fixture
def role(ask: Ask) -> Caller:
    ask("CreateRole", RoleName="worker", AssumeRolePolicyDocument=EC2)
    return role_caller("worker")


def test_the_operator_may_do_everything_at_once(cloud: Cloud) -> None:
    key, secret = iam.bootstrap(cloud)
    assert len(key) == 20 and key.startswith("AKIA") and len(secret) == 40
    caller, known = cloud.credentials.resolve(key, None)
    assert (caller.name, known) == ("operator", secret)
    assert [name for name, _ in policies_in_effect(cloud, caller)] == ["AdministratorAccess"]


def test_a_service_has_no_policies(cloud: Cloud) -> None:
    assert policies_in_effect(cloud, Caller.service("autoscaling.amazonaws.com")) == []


def test_a_new_policy_counts_after_a_while(ask: Ask, cloud: Cloud, clock: ManualClock, role: Caller) -> None:
    ask("PutRolePolicy", RoleName="worker", PolicyName="p", PolicyDocument=policy("s3:GetObject"))
    clock.advance(DELAY - 1)
    assert actions(cloud, role) == {}
    clock.advance(1)
    assert actions(cloud, role) == {"p": "s3:GetObject"}


def test_until_a_change_counts_the_policy_before_it_does(
    ask: Ask, cloud: Cloud, clock: ManualClock, role: Caller
) -> None:
    for action in ("s3:GetObject", "s3:PutObject"):
        ask("PutRolePolicy", RoleName="worker", PolicyName="p", PolicyDocument=policy(action))
        clock.advance(DELAY)
    ask("PutRolePolicy", RoleName="worker", PolicyName="p", PolicyDocument=policy("s3:DeleteObject"))
    assert actions(cloud, role) == {"p": "s3:PutObject"}
    # The same again is no change that would start the wait anew.
    clock.advance(DELAY - 1)
    ask("PutRolePolicy", RoleName="worker", PolicyName="p", PolicyDocument=policy("s3:DeleteObject"))
    clock.advance(1)
    assert actions(cloud, role) == {"p": "s3:DeleteObject"}


def test_a_policy_counts_a_while_longer_than_it_is_there(
    ask: Ask, cloud: Cloud, clock: ManualClock, role: Caller
) -> None:
    ask("PutRolePolicy", RoleName="worker", PolicyName="p", PolicyDocument=policy())
    clock.advance(DELAY)
    ask("DeleteRolePolicy", RoleName="worker", PolicyName="p")
    clock.advance(DELAY - 1)
    assert actions(cloud, role) == {"p": "s3:GetObject"}
    clock.advance(1)
    assert actions(cloud, role) == {}
    ask("PutRolePolicy", RoleName="worker", PolicyName="p", PolicyDocument=policy())
    assert actions(cloud, role) == {}
    clock.advance(DELAY)
    assert actions(cloud, role) == {"p": "s3:GetObject"}


def test_a_detached_policy_counts_a_while_longer(ask: Ask, cloud: Cloud, clock: ManualClock, role: Caller) -> None:
    arn = ask("CreatePolicy", PolicyName="mine", PolicyDocument=policy())["Policy"]["Arn"]
    ask("AttachRolePolicy", RoleName="worker", PolicyArn=arn)
    clock.advance(DELAY)
    ask("DetachRolePolicy", RoleName="worker", PolicyArn=arn)
    clock.advance(DELAY - 1)
    assert actions(cloud, role) == {"mine": "s3:GetObject"}
    clock.advance(1)
    assert actions(cloud, role) == {}


def test_the_policies_of_a_deleted_role_are_not_those_of_a_new_one(
    ask: Ask, cloud: Cloud, clock: ManualClock, role: Caller
) -> None:
    ask("PutRolePolicy", RoleName="worker", PolicyName="p", PolicyDocument=policy())
    clock.advance(DELAY)
    ask("DeleteRolePolicy", RoleName="worker", PolicyName="p")
    ask("DeleteRole", RoleName="worker")
    ask("CreateRole", RoleName="worker", AssumeRolePolicyDocument=EC2)
    assert actions(cloud, role) == {}


def test_a_trust_policy_counts_after_a_while(ask: Ask, cloud: Cloud, clock: ManualClock, role: Caller) -> None:
    arn = "arn:aws:iam::123456789012:role/worker"
    assert trust_policy(cloud, arn) is None
    clock.advance(DELAY)
    assert trust_policy(cloud, arn) == EC2
    changed = trust({"Service": "elasticmapreduce.amazonaws.com"})
    ask("UpdateAssumeRolePolicy", RoleName="worker", PolicyDocument=changed)
    clock.advance(DELAY - 1)
    assert trust_policy(cloud, arn) == EC2
    clock.advance(1)
    assert trust_policy(cloud, arn) == changed
    assert trust_policy(cloud, f"{arn}s") is None


def test_a_fault_can_lengthen_or_lift_the_wait(ask: Ask, cloud: Cloud, clock: ManualClock, role: Caller) -> None:
    ask("PutRolePolicy", RoleName="worker", PolicyName="p", PolicyDocument=policy())
    fault = cloud.faults.add("late-iam", {}, 100)
    clock.advance(DELAY)
    assert actions(cloud, role) == {}
    fault.value = 0
    assert actions(cloud, role) == {"p": "s3:GetObject"}


def test_managed_policies_count_from_attachment(ask: Ask, cloud: Cloud, clock: ManualClock, role: Caller) -> None:
    arn = ask("CreatePolicy", PolicyName="mine", PolicyDocument=policy("s3:GetObject"))["Policy"]["Arn"]
    clock.advance(DELAY)
    ask("AttachRolePolicy", RoleName="worker", PolicyArn=arn)
    assert actions(cloud, role) == {}
    clock.advance(DELAY)
    assert actions(cloud, role) == {"mine": "s3:GetObject"}


def test_policies_of_aws_are_known(ask: Ask, cloud: Cloud, clock: ManualClock, role: Caller) -> None:
    for _ in range(2):
        ask("AttachRolePolicy", RoleName="worker", PolicyArn=SSM)
    clock.advance(DELAY)
    (name, document), *rest = policies_in_effect(cloud, role)
    assert (name, rest) == ("AmazonSSMManagedInstanceCore", [])
    assert "ssm:UpdateInstanceInformation" in document["Statement"][0]["Action"]
    with pytest.raises(AwsError, match="NoSuchEntity: Policy .* does not exist or is not attachable."):
        ask("AttachRolePolicy", RoleName="worker", PolicyArn="arn:aws:iam::aws:policy/NoneSuch")


def test_a_profile_counts_once_it_and_its_role_are_old_enough(ask: Ask, cloud: Cloud, clock: ManualClock) -> None:
    ask("CreateRole", RoleName="worker", AssumeRolePolicyDocument=EC2)
    ask("CreateInstanceProfile", InstanceProfileName="profile")
    clock.advance(10)
    ask("AddRoleToInstanceProfile", InstanceProfileName="profile", RoleName="worker")
    clock.advance(DELAY - 1)
    assert not profile_in_effect(cloud, "profile")
    clock.advance(1)
    assert profile_in_effect(cloud, "profile")
    assert not profile_in_effect(cloud, "none")


def test_a_role_in_use_is_not_deleted(ask: Ask, role: Caller) -> None:
    ask("CreateInstanceProfile", InstanceProfileName="profile")
    ask("AddRoleToInstanceProfile", InstanceProfileName="profile", RoleName="worker")
    ask("PutRolePolicy", RoleName="worker", PolicyName="p", PolicyDocument=policy())
    ask("AttachRolePolicy", RoleName="worker", PolicyArn=SSM)
    ask("CreateRole", RoleName="second", AssumeRolePolicyDocument=EC2)
    with pytest.raises(AwsError, match="LimitExceeded"):
        ask("AddRoleToInstanceProfile", InstanceProfileName="profile", RoleName="second")
    for operation, params, words in (
        (
            "RemoveRoleFromInstanceProfile",
            {"InstanceProfileName": "profile"},
            "must remove roles from instance profile",
        ),
        ("DetachRolePolicy", {"PolicyArn": SSM}, "must detach all policies first"),
        ("DeleteRolePolicy", {"PolicyName": "p"}, "must delete policies first"),
    ):
        with pytest.raises(AwsError, match=f"DeleteConflict: Cannot delete entity, {words}"):
            ask("DeleteRole", RoleName="worker")
        ask(operation, RoleName="worker", **params)
    ask("DeleteRole", RoleName="worker")
    with pytest.raises(AwsError, match="NoSuchEntity: The role with name worker cannot be found."):
        ask("DeleteRole", RoleName="worker")


MANY = [f"arn:aws:s3:::bucket-with-a-long-name-{n:04}" for n in range(300)]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("CreateRole", {"AssumeRolePolicyDocument": "{"}, "MalformedPolicyDocument"),
    ("CreateRole", {"AssumeRolePolicyDocument": policy()}, "MalformedPolicyDocument"),
    ("CreateRole", {"RoleName": "x" * 65}, "ValidationError: .* less than or equal to 64"),
    ("CreateRole", {"RoleName": "a b"}, "ValidationError: .*pattern"),
    ("CreateRole", {"RoleName": "worker"}, "EntityAlreadyExists: Role with name worker already exists."),
    (
        "CreateRole",
        {"AssumeRolePolicyDocument": trust({"AWS": "arn:aws:iam::123456789012:role/none"})},
        "MalformedPolicyDocument: Invalid principal in policy",
    ),
    (
        "CreateRole",
        {"AssumeRolePolicyDocument": trust({"AWS": "missing"})},
        "MalformedPolicyDocument: Invalid principal",
    ),
    ("UpdateAssumeRolePolicy", {"PolicyDocument": "[]", "RoleName": "worker"}, "MalformedPolicyDocument"),
    ("PutRolePolicy", {"PolicyDocument": "{'a': 1}", "RoleName": "worker"}, "MalformedPolicyDocument: Syntax errors"),
    ("PutRolePolicy", {"PolicyDocument": policy(Resource="x"), "RoleName": "worker"}, "MalformedPolicyDocument"),
    ("PutRolePolicy", {"RoleName": "none"}, "NoSuchEntity: The role with name none cannot be found."),
    (
        "PutRolePolicy",
        {"PolicyDocument": policy(Resource=MANY), "RoleName": "worker"},
        "LimitExceeded: Maximum policy size of 10240 bytes exceeded for role worker",
    ),
    (
        "CreatePolicy",
        {"PolicyDocument": policy(Resource=MANY)},
        "LimitExceeded: Cannot exceed quota for PolicySize: 6144",
    ),
    ("DeleteRolePolicy", {"RoleName": "worker"}, "NoSuchEntity: The role policy with name p cannot be found."),
    ("GetRole", {"RoleName": "none"}, "NoSuchEntity: The role with name none cannot be found."),
    ("GetInstanceProfile", {"InstanceProfileName": "no"}, "NoSuchEntity: Instance Profile no cannot be found."),
]
DEFAULTS = {
    "CreateRole": {"RoleName": "new", "AssumeRolePolicyDocument": EC2},
    "PutRolePolicy": {"PolicyName": "p", "PolicyDocument": policy()},
    "CreatePolicy": {"PolicyName": "p"},
    "DeleteRolePolicy": {"PolicyName": "p"},
}


@pytest.mark.parametrize(("operation", "params", "error"), REFUSED)
def test_what_aws_refuses_is_refused(
    ask: Ask, role: Caller, operation: str, params: dict[str, Any], error: str
) -> None:
    with pytest.raises(AwsError, match=error):
        ask(operation, **DEFAULTS.get(operation, {}) | params)


ACCEPTED = [
    policy("autoscaling:*", Resource="arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/dl-*"),
    policy("s3:PutObject", Resource="arn:aws:s3:::bucket/runs/${aws:userid}/*"),
    policy("ec2:CreateTags", Condition={"ForAllValues:StringEquals": {"aws:TagKeys": ["deeplearning:rank"]}}),
    policy(
        "ec2:*",
        Condition={"StringEqualsIfExists": {"aws:ResourceTag/deeplearning:cluster": "a"}, "Null": {"a:b": "true"}},
    ),
    policy(
        "iam:PassRole", Resource="arn:aws:iam::*:role/x", Condition={"StringLike": {"iam:PassedToService": "ec2.*"}}
    ),
    policy("ssm:GetParameter", Resource="arn:aws:ssm:*::parameter/aws/service/*"),
]


@pytest.mark.parametrize("document", ACCEPTED)
def test_what_aws_takes_is_taken(ask: Ask, role: Caller, document: str) -> None:
    ask("PutRolePolicy", RoleName="worker", PolicyName="p", PolicyDocument=document)
    ask("CreatePolicy", PolicyName="p", PolicyDocument=document)


def test_no_more_than_ten_managed_policies(ask: Ask, role: Caller) -> None:
    arns = [ask("CreatePolicy", PolicyName=f"p{n}", PolicyDocument=policy())["Policy"]["Arn"] for n in range(11)]
    for arn in arns[:10]:
        ask("AttachRolePolicy", RoleName="worker", PolicyArn=arn)
    with pytest.raises(AwsError, match="LimitExceeded: Cannot exceed quota for PoliciesPerRole: 10"):
        ask("AttachRolePolicy", RoleName="worker", PolicyArn=arns[10])


def test_a_linked_role_is_made_once_and_is_not_to_be_touched(ask: Ask, cloud: Cloud) -> None:
    name = "AWSServiceRoleForAutoScaling"
    made = ask("CreateServiceLinkedRole", AWSServiceName="autoscaling.amazonaws.com")["Role"]
    assert made["Arn"].endswith(f":role/aws-service-role/autoscaling.amazonaws.com/{name}")
    with pytest.raises(AwsError, match=f"InvalidInput: Service role name {name} has been taken in this account"):
        ask("CreateServiceLinkedRole", AWSServiceName="autoscaling.amazonaws.com")
    ensure_service_linked_role(cloud, "autoscaling.amazonaws.com")
    for operation in ("DeleteRole", "PutRolePolicy"):
        with pytest.raises(AwsError, match="UnmodifiableEntity"):
            ask(operation, RoleName=name, PolicyName="p", PolicyDocument=policy())
    with pytest.raises(AwsError, match="InvalidInput"):
        ask("CreateServiceLinkedRole", AWSServiceName="nonesuch.amazonaws.com")
    with pytest.raises(AwsError, match="InvalidInput: Custom suffix"):
        ask("CreateServiceLinkedRole", AWSServiceName="elasticfilesystem.amazonaws.com", CustomSuffix="x")


def test_a_boundary_counts_after_a_while_and_a_while_longer(
    ask: Ask, cloud: Cloud, clock: ManualClock, role: Caller
) -> None:
    edge = ("edge", json.loads(policy()))
    arn = ask("CreatePolicy", PolicyName="edge", PolicyDocument=policy())["Policy"]["Arn"]
    clock.advance(DELAY)
    assert boundary_in_effect(cloud, role) is None
    ask("PutRolePermissionsBoundary", RoleName="worker", PermissionsBoundary=arn)
    assert boundary_in_effect(cloud, role) is None
    clock.advance(DELAY)
    assert boundary_in_effect(cloud, role) == edge
    ask("DeleteRolePermissionsBoundary", RoleName="worker")
    assert boundary_in_effect(cloud, role) == edge
    clock.advance(DELAY)
    assert boundary_in_effect(cloud, role) is None


def test_a_boundary_that_does_not_exist_allows_nothing(ask: Ask, cloud: Cloud, clock: ManualClock) -> None:
    nowhere = "arn:aws:iam::123456789012:policy/nowhere"
    ask("CreateRole", RoleName="caged", AssumeRolePolicyDocument=EC2, PermissionsBoundary=nowhere)
    assert boundary_in_effect(cloud, role_caller("caged")) == ("", {"Statement": []})


def test_boundaries_of_users_are_refused(ask: Ask) -> None:
    arn = ask("CreatePolicy", PolicyName="edge", PolicyDocument=policy())["Policy"]["Arn"]
    with pytest.raises(AwsError, match="ValidationError: .* no permissions boundaries of users"):
        ask("CreateUser", UserName="ada", PermissionsBoundary=arn)
