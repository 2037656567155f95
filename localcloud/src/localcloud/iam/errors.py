"""The errors with which AWS refuses a call.

On AWS, EC2's messages on actions with resources end in "Encoded authorization failure message: …". These do not.

https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.errors import AwsError
from .authorize import Denial
from .policy import Decision


@dataclass(frozen=True)
class Refusal:
    """The error of a service for a caller without the permission."""

    code: str
    start: str = ""
    """the beginning of its message"""
    status: int = 403


_KINDS = {
    "identity": "identity-based policy",
    "resource": "resource-based policy",
    "trust": "resource-based policy",
    "boundary": "permissions boundary",
}


def denied(refusal: Refusal, denial: Denial, caller_arn: str) -> AwsError:
    """Return the error with which a service answers a refused call."""
    start = refusal.start
    need = denial.need
    on = "" if need.resource == "*" else f" on resource: {need.resource}"
    because = _because(denial.decision, need.action)
    if need.reason.startswith("launch template "):
        # Auto Scaling tries the launch template on the caller's behalf and names it first. AWS's message may end there.
        start = f"You are not authorized to use {need.reason.replace('launch template ', 'launch template: ', 1)}. "
    message = f"{start}User: {caller_arn} is not authorized to perform: {need.action}{on}{because}"
    return AwsError(refusal.code, message, refusal.status)


def _because(decision: Decision, action: str) -> str:
    if decision.source == "trust" and not decision.denied_explicitly:
        return ""  # STS gives no reason
    kind = _KINDS.get(decision.source, "identity-based policy")
    if decision.denied_explicitly:
        return f" with an explicit deny in {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    return f" because no {kind} allows the {action} action"


def unknown(refusal: Refusal, service: str, operation: str) -> AwsError:
    """Return the error for an operation without a row in the table. AWS has none, so the text names its source."""
    message = f"The local cloud does not know which permissions {service}:{operation} needs, so it refuses the call."
    return AwsError(refusal.code, message, 403)
