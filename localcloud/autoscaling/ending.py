"""How groups shrink, and how they part with the unhealthy."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from localcloud.autoscaling import hooks, launching, words
from localcloud.autoscaling.choosing import first_to_go
from localcloud.autoscaling.ec2 import Seen
from localcloud.autoscaling.records import ENDING, TERMINATING, Activity, Group, Member
from localcloud.errors import AwsError

if TYPE_CHECKING:
    from localcloud.autoscaling.engine import Scaling

log = logging.getLogger(__name__)


def check(group: Group, member: Member, seen: Seen, now: float) -> None:
    """Is it healthy? One that was found or called unhealthy stays so. Those in standby are not looked at."""
    if member.state != "InService" or member.health == "Unhealthy":
        return
    if seen.state != "running":
        member.health, member.why_unhealthy = "Unhealthy", words.GONE
    elif seen.impaired and now >= (member.since or now) + group.grace:
        member.health, member.why_unhealthy = "Unhealthy", words.IMPAIRED


def end_unhealthy(scaling: Scaling, group: Group) -> None:
    if not (group.may("ReplaceUnhealthy") and group.may("Terminate")):
        return
    for member in group.in_service:
        if member.health == "Unhealthy":
            group.to_replace += 1
            why = words.unhealthy(member.why_unhealthy or words.USER_CHECK)
            end(scaling, group, member, words.cause((), scaling.now, why))


def shrink(scaling: Scaling, group: Group) -> None:
    """Bring the capacity down to what is desired: first those that EC2 has not been asked for yet."""
    excess = group.counted - group.desired
    if excess <= 0:
        return
    now = scaling.now
    for launch in reversed([launch for launch in group.launches if not launch.extra]):
        if excess > 0:
            group.launches.remove(launch)
            launch.activity.finish(
                "Cancelled", now, "The desired capacity was lowered before the instance was launched."
            )
            excess -= 1
    if excess <= 0 or not group.may("Terminate"):
        return
    candidates = [member for member in group.members.values() if member.counts and not member.protected]
    before = group.counted
    chosen = first_to_go(candidates, group.policies, group.template, now, excess)
    for member in chosen:
        sentences = (words.shrinks(before, group.desired), words.selected(member.id))
        end(scaling, group, member, words.cause(group.reasons, now, *sentences))
    if chosen:
        group.reasons.clear()
        group.scaled_at = now
    elif not group.told_protected:
        group.told_protected = True
        cause = words.cause(group.reasons, now, words.shrinks(before, group.desired))
        scaling.begin(group, words.ALL_PROTECTED, cause, {}).finish("Failed", now, words.ALL_PROTECTED)


def end(scaling: Scaling, group: Group, member: Member, cause: str, at_once: bool = False) -> Activity:
    """Begin to end an instance: its hooks first, unless it has to be at once."""
    if member.activity and member.activity.end is None and member.state not in ENDING:
        member.activity.finish("Cancelled", scaling.now, "The instance was terminated before it was in service.")
    details = launching.details_of(member.place)
    activity = scaling.begin(group, f"Terminating EC2 instance: {member.id}", cause, details)
    member.activity = activity
    if not at_once and hooks.hold(member, group.hooks_of(TERMINATING), scaling.now):
        member.state = "Terminating:Wait"
        activity.status, activity.progress = "MidLifecycleAction", 60
    else:
        member.actions.clear()
        member.state = "Terminating"
        ask_to_end(scaling, member)
    scaling.kick()
    return activity


def ask_to_end(scaling: Scaling, member: Member) -> None:
    """Have EC2 terminate it; asked again with the next step where EC2 refuses."""
    if member.asked_to_end:
        return
    if member.activity:
        member.activity.status, member.activity.progress = "InProgress", 50
    try:
        scaling.ec2.terminate(member.id)
    except AwsError as error:
        if error.code != "InvalidInstanceID.NotFound":
            log.info("terminating %s: %s", member.id, error)
            return
    member.asked_to_end = True


def forget(scaling: Scaling, group: Group, member: Member) -> None:
    """It is gone."""
    del group.members[member.id]
    if member.activity:
        member.activity.finish("Successful", scaling.now)
