"""Identity and Access Management: where moto is laxer than AWS, or does not remember when something changed.

localcloud.iam evaluates policies; this module records which identity has which. Quotas:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
"""

from __future__ import annotations

import re
from typing import Any

from localcloud.api.iam.aws_policies import make_known
from localcloud.api.iam.documents import check_document, encoded, size
from localcloud.api.iam.history import Key, backend, history
from localcloud.api.iam.linked_roles import is_linked
from localcloud.core.cloud import Call, Cloud, Result, answers
from localcloud.core.errors import AwsError
from localcloud.core.settings import DEFAULT_REGION
from localcloud.core.words import aws_error

OPERATOR = "operator"
_ATTACHED = 10
"""managed policies that one user or role can have"""
_INLINE = {"role": 10240, "user": 2048}
_MANAGED = 6144
_TRUST = 2048
# How AWS words what moto says otherwise.
_WORDS = (
    (re.compile(r"Role (\S+) not found"), r"The role with name \1 cannot be found."),
    (re.compile(r"User (\S+) not found"), r"The user with name \1 cannot be found."),
    (re.compile(r"Instance profile (\S+) not found"), r"Instance Profile \1 cannot be found."),
    (re.compile(r"Policy (\S+) not found"), r"Policy \1 was not found."),
)


def bootstrap(cloud: Cloud) -> tuple[str, str]:
    """Create the account's first user with all permissions. Return the id of an access key, and its secret."""
    admin = "arn:aws:iam::aws:policy/AdministratorAccess"
    with cloud.lock:
        make_known(admin)
        cloud.moto("iam", "CreateUser", DEFAULT_REGION, {"UserName": OPERATOR})
        cloud.moto("iam", "AttachUserPolicy", DEFAULT_REGION, {"UserName": OPERATOR, "PolicyArn": admin})
        key = cloud.moto("iam", "CreateAccessKey", DEFAULT_REGION, {"UserName": OPERATOR})["AccessKey"]
    return str(key["AccessKeyId"]), str(key["SecretAccessKey"])


def _ask_moto(call: Call, **params: Any) -> dict[str, Any]:
    try:
        return encoded(call.moto(**params))
    except AwsError as error:
        for pattern, words in _WORDS:
            if match := pattern.fullmatch(error.message):
                raise AwsError(error.code, match.expand(words), error.status) from error
        raise


def _owner(call: Call) -> tuple[Key, Any]:
    """Return the user or role of a call: its key in the history, and moto's record."""
    kind = next(kind for kind in ("role", "user") if f"{kind.title()}Name" in call.params)
    name = call.params[f"{kind.title()}Name"]
    records = getattr(backend(), f"{kind}s").values()
    record = next((record for record in records if record.name == name), None)
    if record is None:
        raise aws_error("iam:*", "NoSuchEntity", kind=kind, name=name)
    if kind == "role":
        _refuse_if_linked(name)
    return (kind, name), record


def _note(call: Call, key: Key, value: Any, before: Any = None) -> None:
    """Record a change, which takes effect late."""
    history(call.cloud).note(key, call.cloud.clock.time(), value, before)


def _refuse_if_linked(role_name: str) -> None:
    if is_linked(role_name):
        raise AwsError(
            "UnmodifiableEntity",
            f"Cannot perform the operation on the protected role '{role_name}' - this role is only modifiable by AWS",
            400,
        )


def _check_name(call: Call, member: str, limit: int) -> None:
    name = str(call.params[member])
    response = member[0].lower() + member[1:]
    constraint = ""
    if len(name) > limit:
        constraint = f"Member must have length less than or equal to {limit}"
    elif not re.fullmatch(r"[\w+=,.@-]+", name, re.ASCII):
        constraint = r"Member must satisfy regular expression pattern: [\w+=,.@-]+"
    if constraint:
        message = (
            f"1 validation error detected: Value '{name}' at '{response}' failed to satisfy constraint: {constraint}"
        )
        raise AwsError("ValidationError", message, 400)


# Reads, so that they say what AWS says


@answers("iam", "GetRole", "GetInstanceProfile", "GetRolePolicy")
def read(call: Call) -> Result:
    return _ask_moto(call)


# Roles and instance profiles


@answers("iam", "CreateRole")
def create_role(call: Call) -> Result:
    _check_name(call, "RoleName", 64)
    _check_trust(call, "AssumeRolePolicyDocument")
    answer = _ask_moto(call)
    _note(call, ("role", call.params["RoleName"], "trust"), call.params["AssumeRolePolicyDocument"])
    return answer


@answers("iam", "UpdateAssumeRolePolicy")
def update_assume_role_policy(call: Call) -> Result:
    owner, record = _owner(call)
    _check_trust(call, "PolicyDocument")
    before = record.assume_role_policy_document
    answer = _ask_moto(call)
    _note(call, (*owner, "trust"), call.params["PolicyDocument"], before)
    return answer


