"""Security Token Service: the caller's identity, and sessions of roles. localcloud.iam evaluates trust policies."""

from __future__ import annotations

import re
from typing import Any

from localcloud.api.iam.history import backend
from localcloud.core.cloud import Call, Result, answers
from localcloud.core.errors import AwsError
from localcloud.core.settings import ACCOUNT
from localcloud.core.words import aws_error

SHORTEST = 900
LONGEST = 3600
CHAINED = 3600
_SESSION_NAME = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)
# A session that these would narrow down would be wider here than in AWS: better none.
_UNKNOWN = ("Policy", "PolicyArns", "TransitiveTagKeys", "SerialNumber", "TokenCode", "SourceIdentity")
_TAG = re.compile(r"[\w\s.:/=+\-@]*")
_MOST_TAGS = 50


@answers("sts", "GetCallerIdentity")
def get_caller_identity(call: Call) -> Result:
    return {"UserId": call.caller.userid, "Account": ACCOUNT, "Arn": call.caller.arn}


@answers("sts", "AssumeRole")
def assume_role(call: Call) -> Result:
    params = call.params
    name, role_arn = params["RoleSessionName"], params["RoleArn"]
    if not _SESSION_NAME.fullmatch(name):
        pattern = r"Member must satisfy regular expression pattern: [\w+=,.@-]{2,64}"
        raise _invalid(name, "roleSessionName", pattern)
    unknown = [key for key in _UNKNOWN if params.get(key)]
    if unknown:
        raise AwsError("ValidationError", f"The local cloud's AssumeRole does not know {', '.join(unknown)}.", 400)
    role = next((role for role in backend().roles.values() if role.arn == role_arn), None)
    if role is None:
        raise aws_error("sts:AssumeRole", "AccessDenied", caller=call.caller.arn, role=role_arn)
    session = call.cloud.credentials.issue(role.name, name, _duration(call, role), _session_tags(call))
    return {
        "Credentials": {
            "AccessKeyId": session.access_key,
            "SecretAccessKey": session.secret,
            "SessionToken": session.token,
            "Expiration": session.expiration,
        },
        "AssumedRoleUser": {
            "AssumedRoleId": f"{role.id}:{name}",
            "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/{role.name}/{name}",
        },
    }


def _session_tags(call: Call) -> dict[str, str]:
    """Return the session tags of a request.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/id_session-tags.html
    """
    tags: dict[str, str] = {}
    for tag in call.params.get("Tags") or []:
        key, value = str(tag["Key"]), str(tag["Value"])
        if key.lower() in (name.lower() for name in tags):
            message = "Duplicate tag keys found. Please note that Tag keys are case insensitive."
            raise AwsError("InvalidParameterValue", message, 400)
        if not key or len(key) > 128 or len(value) > 256 or not (_TAG.fullmatch(key) and _TAG.fullmatch(value)):
            raise _invalid(value, "tags", f"Member must satisfy regular expression pattern: {_TAG.pattern}")
        tags[key] = value
    if len(tags) > _MOST_TAGS:
        raise _invalid(str(len(tags)), "tags", f"Member must have length less than or equal to {_MOST_TAGS}")
    return tags


def _duration(call: Call, role: Any) -> int:
    if not call.params.get("DurationSeconds"):
        return call.cloud.credentials.default_seconds
    requested = int(call.params["DurationSeconds"])
    if requested < SHORTEST:
        raise _invalid(str(requested), "durationSeconds", f"Member must have value greater than or equal to {SHORTEST}")
    if requested > int(role.max_session_duration or LONGEST):
        message = "The requested DurationSeconds exceeds the MaxSessionDuration set for this role."
        raise AwsError("ValidationError", message, 400)
    if call.caller.kind == "role" and requested > CHAINED:
        message = "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining"
        raise AwsError("ValidationError", message, 400)
    return requested


def _invalid(value: str, member: str, constraint: str) -> AwsError:
    message = f"1 validation error detected: Value '{value}' at '{member}' failed to satisfy constraint: {constraint}"
    return AwsError("ValidationError", message, 400)
