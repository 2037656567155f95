"""Who calls: a user, a session of a role, or a service of AWS.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html#principaltable
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

_TYPES = {"user": "User", "role": "AssumedRole", "service": "AWSService"}


@dataclass(frozen=True)
class Caller:
    """The principal of a call. A service of AWS calls as itself and may do everything."""

    kind: Literal["user", "role", "service"]
    name: str
    """of the user, the role or the service"""
    arn: str
    """as GetCallerIdentity shows it"""
    userid: str
    tags: Mapping[str, str] = field(default_factory=dict)
    role_arn: str = ""
    """with its path, for a session of a role"""
    connection: Mapping[str, str] = field(default_factory=dict)
    """the condition keys of the connection: aws:SourceIp, aws:CurrentTime …"""

    @classmethod
    def user(cls, arn: str, userid: str, tags: Mapping[str, str] | None = None) -> Caller:
        return cls("user", arn.rpartition("/")[2], arn, userid, tags or {})

    @classmethod
    def session(cls, role_arn: str, role_id: str, session: str, tags: Mapping[str, str] | None = None) -> Caller:
        """Return an assumed role's caller. On an instance the session's name is the instance's id: AROA…:i-…"""
        name, account = role_arn.rpartition("/")[2], role_arn.split(":")[4]
        arn = f"arn:aws:sts::{account}:assumed-role/{name}/{session}"
        return cls("role", name, arn, f"{role_id}:{session}", tags or {}, role_arn)

    @classmethod
    def service(cls, name: str) -> Caller:
        """Return the caller for a service such as autoscaling.amazonaws.com."""
        return cls("service", name, name, name)

    @property
    def account(self) -> str:
        """The account of a user or a role; a service has none."""
        return "" if self.kind == "service" else self.arn.split(":")[4]

    def context(self) -> dict[str, str]:
        """Return the condition keys of the caller. aws:username exists for users only, as in AWS."""
        keys = {
            "aws:PrincipalArn": self.role_arn or self.arn,
            "aws:PrincipalAccount": self.account,
            "aws:PrincipalType": _TYPES[self.kind],
            "aws:userid": self.userid,
            "aws:PrincipalIsAWSService": "true" if self.kind == "service" else "false",
            **{f"aws:PrincipalTag/{key}": value for key, value in self.tags.items()},
        }
        if self.kind == "user":
            keys["aws:username"] = self.name
        if self.kind == "service":
            keys["aws:PrincipalServiceName"] = self.name
        return {**keys, **self.connection}
