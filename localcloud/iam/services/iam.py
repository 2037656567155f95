"""IAM and STS: their ARNs have no region, and the World knows the paths of roles, users and profiles.

GetUser and the access-key calls may omit the user and then mean the caller. The table does not know the caller, so they
are checked on `user/*`. AWS's page lists iam:PutRolePolicy in addition to iam:CreateServiceLinkedRole; the call works
without it, so it is not required.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..rules import Call, Need, Rule, Service, nothing, pass_role, tags_of

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
on = iam.on

ANY = on("*")
ROLE = on("role=RoleName")
USER = on("user=UserName")
PROFILE = on("instance-profile=InstanceProfileName")
POLICY = on("policy=PolicyArn")

_BOUNDARY = "iam:PermissionsBoundary=PermissionsBoundary"
_ARN = "iam:PolicyARN=PolicyArn"


def new(kind: str, name: str, *, keys: str = "") -> Rule:
    return on(f"{kind}=new:{name}", keys=keys)


def tagged(kind: str, name: str, action: str) -> Rule:
    """Need the tagging action for tags in a creating call, on the same ARN."""
    return on(f"{kind}=new:{name}", action=action, when="Tags.Key", reason="the new resource is tagged")


def adds_role_to_profile(call: Call) -> Iterator[Need]:
    for name in call.values("RoleName"):
        yield pass_role(call, arn(call, "role", name), "ec2.amazonaws.com", reason="the role is added to a profile")


# fmt: off
IAM_ROWS = iam.rows({
    # Roles
    "CreateRole": (new("role", "RoleName", keys=_BOUNDARY), tagged("role", "RoleName", "TagRole")),
    "DeleteRole": ROLE,
    "GetRole": ROLE,
    "ListRoles": ANY,
    "UpdateRole": ROLE,
    "UpdateRoleDescription": ROLE,
    "UpdateAssumeRolePolicy": ROLE,
    "PutRolePolicy": ROLE,
    "GetRolePolicy": ROLE,
    "DeleteRolePolicy": ROLE,
    "ListRolePolicies": ROLE,
    "AttachRolePolicy": on("role=RoleName", keys=_ARN),
    "DetachRolePolicy": on("role=RoleName", keys=_ARN),
    "ListAttachedRolePolicies": ROLE,
    "PutRolePermissionsBoundary": on("role=RoleName", keys=_BOUNDARY),
    "DeleteRolePermissionsBoundary": ROLE,
    "TagRole": on("role=RoleName", tagging=True),
    "UntagRole": on("role=RoleName", tagging=True),
    "ListInstanceProfilesForRole": ROLE,
    "CreateServiceLinkedRole": on("linked-role=AWSServiceName", keys="iam:AWSServiceName=AWSServiceName"),

    # Instance profiles
    "CreateInstanceProfile": (new("instance-profile", "InstanceProfileName"),
                              tagged("instance-profile", "InstanceProfileName", "TagInstanceProfile")),
    "DeleteInstanceProfile": PROFILE,
    "GetInstanceProfile": PROFILE,
    "ListInstanceProfiles": ANY,
    "AddRoleToInstanceProfile": (PROFILE, adds_role_to_profile),
    "RemoveRoleFromInstanceProfile": PROFILE,
    "TagInstanceProfile": on("instance-profile=InstanceProfileName", tagging=True),

    # Managed policies
    "CreatePolicy": (new("policy", "PolicyName"), tagged("policy", "PolicyName", "TagPolicy")),
    "DeletePolicy": POLICY,
    "GetPolicy": POLICY,
    "ListPolicies": ANY,
    "GetPolicyVersion": POLICY,
    "ListPolicyVersions": POLICY,

    # Users
    "CreateUser": (new("user", "UserName", keys=_BOUNDARY), tagged("user", "UserName", "TagUser")),
    "DeleteUser": USER,
    "GetUser": USER,
    "ListUsers": ANY,
    "PutUserPolicy": USER,
    "GetUserPolicy": USER,
    "DeleteUserPolicy": USER,
    "ListUserPolicies": USER,
    "AttachUserPolicy": on("user=UserName", keys=_ARN),
    "DetachUserPolicy": on("user=UserName", keys=_ARN),
    "ListUserTags": USER,
    "CreateAccessKey": USER,
    "UpdateAccessKey": USER,
    "DeleteAccessKey": USER,
    "ListAccessKeys": USER,

    # The account
    "ListAccountAliases": ANY,
})

STS_ROWS = sts.rows({
    "GetCallerIdentity": nothing,
    "AssumeRole": (
        sts.on("role=RoleArn", tagging=True,
               keys="sts:ExternalId=ExternalId sts:RoleSessionName=RoleSessionName "
                    "sts:SourceIdentity=SourceIdentity"),
        sts.on("role=RoleArn", action="TagSession", when="Tags.Key", tagging=True,
               reason="the session is tagged"),
        sts.on("role=RoleArn", action="SetSourceIdentity", when="SourceIdentity",
               keys="sts:SourceIdentity=SourceIdentity", reason="the session names its source")),
    "GetAccessKeyInfo": sts.on("*"),
})
# fmt: on
ROWS = IAM_ROWS | STS_ROWS
