"""How AWS words a refusal.

EC2's messages on actions with resources end in "Encoded authorization failure message: …" on AWS; that part is left
out.

https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
"""

from __future__ import annotations

from ..errors import AwsError
from .authorize import Denial
from .conditions import MalformedPolicy
from .policy import Decision

# service → (code of a refusal, what it starts with); all others speak JSON.
_WORDING = {
    "ec2": ("UnauthorizedOperation", "You are not authorized to perform this operation. "),
    "autoscaling": ("AccessDenied", ""),
    "iam": ("AccessDenied", ""),
    "sts": ("AccessDenied", ""),
    "s3": ("AccessDenied", ""),
}
_JSON = ("AccessDeniedException", "")

_MALFORMED = {"s3": "MalformedPolicy", "efs": "InvalidPolicyException"}

_KINDS = {
    "identity": "identity-based policy",
    "resource": "resource-based policy",
    "trust": "resource-based policy",
    "boundary": "permissions boundary",
}


def denied(service: str, denial: Denial, caller_arn: str) -> AwsError:
    """The error that a service answers a refused call with."""
    code, start = _WORDING.get(service, _JSON)
    need = denial.need
    on = "" if need.resource == "*" else f" on resource: {need.resource}"
    because = _because(denial.decision, need.action)
    if service == "autoscaling" and need.reason.startswith("launch template "):
        # Auto Scaling tries the launch template in the caller's name and says so first; AWS's message may end there.
        start = f"You are not authorized to use {need.reason.replace('launch template ', 'launch template: ', 1)}. "
    return AwsError(code, f"{start}User: {caller_arn} is not authorized to perform: {need.action}{on}{because}", 403)


def _because(decision: Decision, action: str) -> str:
    if decision.source == "trust" and not decision.denied_explicitly:
        return ""  # STS gives no reason
    kind = _KINDS.get(decision.source, "identity-based policy")
    if decision.denied_explicitly:
        return f" with an explicit deny in {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    return f" because no {kind} allows the {action} action"


def malformed(service: str, problem: MalformedPolicy) -> AwsError:
    """The error for a policy document that cannot be read."""
    return AwsError(_MALFORMED.get(service, "MalformedPolicyDocument"), str(problem))


def unknown(service: str, operation: str) -> AwsError:
    """No row in the table: refused, because what it would need is not known. AWS has no such error; the text says whose
    it is."""
    code, _ = _WORDING.get(service, _JSON)
    message = f"The local cloud does not know which permissions {service}:{operation} needs, so it refuses the call."
    return AwsError(code, message, 403)
