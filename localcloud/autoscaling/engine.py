"""What happens by itself: once a second, and at once after each change, every group takes one step towards what it
should be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from localcloud.autoscaling import ending, hooks, launching, refreshing, words
from localcloud.autoscaling.ec2 import Ec2Port, Seen, Template
from localcloud.autoscaling.records import Activity, Group, Member, new_id
from localcloud.clock import Clock

log = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two looks at everything. AWS takes some tens of seconds; nobody learns anything from that wait."""

BATCH = 20
"""So many launches at a time; then others may use the API before the next ones."""


@dataclass(frozen=True)
class Backoff:
    """Seconds until the next attempt after so many failures in a row. AWS goes from about a minute to many."""

    first: float = 5.0
    factor: float = 2.0
    most: float = 60.0

    def after(self, failures: int) -> float:
        return float(min(self.most, self.first * self.factor ** max(0, failures - 1)))


@dataclass
class Scaling:
    """The groups of one region."""

    region: str
    clock: Clock
    ec2: Ec2Port
    launch_takes: Callable[[], float] = lambda: 0.0
    """seconds from the decision to launch until EC2 is asked"""
    backoff: Backoff = Backoff()
    groups: dict[str, Group] = field(default_factory=dict)
    activities: list[Activity] = field(default_factory=list)
    """the oldest first; those of deleted groups stay"""
    configurations: dict[str, dict[str, Any]] = field(default_factory=dict)
    templates: dict[tuple[str, str], Template] = field(default_factory=dict)
    """those looked up in this step"""
    _watching: bool = False
    _kicked: bool = False

    @property
    def now(self) -> float:
        return self.clock.time()

    def watch(self) -> None:
        """From the first group on, look after them all for good."""
        if not self._watching:
            self._watching = True
            self.clock.every(PERIOD, self.step)

    def kick(self) -> None:
        """Something has changed: take a step as soon as possible."""
        if not self._kicked:
            self._kicked = True
            self.clock.later(0, self.step)

    def step(self) -> None:
        self._kicked = False
        self.templates.clear()
        seen = self.ec2.look([name for group in self.groups.values() for name in group.members])
        for group in list(self.groups.values()):
            try:
                self._step(group, seen)
            except Exception:
                log.exception("a step of the Auto Scaling group %s failed", group.name)

    def _step(self, group: Group, seen: Mapping[str, Seen]) -> None:
        for member in list(group.members.values()):
            _advance(self, group, member, seen.get(member.id) or Seen("terminated"))
        if group.deleting:
            if not group.members:
                del self.groups[group.name]
            return
        ending.end_unhealthy(self, group)
        refreshing.step(self, group)
        launching.plan(self, group)
        ending.shrink(self, group)
        if launching.launch_due(self, group, BATCH):
            self.kick()

    def begin(
        self, group: Group, description: str, cause: str, details: Mapping[str, Any], status: str = "InProgress"
    ) -> Activity:
        """A new activity."""
        activity = Activity(new_id(), group.name, group.arn, description, cause, self.now, details, status)
        self.activities.append(activity)
        return activity

    def find(self, instance_id: str) -> tuple[Group, Member] | None:
        """The group that an instance belongs to."""
        for group in self.groups.values():
            if instance_id in group.members:
                return group, group.members[instance_id]
        return None


_DOWN = frozenset({"shutting-down", "terminated", "stopping", "stopped"})


def _advance(scaling: Scaling, group: Group, member: Member, seen: Seen) -> None:
    """Let one instance go on to its next state, if it is time."""
    if member.state.startswith("Pending"):
        if seen.state in _DOWN:
            launching.lose(
                scaling, group, member, words.lost(seen.reason or "Server.InternalError: Internal error on launch")
            )
        elif member.state == "Pending" and seen.state == "running":
            launching.arrive(scaling, group, member)
        elif member.state == "Pending:Wait":
            _end_wait(scaling, group, member)
        elif member.state == "Pending:Proceed":
            launching.serve(scaling, member)
    elif member.state == "Terminating:Wait":
        if hooks.outcome(member, scaling.now) is not None:
            member.state = "Terminating:Proceed"
            ending.ask_to_end(scaling, member)
    elif member.state.startswith("Terminating"):
        ending.ask_to_end(scaling, member)
        if seen.state == "terminated":
            ending.forget(scaling, group, member)
    elif member.state in ("InService", "Standby") and group.may("HealthCheck"):
        ending.check(group, member, seen, scaling.now)


def _end_wait(scaling: Scaling, group: Group, member: Member) -> None:
    outcome = hooks.outcome(member, scaling.now)
    if outcome == "CONTINUE":
        member.state = "Pending:Proceed"
        scaling.kick()
    elif outcome == "ABANDON":
        abandoned = next(action for action in member.actions if action.result == "ABANDON")
        launching.abandon(scaling, group, member, words.hook_failed(abandoned.token, abandoned.why), words.ABANDONED)
