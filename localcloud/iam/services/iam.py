"""IAM and STS: their ARNs have no region, and the World knows the paths of roles, users and profiles.

AWS's page lists iam:PutRolePolicy in addition to iam:CreateServiceLinkedRole; the call works
without it, so it is not required.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..rules import Call, Need, Service, pass_role, tags_of

_LOOKUPS = {"role": "role", "user": "user", "instance-profile": "instance-profile"}
_CREATES = {
    "CreateRole": "role",
    "CreateUser": "user",
    "CreateInstanceProfile": "instance-profile",
    "CreatePolicy": "policy",
}
_LINKED = {  # the names of service-linked roles; AWS has one for nearly every service
    "autoscaling.amazonaws.com": "AWSServiceRoleForAutoScaling",
    "elasticfilesystem.amazonaws.com": "AWSServiceRoleForAmazonElasticFileSystem",
    "elasticmapreduce.amazonaws.com": "AWSServiceRoleForEMRCleanup",
    "spot.amazonaws.com": "AWSServiceRoleForEC2Spot",
}


def arn(call: Call, kind: str, name: str) -> str:
    if name.startswith("arn:"):
        return name
    if kind == "linked-role":
        return call.arn("iam", f"role/aws-service-role/{name}/{_LINKED.get(name, '*')}", region="")
    if _CREATES.get(call.operation) == kind:
        return call.arn("iam", f"{kind}{call.value('Path') or '/'}{name}", region="")
    lookup = _LOOKUPS.get(kind)
    existing = call.lookup(lookup, name) if lookup and name != "*" else None
    return existing or call.arn("iam", f"{kind}/{name}", region="")


def tags(call: Call, kind: str) -> Mapping[str, str]:
    return tags_of(call.params.get("Tags"))


def tag_keys(call: Call) -> list[str]:
    return call.values("TagKeys")


iam = Service("iam", "iam", arn, ("aws:ResourceTag/", "iam:ResourceTag/"), tags, tag_keys)
sts = Service("sts", "sts", arn, ("aws:ResourceTag/", "iam:ResourceTag/"), tags)


def adds_role_to_profile(call: Call) -> Iterator[Need]:
    for name in call.values("RoleName"):
        yield pass_role(call, arn(call, "role", name), "ec2.amazonaws.com", reason="the role is added to a profile")


ROWS = iam.rows(adds_role_to_profile=adds_role_to_profile) | sts.rows()