@answers("iam", "PutRolePermissionsBoundary", "DeleteRolePermissionsBoundary")
def change_boundary(call: Call) -> Result:
    owner, record = _owner(call)
    # "" is none, since before that None means unknown.
    before = record.permissions_boundary_arn or ""
    answer = _ask_moto(call)
    _note(call, (*owner, "boundary"), call.params.get("PermissionsBoundary", ""), before)
    return answer


@answers("iam", "CreateUser")
def create_user(call: Call) -> Result:
    if call.params.get("PermissionsBoundary"):
        # moto would take it and forget it, so that the user could do more than on AWS.
        raise AwsError("ValidationError", "The local cloud has no permissions boundaries of users, only of roles.", 400)
    return _ask_moto(call)


def _check_trust(call: Call, member: str) -> None:
    document = call.params[member]
    check_document(document, "trust")
    if size(document) > _TRUST:
        raise AwsError("LimitExceeded", f"Cannot exceed quota for ACLSizePerRole: {_TRUST}", 409)


@answers("iam", "DeleteRole")
def delete_role(call: Call) -> Result:
    owner, _ = _owner(call)
    answer = _ask_moto(call)
    history(call.cloud).forget(*owner)
    return answer


@answers("iam", "CreateInstanceProfile")
def create_instance_profile(call: Call) -> Result:
    _check_name(call, "InstanceProfileName", 128)
    answer = _ask_moto(call)
    _note(call, ("profile", call.params["InstanceProfileName"]), True)
    return answer


@answers("iam", "DeleteInstanceProfile")
def delete_instance_profile(call: Call) -> Result:
    answer = _ask_moto(call)
    history(call.cloud).forget("profile", call.params["InstanceProfileName"])
    return answer


@answers("iam", "AddRoleToInstanceProfile")
def add_role_to_instance_profile(call: Call) -> Result:
    _refuse_if_linked(call.params["RoleName"])
    answer = _ask_moto(call)
    key = ("profile", call.params["InstanceProfileName"], "role")
    _note(call, key, call.params["RoleName"])
    return answer


@answers("iam", "RemoveRoleFromInstanceProfile")
def remove_role_from_instance_profile(call: Call) -> Result:
    profile = backend().instance_profiles.get(call.params["InstanceProfileName"])
    name = call.params["RoleName"]
    if profile is not None and name not in [role.name for role in profile.roles]:
        raise aws_error("iam:*", "NoSuchEntity", kind="role", name=name)
    answer = _ask_moto(call)
    history(call.cloud).forget("profile", call.params["InstanceProfileName"], "role")
    return answer


# Policies of users and roles


@answers("iam", "PutRolePolicy", "PutUserPolicy")
def put_inline_policy(call: Call) -> Result:
    owner, record = _owner(call)
    _check_name(call, "PolicyName", 128)
    name, document = call.params["PolicyName"], call.params["PolicyDocument"]
    check_document(document)
    limit = _INLINE[owner[0]]
    if sum(size(text) for text in {**record.policies, name: document}.values()) > limit:
        message = f"Maximum policy size of {limit} bytes exceeded for {owner[0]} {owner[1]}"
        raise AwsError("LimitExceeded", message, 409)
    before = record.policies.get(name)
    answer = _ask_moto(call)
    _note(call, (*owner, "inline", name), document, before)
    return answer


@answers("iam", "DeleteRolePolicy", "DeleteUserPolicy")
def delete_inline_policy(call: Call) -> Result:
    owner, record = _owner(call)
    name = call.params["PolicyName"]
    if name not in record.policies:
        raise aws_error("iam:*", "NoSuchEntity", kind=f"{owner[0]} policy", name=name)
    before = record.policies[name]
    answer = _ask_moto(call)
    _note(call, (*owner, "inline", name), None, before)
    return answer


@answers("iam", "AttachRolePolicy", "AttachUserPolicy")
def attach_policy(call: Call) -> Result:
    owner, record = _owner(call)
    policy_arn = call.params["PolicyArn"]
    make_known(policy_arn)
    if policy_arn in record.managed_policies:
        return None
    if len(record.managed_policies) >= _ATTACHED:
        message = f"Cannot exceed quota for PoliciesPer{owner[0].title()}: {_ATTACHED}"
        raise AwsError("LimitExceeded", message, 409)
    answer = _ask_moto(call)
    _note(call, (*owner, "attached", policy_arn), True)
    return answer


@answers("iam", "DetachRolePolicy", "DetachUserPolicy")
def detach_policy(call: Call) -> Result:
    owner, _ = _owner(call)
    answer = _ask_moto(call)
    _note(call, (*owner, "attached", call.params["PolicyArn"]), None, True)
    return answer


# Managed policies


@answers("iam", "CreatePolicy")
def create_policy(call: Call) -> Result:
    _check_name(call, "PolicyName", 128)
    document = call.params["PolicyDocument"]
    check_document(document)
    if size(document) > _MANAGED:
        raise AwsError("LimitExceeded", f"Cannot exceed quota for PolicySize: {_MANAGED}", 409)
    answer = _ask_moto(call)
    _note(call, ("policy", answer["Policy"]["Arn"]), document)
    return answer
