"""IAM and STS: no region in their ARNs, and roles, users and profiles have a path that only the World knows.

Of AWS's page on IAM the mapping of calls to actions was read for about half of the calls (those that create, and
iam:PassRole, among them), and of the targets only some: the rows are marked as written from knowledge.

GetUser and the access-key calls may leave the user out and then mean the caller; the table does not know the
caller, so they are checked on `user/*`. AWS's page lists iam:PutRolePolicy beside iam:CreateServiceLinkedRole; the
call works without it, so it is not asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..rules import Call, Need, Rule, Service, pass_role, rule, tags_of

PAGE = "https://docs.aws.amazon.com/service-authorization/latest/reference/list_awsidentityandaccessmanagementiam.html"
STS_PAGE = "https://docs.aws.amazon.com/service-authorization/latest/reference/list_awssecuritytokenservice.html"
STS_TAGS_PAGE = "https://docs.aws.amazon.com/IAM/latest/UserGuide/id_session-tags.html"
CALLER_PAGE = "https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html"
ADD_ROLE_PAGE = "https://docs.aws.amazon.com/IAM/latest/APIReference/API_AddRoleToInstanceProfile.html"

_LOOKUPS = {"role": "role", "user": "user", "group": "iam-group", "instance-profile": "instance-profile"}
_CREATES = {
    "CreateRole": "role",
    "CreateUser": "user",
    "CreateGroup": "group",
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
    found = call.lookup(lookup, name) if lookup and name != "*" else None
    return found or call.arn("iam", f"{kind}/{name}", region="")


def tags(call: Call, kind: str) -> Mapping[str, str]:
    return tags_of(call.params.get("Tags"))


def tag_keys(call: Call) -> list[str]:
    return call.values("TagKeys")


iam = Service("iam", "iam", PAGE, arn, ("aws:ResourceTag/", "iam:ResourceTag/"), tags, tag_keys, consulted=False)
sts = Service("sts", "sts", STS_PAGE, arn, ("aws:ResourceTag/", "iam:ResourceTag/"), tags, consulted=False)
on = iam.on

ANY = on("*")
ROLE = on("role=RoleName")
USER = on("user=UserName")
GROUP = on("group=GroupName")
PROFILE = on("instance-profile=InstanceProfileName")
POLICY = on("policy=PolicyArn")

_BOUNDARY = "iam:PermissionsBoundary=PermissionsBoundary"
_ARN = "iam:PolicyARN=PolicyArn"


def new(kind: str, name: str, *, keys: str = "") -> Rule:
    return on(f"{kind}=new:{name}", keys=keys)


def tagged(kind: str, name: str, action: str) -> Rule:
    """Tags at creation need the tagging action too, on the same ARN."""
    return on(f"{kind}=new:{name}", action=action, given="Tags.Key", reason="what is created is tagged")


@rule(ADD_ROLE_PAGE)
def puts_role_into_profile(call: Call) -> Iterator[Need]:
    for name in call.values("RoleName"):
        yield pass_role(call, arn(call, "role", name), "ec2.amazonaws.com", reason="the role is put into a profile")


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
    "ListRoleTags": ROLE,
    "ListInstanceProfilesForRole": ROLE,
    "CreateServiceLinkedRole": on("linked-role=AWSServiceName", keys="iam:AWSServiceName=AWSServiceName"),
    "DeleteServiceLinkedRole": ROLE,
    "GetServiceLinkedRoleDeletionStatus": on("role=any"),

    # Instance profiles
    "CreateInstanceProfile": (new("instance-profile", "InstanceProfileName"),
                              tagged("instance-profile", "InstanceProfileName", "TagInstanceProfile")),
    "DeleteInstanceProfile": PROFILE,
    "GetInstanceProfile": PROFILE,
    "ListInstanceProfiles": ANY,
    "AddRoleToInstanceProfile": (PROFILE, puts_role_into_profile),
    "RemoveRoleFromInstanceProfile": PROFILE,
    "TagInstanceProfile": on("instance-profile=InstanceProfileName", tagging=True),
    "UntagInstanceProfile": on("instance-profile=InstanceProfileName", tagging=True),
    "ListInstanceProfileTags": PROFILE,

    # Managed policies
    "CreatePolicy": (new("policy", "PolicyName"), tagged("policy", "PolicyName", "TagPolicy")),
    "DeletePolicy": POLICY,
    "GetPolicy": POLICY,
    "ListPolicies": ANY,
    "CreatePolicyVersion": POLICY,
    "DeletePolicyVersion": POLICY,
    "GetPolicyVersion": POLICY,
    "ListPolicyVersions": POLICY,
    "SetDefaultPolicyVersion": POLICY,
    "ListEntitiesForPolicy": POLICY,
    "TagPolicy": on("policy=PolicyArn", tagging=True),
    "UntagPolicy": on("policy=PolicyArn", tagging=True),
    "ListPolicyTags": POLICY,

    # Users and groups
    "CreateUser": (new("user", "UserName", keys=_BOUNDARY), tagged("user", "UserName", "TagUser")),
    "DeleteUser": USER,
    "GetUser": USER,
    "UpdateUser": USER,
    "ListUsers": ANY,
    "PutUserPolicy": USER,
    "GetUserPolicy": USER,
    "DeleteUserPolicy": USER,
    "ListUserPolicies": USER,
    "AttachUserPolicy": on("user=UserName", keys=_ARN),
    "DetachUserPolicy": on("user=UserName", keys=_ARN),
    "ListAttachedUserPolicies": USER,
    "PutUserPermissionsBoundary": on("user=UserName", keys=_BOUNDARY),
    "DeleteUserPermissionsBoundary": USER,
    "TagUser": on("user=UserName", tagging=True),
    "UntagUser": on("user=UserName", tagging=True),
    "ListUserTags": USER,
    "CreateAccessKey": USER,
    "UpdateAccessKey": USER,
    "DeleteAccessKey": USER,
    "ListAccessKeys": USER,
    "GetAccessKeyLastUsed": on("user=any"),
    "CreateLoginProfile": USER,
    "GetLoginProfile": USER,
    "DeleteLoginProfile": USER,
    "ListMFADevices": USER,
    "ListServiceSpecificCredentials": USER,
    "ListGroupsForUser": USER,
    "CreateGroup": new("group", "GroupName"),
    "DeleteGroup": GROUP,
    "GetGroup": GROUP,
    "ListGroups": ANY,
    "AddUserToGroup": GROUP,
    "RemoveUserFromGroup": GROUP,
    "PutGroupPolicy": GROUP,
    "GetGroupPolicy": GROUP,
    "DeleteGroupPolicy": GROUP,
    "ListGroupPolicies": GROUP,
    "AttachGroupPolicy": on("group=GroupName", keys=_ARN),
    "DetachGroupPolicy": on("group=GroupName", keys=_ARN),
    "ListAttachedGroupPolicies": GROUP,

    # The account
    "GetAccountSummary": ANY,
    "GetAccountAuthorizationDetails": ANY,
    "GetAccountPasswordPolicy": ANY,
    "ListAccountAliases": ANY,
    "SimulateCustomPolicy": ANY,
    "SimulatePrincipalPolicy": on("role=PolicySourceArn"),
})

STS_ROWS = sts.rows({
    "GetCallerIdentity": sts.nothing(CALLER_PAGE),
    "GetSessionToken": sts.nothing("https://docs.aws.amazon.com/STS/latest/APIReference/API_GetSessionToken.html"),
    "AssumeRole": (
        sts.on("role=RoleArn", tagging=True,
               keys="sts:ExternalId=ExternalId sts:RoleSessionName=RoleSessionName "
                    "sts:DurationSeconds=DurationSeconds sts:SourceIdentity=SourceIdentity"),
        sts.on("role=RoleArn", action="TagSession", given="Tags.Key", tagging=True, page=STS_TAGS_PAGE,
               reason="the session is tagged"),
        sts.on("role=RoleArn", action="SetSourceIdentity", given="SourceIdentity",
               keys="sts:SourceIdentity=SourceIdentity", reason="the session names its source")),
    "AssumeRoleWithWebIdentity": sts.on("role=RoleArn", keys="sts:RoleSessionName=RoleSessionName"),
    "AssumeRoleWithSAML": sts.on("role=RoleArn"),
    "DecodeAuthorizationMessage": sts.on("*"),
    "GetAccessKeyInfo": sts.on("*"),
    "GetFederationToken": sts.on("user=any", tagging=True),
})
# fmt: on
ROWS = IAM_ROWS | STS_ROWS
