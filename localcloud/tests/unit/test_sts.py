"""Sessions of roles: who may have one, for how long, and who its holder then is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from localcloud.api import enforcement as rules
from localcloud.api.iam import identities as iam
from localcloud.core.caller import Caller
from localcloud.core.cloud import Call, Cloud
from localcloud.core.errors import AwsError
from localcloud.testing.clock import ManualClock

ROOT = "arn:aws:iam::123456789012:root"
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def operator(cloud: Cloud) -> Caller:
    return cloud.credentials.resolve(iam.bootstrap(cloud)[0], None)[0]


@pytest.fixture
def ask(cloud: Cloud, operator: Caller) -> Ask:
    def ask(operation: str, caller: Caller = operator, **params: Any) -> dict[str, Any]:
        call = Call(cloud, "sts", operation, params, "us-east-1", caller)
        rules.enforce(call, rules.required(call), "")
        return cloud.ask("sts", operation, "us-east-1", params, caller)

    return ask


def make_role(cloud: Cloud, name: str, principal: Any, path: str = "/", **more: Any) -> dict[str, Any]:
    condition = more.pop("Condition", {})
    statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", "Condition": condition}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    params = {"RoleName": name, "Path": path, "AssumeRolePolicyDocument": document, **more}
    role: dict[str, Any] = cloud.ask("iam", "CreateRole", "us-east-1", params, Caller.service("test"))["Role"]
    return role


def test_the_caller_is_told_who_he_is(ask: Ask, operator: Caller) -> None:
    assert ask("GetCallerIdentity") == {
        "UserId": operator.userid,
        "Account": "123456789012",
        "Arn": "arn:aws:iam::123456789012:user/operator",
    }


def test_an_assumed_role_is_its_holder_until_it_expires(cloud: Cloud, clock: ManualClock, ask: Ask) -> None:
    role = make_role(cloud, "worker", {"AWS": ROOT}, path="/dl/")
    answer = ask("AssumeRole", RoleArn=role["Arn"], RoleSessionName="one", DurationSeconds=900)
    assert answer["AssumedRoleUser"] == {
        "AssumedRoleId": f"{role['RoleId']}:one",
        "Arn": "arn:aws:sts::123456789012:assumed-role/worker/one",
    }
    issued = answer["Credentials"]
    caller, secret = cloud.credentials.resolve(issued["AccessKeyId"], issued["SessionToken"])
    assert secret == issued["SecretAccessKey"]
    assert ask("GetCallerIdentity", caller=caller) == {
        "UserId": f"{role['RoleId']}:one",
        "Account": "123456789012",
        "Arn": "arn:aws:sts::123456789012:assumed-role/worker/one",
    }
    clock.advance(900)
    with pytest.raises(AwsError, match="ExpiredToken"):
        cloud.credentials.resolve(issued["AccessKeyId"], issued["SessionToken"])


def test_a_role_that_trusts_only_a_service_is_for_it_alone(cloud: Cloud, ask: Ask) -> None:
    role = make_role(cloud, "worker", {"Service": "ec2.amazonaws.com"})
    with pytest.raises(
        AwsError, match="AccessDenied: User: .*user/operator is not authorized to perform: sts:AssumeRole"
    ):
        ask("AssumeRole", RoleArn=role["Arn"], RoleSessionName="one")
    ask("AssumeRole", caller=Caller.service("ec2.amazonaws.com"), RoleArn=role["Arn"], RoleSessionName="i-1")


def test_one_role_can_trust_another(cloud: Cloud, ask: Ask) -> None:
    first = make_role(cloud, "first", {"AWS": ROOT}, path="/dl/")
    second = make_role(cloud, "second", {"AWS": first["Arn"]}, MaxSessionDuration=7200)
    with pytest.raises(AwsError, match="AccessDenied"):
        ask("AssumeRole", RoleArn=second["Arn"], RoleSessionName="two")
    issued = ask("AssumeRole", RoleArn=first["Arn"], RoleSessionName="one")["Credentials"]
    caller, _ = cloud.credentials.resolve(issued["AccessKeyId"], issued["SessionToken"])
    ask("AssumeRole", caller=caller, RoleArn=second["Arn"], RoleSessionName="two")
    with pytest.raises(AwsError, match="ValidationError: .*1 hour session limit for roles assumed by role chaining"):
        ask("AssumeRole", caller=caller, RoleArn=second["Arn"], RoleSessionName="two", DurationSeconds=7200)


def test_an_external_id_must_match(cloud: Cloud, ask: Ask) -> None:
    condition = {"StringEquals": {"sts:ExternalId": "secret"}}
    role = make_role(cloud, "worker", {"AWS": ROOT}, Condition=condition)
    with pytest.raises(AwsError, match="AccessDenied"):
        ask("AssumeRole", RoleArn=role["Arn"], RoleSessionName="one", ExternalId="wrong")
    ask("AssumeRole", RoleArn=role["Arn"], RoleSessionName="one", ExternalId="secret")


def tags(**values: str) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in values.items()]


def test_tags_of_a_session_override_those_of_its_role(cloud: Cloud, ask: Ask) -> None:
    role = make_role(cloud, "worker", {"AWS": ROOT}, Tags=tags(cluster="red", team="one"))
    request = {"RoleArn": role["Arn"], "RoleSessionName": "one"}
    with pytest.raises(AwsError, match="AccessDenied: .*sts:TagSession"):
        ask("AssumeRole", **request, Tags=tags(Cluster="blue"))
    trusted = {"Effect": "Allow", "Principal": {"AWS": ROOT}, "Action": ["sts:AssumeRole", "sts:TagSession"]}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trusted]})
    params = {"RoleName": "worker", "PolicyDocument": document}
    cloud.ask("iam", "UpdateAssumeRolePolicy", "us-east-1", params, Caller.service("test"))
    issued = ask("AssumeRole", **request, Tags=tags(Cluster="blue"))["Credentials"]
    caller, _ = cloud.credentials.resolve(issued["AccessKeyId"], issued["SessionToken"])
    assert caller.tags == {"team": "one", "Cluster": "blue"}
    assert caller.context()["aws:PrincipalTag/Cluster"] == "blue"
    untagged = ask("AssumeRole", **request)["Credentials"]
    caller, _ = cloud.credentials.resolve(untagged["AccessKeyId"], untagged["SessionToken"])
    assert caller.tags == {"cluster": "red", "team": "one"}


@pytest.mark.parametrize(
    ("session_tags", "error"),
    [
        (tags(a="1", A="2"), "Duplicate tag keys"),
        (tags(a="*"), "ValidationError"),
        (tags(**{"": "1"}), "ValidationError"),
        (tags(**{f"key{number}": "1" for number in range(51)}), "ValidationError"),
    ],
)
def test_session_tags_that_aws_refuses_are_refused(
    cloud: Cloud, ask: Ask, session_tags: list[dict[str, str]], error: str
) -> None:
    trusted = {"Effect": "Allow", "Principal": {"AWS": ROOT}, "Action": ["sts:AssumeRole", "sts:TagSession"]}
    role = make_role(cloud, "worker", {"AWS": ROOT})
    params = {
        "RoleName": "worker",
        "PolicyDocument": json.dumps({"Version": "2012-10-17", "Statement": [trusted]}),
    }
    cloud.ask("iam", "UpdateAssumeRolePolicy", "us-east-1", params, Caller.service("test"))
    with pytest.raises(AwsError, match=error):
        ask("AssumeRole", RoleArn=role["Arn"], RoleSessionName="one", Tags=session_tags)


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"RoleSessionName": "a"}, "ValidationError: .*roleSessionName"),
        ({"RoleSessionName": "a b"}, "ValidationError: .*roleSessionName"),
        ({"DurationSeconds": 899}, "ValidationError: .*greater than or equal to 900"),
        ({"DurationSeconds": 3601}, "ValidationError: .*exceeds the MaxSessionDuration set for this role."),
        ({"Policy": "{}"}, "ValidationError: .*does not know Policy"),
        ({"RoleArn": "arn:aws:iam::123456789012:role/none"}, "AccessDenied"),
    ],
)
def test_what_cannot_be_is_refused(cloud: Cloud, ask: Ask, params: dict[str, Any], error: str) -> None:
    role = make_role(cloud, "worker", {"AWS": ROOT})
    with pytest.raises(AwsError, match=error):
        ask("AssumeRole", **{"RoleArn": role["Arn"], "RoleSessionName": "one", **params})
