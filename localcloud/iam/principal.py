"""The caller of an operation, and whether a policy's Principal element names it.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_principal.html
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html#principaltable
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from .patterns import Value


@dataclass(frozen=True)
class Caller:
    """The principal that signed the request. Use the constructors below; `extra` has the condition keys of the
    connection (aws:SourceIp, aws:CurrentTime, aws:SecureTransport, ec2:SourceInstanceARN …)."""

    arn: str  # as GetCallerIdentity shows it
    account: str
    userid: str
    kind: Literal["User", "AssumedRole", "AWSService"]
    principal_arn: str = ""  # a session's role; otherwise the same as arn
    username: str = ""
    service: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def user(
        cls, arn: str, userid: str, *, tags: Mapping[str, str] | None = None, extra: Mapping[str, Value] | None = None
    ) -> Caller:
        account, path = arn.split(":", 5)[4:]
        name = path.rpartition("/")[2]
        return cls(arn, account, userid, "User", username=name, tags=tags or {}, extra=extra or {})

    @classmethod
    def session(
        cls,
        role_arn: str,
        role_id: str,
        session: str,
        *,
        tags: Mapping[str, str] | None = None,
        extra: Mapping[str, Value] | None = None,
    ) -> Caller:
        """Return an assumed role's caller. On an instance the session's name is the instance's id: AROA…:i-…"""
        _, partition, _, _, account, path = role_arn.split(":", 5)
        arn = f"arn:{partition}:sts::{account}:assumed-role/{path.rpartition('/')[2]}/{session}"
        userid = f"{role_id}:{session}"
        return cls(arn, account, userid, "AssumedRole", role_arn, tags=tags or {}, extra=extra or {})

    @classmethod
    def aws_service(cls, service: str, account: str = "") -> Caller:
        return cls(service, account, service, "AWSService", service=service)

    def context(self) -> dict[str, Value]:
        """Return the condition keys of the caller. aws:username exists for users only, as in AWS."""
        keys: dict[str, Value] = {
            "aws:PrincipalArn": self.principal_arn or self.arn,
            "aws:PrincipalAccount": self.account,
            "aws:PrincipalType": self.kind,
            "aws:userid": self.userid,
            "aws:PrincipalIsAWSService": "true" if self.kind == "AWSService" else "false",
            **{f"aws:PrincipalTag/{key}": value for key, value in self.tags.items()},
        }
        if self.username:
            keys["aws:username"] = self.username
        if self.service:
            keys["aws:PrincipalServiceName"] = self.service
        return keys | dict(self.extra)


class Named(IntEnum):
    """How a policy names the caller. One that names only the account leaves the decision to the caller's policies."""

    NOT = 0
    ACCOUNT = 1
    DIRECTLY = 2


@dataclass(frozen=True)
class Principals:
    """A Principal (or NotPrincipal) element."""

    everyone: bool = False
    aws: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    federated: tuple[str, ...] = ()
    inverted: bool = False

    def names(self, caller: Caller) -> Named:
        named = self._names(caller)
        if self.inverted:
            return Named.DIRECTLY if named is Named.NOT else Named.NOT
        return named

    def _names(self, caller: Caller) -> Named:
        if self.everyone:
            return Named.DIRECTLY
        if caller.service:
            return Named.DIRECTLY if caller.service in self.services else Named.NOT
        names = {caller.arn, caller.principal_arn, caller.userid, caller.userid.partition(":")[0]} - {""}
        if names & {*self.aws, *self.federated}:
            return Named.DIRECTLY
        accounts = {name.split(":")[4] if name.endswith(":root") else name for name in self.aws}
        return Named.ACCOUNT if caller.account and caller.account in accounts else Named.NOT
