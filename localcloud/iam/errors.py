"""How AWS words a refusal.

EC2's messages on actions with resources end in "Encoded authorization failure message: …" on AWS; that part is left
out.

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
    """How a service words that a caller is not allowed something."""

    code: str
    start: str = ""
    """how its message begins"""
    status: int = 403


_KINDS = {
    "identity": "identity-based policy",
    "resource": "resource-based policy",
    "trust": "resource-based policy",
    "boundary": "permissions boundary",
}


def denied(refusal: Refusal, denial: Denial, caller_arn: str) -> AwsError:
    """The error that a service answers a refused call with."""
    start = refusal.start
    need = denial.need
    on = "" if need.resource == "*" else f" on resource: {need.resource}"
    because = _because(denial.decision, need.action)
    if need.reason.startswith("launch template "):
        # Auto Scaling tries the launch template in the caller's name and says so first; AWS's message may end there.
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
    """No row in the table: refused, because what it would need is not known. AWS has no such error; the text says whose
    it is."""
    message = f"The local cloud does not know which permissions {service}:{operation} needs, so it refuses the call."
    return AwsError(refusal.code, message, 403)
