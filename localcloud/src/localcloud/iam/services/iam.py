"""IAM and STS: their ARNs have no region, and the World knows the paths of roles, users and profiles.

AWS's page lists iam:PutRolePolicy in addition to iam:CreateServiceLinkedRole; the call works
without it, so it is not required.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..rules import LINKED_ROLES, Call, Need, Service, pass_role

_LOOKUPS = {"role": "role", "user": "user", "instance-profile": "instance-profile"}
_CREATES = {
    "CreateRole": "role",
    "CreateUser": "user",
    "CreateInstanceProfile": "instance-profile",
    "CreatePolicy": "policy",
}


def arn(call: Call, kind: str, name: str) -> str:
    if name.startswith("arn:"):
        return name
    if kind == "linked-role":
        return call.arn("iam", f"role/aws-service-role/{name}/{LINKED_ROLES.get(name, '*')}", region="")
    if _CREATES.get(call.operation) == kind:
        return call.arn("iam", f"{kind}{call.value('Path') or '/'}{name}", region="")
    lookup = _LOOKUPS.get(kind)
    existing = call.lookup(lookup, name) if lookup and name != "*" else None
    return existing or call.arn("iam", f"{kind}/{name}", region="")


iam = Service("iam", "iam", arn, ("aws:ResourceTag/", "iam:ResourceTag/"))
sts = Service("sts", "sts", arn, ("aws:ResourceTag/", "iam:ResourceTag/"))


def adds_role_to_profile(call: Call) -> Iterator[Need]:
    for name in call.values("RoleName"):
        yield pass_role(call, arn(call, "role", name), "ec2.amazonaws.com", reason="the role is added to a profile")


ROWS = iam.rows(adds_role_to_profile=adds_role_to_profile) | sts.rows()
