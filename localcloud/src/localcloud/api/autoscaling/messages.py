"""The texts that AWS gives activities: causes and status messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from localcloud.core.words import sentence

_ACTIVITIES = "autoscaling:DescribeScalingActivities"

SEPARATOR = "  "
"""AWS puts two blanks between the sentences of a cause."""


def datetime_of(seconds: float) -> datetime:
    """Return a time with boto3's precision of a millisecond."""
    return datetime.fromtimestamp(int(seconds * 1000) / 1000, UTC)


def at(now: float, what: str) -> str:
    return f"At {datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H:%M:%SZ} {what}"


def cause(reasons: Sequence[str], now: float, *what: str) -> str:
    return SEPARATOR.join([*reasons, *(at(now, sentence) for sentence in what)])


def created(desired: int) -> str:
    return f"a user request created an AutoScalingGroup changing the desired capacity from 0 to {desired}."


def updated(min_size: int, max_size: int, desired: int, before: int, by: str = "user request") -> str:
    return (
        f"a {by} update of AutoScalingGroup constraints to min: {min_size}, max: {max_size}, "
        f"desired: {desired} changing the desired capacity from {before} to {desired}."
    )


def set_explicitly(before: int, desired: int) -> str:
    return (
        "a user request explicitly set group desired capacity changing the desired capacity "
        f"from {before} to {desired}."
    )


def force_deleted(before: int) -> str:
    return f"a user request force deleted AutoScalingGroup changing the desired capacity from {before} to 0."


def grows(before: int, after: int) -> str:
    return (
        "an instance was started in response to a difference between desired and actual capacity, "
        f"increasing the capacity from {before} to {after}."
    )


REPLACES = "an instance was launched in response to an unhealthy instance needing to be replaced."


def shrinks(before: int, after: int) -> str:
    return (
        "an instance was taken out of service in response to a difference between desired and actual capacity, "
        f"shrinking the capacity from {before} to {after}."
    )


def selected(instance: str) -> str:
    return f"instance {instance} was selected for termination."


def unhealthy(why: str) -> str:
    return f"an instance was taken out of service in response to {why}."


GONE = "an EC2 health check indicating it has been terminated or stopped"
IMPAIRED = "an EC2 instance status checks failure"
ABANDONED = "the lifecycle action of its launch having been abandoned"
LOST = "its having failed before it was in service"


def by_request(instance: str, what: str, change: tuple[int, int] | None = None) -> str:
    """`what` is such as "taken out of service"; `change` is the capacity before and after, where it changes."""
    sentence = f"instance {instance} was {what} in response to a user request"
    if change is None:
        return sentence + "."
    verb = "shrinking" if change[1] < change[0] else "increasing"
    return f"{sentence}, {verb} the capacity from {change[0]} to {change[1]}."


def launch_failed(message: str) -> str:
    return sentence(_ACTIVITIES, "Failed", reason=message.rstrip(" .") + ".")


def hook_failed(token: str, why: str) -> str:
    return sentence(_ACTIVITIES, "Cancelled", token=token, why=why)


def lost(reason: str) -> str:
    return sentence(_ACTIVITIES, "Cancelled", reason=reason)
