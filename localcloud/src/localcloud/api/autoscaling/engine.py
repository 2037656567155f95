"""What happens by itself: every group takes one step towards its desired state once a second, and after each change."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from localcloud.api.autoscaling import launching, messages, scheduling, termination
from localcloud.api.autoscaling.ec2 import InstanceStatus
from localcloud.api.autoscaling.records import Group, Member
from localcloud.api.autoscaling.state import Scaling

log = logging.getLogger(__name__)

BATCH = 20
"""Launches in one step; other calls are answered before the next ones."""


def step(scaling: Scaling) -> None:
    scaling.templates.clear()
    status = scaling.ec2.statuses([name for group in scaling.groups.values() for name in group.members])
    for group in list(scaling.groups.values()):
        try:
            _step(scaling, group, status)
        except Exception:
            log.exception("a step of the Auto Scaling group %s failed", group.name)


def _step(scaling: Scaling, group: Group, status: Mapping[str, InstanceStatus]) -> None:
    for member in list(group.members.values()):
        _advance(scaling, group, member, status.get(member.id) or InstanceStatus("terminated"))
    if group.deleting:
        if not group.members:
            del scaling.groups[group.name]
        return
    scheduling.run_due(scaling, group)
    termination.end_unhealthy(scaling, group)
    launching.plan(scaling, group)
    termination.shrink(scaling, group)
    if launching.launch_due(scaling, group, BATCH):
        scaling.schedule_step()


_DOWN = frozenset({"shutting-down", "terminated", "stopping", "stopped"})


def _advance(scaling: Scaling, group: Group, member: Member, status: InstanceStatus) -> None:
    """Move an instance to its next state if it is due."""
    if member.state.startswith("Pending"):
        if status.state in _DOWN:
            launching.fail_before_service(
                scaling, group, member, messages.lost(status.reason or "Server.InternalError: Internal error on launch")
            )
        elif member.state == "Pending" and status.state == "running":
            launching.on_running(scaling, group, member)
        elif member.state == "Pending:Wait":
            _end_wait(scaling, group, member)
        elif member.state == "Pending:Proceed":
            launching.enter_service(scaling, member)
    elif member.state.startswith("Terminating"):
        termination.request_termination(scaling, member)
        if status.state == "terminated":
            termination.forget(scaling, group, member)
    elif member.state == "InService" and group.allows("HealthCheck"):
        termination.check(group, member, status, scaling.now)


def _end_wait(scaling: Scaling, group: Group, member: Member) -> None:
    outcome = member.outcome(scaling.now)
    if outcome == "CONTINUE":
        member.state = "Pending:Proceed"
        scaling.schedule_step()
    elif outcome == "ABANDON":
        abandoned = next(action for action in member.actions if action.result == "ABANDON")
        launching.abandon(
            scaling, group, member, messages.hook_failed(abandoned.token, abandoned.why), messages.ABANDONED
        )
