"""The Auto Scaling of one region: its groups, and when their next step is due."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from localcloud.api.autoscaling.ec2 import CloudEc2, Template
from localcloud.api.autoscaling.records import Activity, Group, LaunchTemplateSpecification, Member, new_id
from localcloud.core.clock import Clock

PERIOD = 1.0
"""Seconds between two steps. AWS takes some tens of seconds, which tests need not wait."""


def backoff(failures: int) -> float:
    """Return seconds until the next attempt after failures in a row. On AWS they are from about a minute to many."""
    return float(min(60, 5 * 2 ** (failures - 1)))


@dataclass
class Scaling:
    """The groups of one region."""

    region: str
    clock: Clock
    ec2: CloudEc2
    step: Callable[[Scaling], None]
    """takes every group one step towards what it should be"""
    launch_takes: Callable[[], float] = lambda: 0.0
    """seconds from the decision to launch until EC2 is asked"""
    groups: dict[str, Group] = field(default_factory=dict)
    activities: list[Activity] = field(default_factory=list)
    """the oldest first; those of deleted groups stay"""
    templates: dict[LaunchTemplateSpecification, Template] = field(default_factory=dict)
    """templates that were looked up in this step"""
    _watching: bool = False
    _scheduled: bool = False

    @property
    def now(self) -> float:
        return self.clock.time()

    def watch(self) -> None:
        """Take steps periodically from now on."""
        if not self._watching:
            self._watching = True
            self.clock.every(PERIOD, self._step)

    def schedule_step(self) -> None:
        """Take a step as soon as possible."""
        if not self._scheduled:
            self._scheduled = True
            self.clock.later(0, self._step)

    def begin(
        self, group: Group, description: str, cause: str, details: Mapping[str, Any], status: str = "InProgress"
    ) -> Activity:
        """Add a new activity."""
        activity = Activity(new_id(), group.name, group.arn, description, cause, self.now, details, status)
        self.activities.append(activity)
        return activity

    def find(self, instance_id: str) -> tuple[Group, Member] | None:
        """Return an instance's group and its member."""
        for group in self.groups.values():
            if instance_id in group.members:
                return group, group.members[instance_id]
        return None

    def _step(self) -> None:
        self._scheduled = False
        self.step(self)
