"""Terminate instances: the unhealthy, and those above the desired capacity."""

from __future__ import annotations

import logging

from localcloud.api.autoscaling import messages
from localcloud.api.autoscaling.ec2 import InstanceStatus
from localcloud.api.autoscaling.records import Activity, Group, Member
from localcloud.api.autoscaling.selection import select_for_termination
from localcloud.api.autoscaling.state import Scaling
from localcloud.core.errors import AwsError

log = logging.getLogger(__name__)


def check(group: Group, member: Member, status: InstanceStatus, now: float) -> None:
    """Mark an instance in service as unhealthy if it is. It stays unhealthy."""
    if member.health == "Unhealthy":
        return
    if status.state != "running":
        member.health, member.unhealthy_reason = "Unhealthy", messages.GONE
    elif status.impaired and now >= (member.since or now) + group.grace_period:
        member.health, member.unhealthy_reason = "Unhealthy", messages.IMPAIRED


def end_unhealthy(scaling: Scaling, group: Group) -> None:
    if not (group.allows("ReplaceUnhealthy") and group.allows("Terminate")):
        return
    for member in group.in_service:
        if member.health == "Unhealthy":
            group.to_replace += 1
            why = messages.unhealthy(member.unhealthy_reason)
            end(scaling, group, member, messages.cause((), scaling.now, why))


def shrink(scaling: Scaling, group: Group) -> None:
    """Reduce the capacity to the desired one: first cancel launches that have not reached EC2 yet."""
    excess = group.counted - group.desired
    if excess <= 0:
        return
    now = scaling.now
    for launch in reversed(list(group.launches)):
        if excess > 0:
            group.launches.remove(launch)
            launch.activity.finish(
                "Cancelled", now, "The desired capacity was lowered before the instance was launched."
            )
            excess -= 1
    if excess <= 0 or not group.allows("Terminate"):
        return
    candidates = [member for member in group.members.values() if member.counts]
    before = group.counted
    for member in select_for_termination(candidates, group.template, excess):
        sentences = (messages.shrinks(before, group.desired), messages.selected(member.id))
        end(scaling, group, member, messages.cause(group.reasons, now, *sentences))
    group.reasons.clear()


def end(scaling: Scaling, group: Group, member: Member, cause: str) -> Activity:
    """Begin to terminate an instance."""
    if member.activity and member.activity.end is None and not member.state.startswith("Terminating"):
        member.activity.finish("Cancelled", scaling.now, "The instance was terminated before it was in service.")
    details = member.subnet.details
    activity = scaling.begin(group, f"Terminating EC2 instance: {member.id}", cause, details)
    member.activity = activity
    member.actions.clear()
    member.state = "Terminating"
    request_termination(scaling, member)
    scaling.schedule_step()
    return activity


def request_termination(scaling: Scaling, member: Member) -> None:
    """Terminate an instance in EC2. If EC2 refuses, the next step tries again."""
    if member.termination_requested:
        return
    if member.activity:
        member.activity.status, member.activity.progress = "InProgress", 50
    try:
        scaling.ec2.terminate(member.id)
    except AwsError as error:
        if error.code != "InvalidInstanceID.NotFound":
            log.info("terminating %s: %s", member.id, error)
            return
    member.termination_requested = True


def forget(scaling: Scaling, group: Group, member: Member) -> None:
    """Remove an instance that EC2 has terminated."""
    del group.members[member.id]
    if member.activity:
        member.activity.finish("Successful", scaling.now)
