"""What the tests of permissions share: clients of AWS for roles and users with just these policies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from localcloud.api.iam import identities as iam
from localcloud.core.caller import Caller
from localcloud.core.cloud import Cloud
from localcloud.core.identity import Session
from localcloud.core.lateness import OBSERVER

REGION = "us-east-1"
ROOT = "arn:aws:iam::123456789012:root"
EC2 = f"arn:aws:ec2:{REGION}:123456789012:"
SESSION = boto3.Session()
"""one for all tests: it keeps the models of services, which take long to read"""
CONFIG = Config(
    retries={"total_max_attempts": 1},
    s3={"addressing_style": "path"},
    ignore_configured_endpoint_urls=True,
    user_agent_appid=OBSERVER,
)


def allow(action: Any, resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def deny(action: Any, resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {**allow(action, resource, **more), "Effect": "Deny"}


def when(operator: str, key: str, value: Any) -> dict[str, Any]:
    return {"Condition": {operator: {key: value}}}


def document(*statements: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def trust(principal: Any, **more: Any) -> str:
    return document({"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", **more})


def tags(**named: str) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in named.items()]


def tagged(kind: str, **named: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": tags(**named)}]


class Aws:
    """`aws("ec2")` is a client of the operator's; `aws("ec2", session)` one of a role's."""

    def __init__(self, cloud: Cloud, port: int) -> None:
        self.cloud = cloud
        self._url = f"http://127.0.0.1:{port}"
        self._operator = iam.bootstrap(cloud)
        self.operator_key = self._operator[0]

    def __call__(self, service: str, session: Session | None = None) -> Any:
        if session:
            return self.client(service, session.access_key, session.secret, session.token)
        return self.client(service, *self._operator)

    def client(self, service: str, key: str, secret: str, token: str | None = None) -> Any:
        return SESSION.client(service, REGION, None, True, None, self._url, key, secret, token, CONFIG)

    def ask(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        """Past all rules."""
        return self.cloud.ask(service, operation, REGION, params, Caller.service("test"))

    def role(self, name: str, *statements: Mapping[str, Any], session: str = "one", **more: Any) -> Session:
        """A new role with these statements in its policy, and a session of it."""
        options = {"AssumeRolePolicyDocument": trust({"AWS": ROOT}), **more}
        self.ask("iam", "CreateRole", RoleName=name, **options)
        if statements:
            self.policy(name, *statements)
        return self.cloud.credentials.issue(name, session, 3600)

    def policy(self, role: str, *statements: Mapping[str, Any]) -> None:
        self.ask("iam", "PutRolePolicy", RoleName=role, PolicyName="test", PolicyDocument=document(*statements))

    def profile(self, role: str) -> None:
        """An instance profile of the role's name."""
        self.ask("iam", "CreateInstanceProfile", InstanceProfileName=role)
        self.ask("iam", "AddRoleToInstanceProfile", InstanceProfileName=role, RoleName=role)

    def calls(self, operation: str) -> list[Mapping[str, Any]]:
        return [call for call in self.cloud.calls.since() if call["operation"] == operation]


@contextmanager
def refused(code: str, words: str = "") -> Iterator[None]:
    with pytest.raises(ClientError) as caught:
        yield
    assert caught.value.response["Error"]["Code"] == code, caught.value
    assert words in caught.value.response["Error"]["Message"]
