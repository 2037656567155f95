"""What Auto Scaling remembers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"

COUNTED = frozenset({"Pending", "Pending:Wait", "Pending:Proceed", "InService"})
"""The states of those that make up the group's capacity."""

ENDING = frozenset({"Terminating", "Terminating:Wait", "Terminating:Proceed"})

PROCESSES = (
    "Launch",
    "Terminate",
    "AddToLoadBalancer",
    "AlarmNotification",
    "AZRebalance",
    "HealthCheck",
    "InstanceRefresh",
    "ReplaceUnhealthy",
    "ScheduledActions",
)


@dataclass(frozen=True)
class Place:
    """Somewhere that the group may launch into. Without a subnet: the default one of the zone."""

    zone: str
    subnet: str | None = None


@dataclass(frozen=True)
class Spec:
    """A launch template as the group names it: the version may be $Latest or $Default."""

    id: str
    name: str
    version: str


@dataclass(frozen=True)
class Tag:
    value: str
    propagate: bool


@dataclass
class Activity:
    id: str
    group: str
    group_arn: str
    description: str
    cause: str
    start: float
    details: Mapping[str, Any]
    status: str = "InProgress"
    progress: int = 0
    message: str | None = None
    end: float | None = None

    def finish(self, status: str, now: float, message: str | None = None) -> None:
        self.status, self.progress, self.end = status, 100, now
        self.message = message or self.message


@dataclass
class Hook:
    name: str
    transition: str
    heartbeat: int = 3600
    default: str = "ABANDON"
    target: str | None = None
    role: str | None = None
    metadata: str | None = None

    @property
    def longest(self) -> int:
        """However often its time is extended, this is where it ends."""
        return min(172800, 100 * self.heartbeat)


@dataclass
class Action:
    """A lifecycle action: one hook that holds one instance."""

    hook: Hook
    token: str
    started: float
    deadline: float
    result: str | None = None
    why: str = ""


@dataclass
class Launch:
    """An instance that has been decided on, but is not there yet."""

    activity: Activity
    place: Place
    due: float
    extra: bool = False
    """beyond the desired capacity: to even out the zones"""


@dataclass
class Member:
    """An instance of the group."""

    id: str
    type: str
    image: str
    place: Place
    launched: float
    template: Spec | None = None
    """with the version that it really was launched from"""
    configuration: str | None = None
    state: str = "Pending"
    health: str = "Healthy"
    why_unhealthy: str = ""
    protected: bool = False
    since: float | None = None
    """in service since"""
    extra: bool = False
    activity: Activity | None = None
    """the one that brought it or, later, the one that ends it"""
    actions: list[Action] = field(default_factory=list)
    asked_to_end: bool = False

    @property
    def counts(self) -> bool:
        return self.state in COUNTED and not self.extra


@dataclass
class Refresh:
    id: str
    start: float
    preferences: Mapping[str, Any]
    desired: Mapping[str, Any] | None
    status: str = "Pending"
    reason: str | None = None
    end: float | None = None
    todo: list[str] = field(default_factory=list)
    total: int = 0
    found: frozenset[str] = frozenset()
    """instances that were there when it began"""

    @property
    def active(self) -> bool:
        return self.status in ("Pending", "InProgress", "Cancelling")


@dataclass
class Group:
    name: str
    arn: str
    created: float
    least: int
    most: int
    desired: int
    places: list[Place]
    zone_identifier: str = ""
    """the subnets, as they were given"""
    template: Spec | None = None
    configuration: str | None = None
    mixed: Mapping[str, Any] | None = None
    """a mixed instances policy as it was given; its template is in `template` too"""
    cooldown: int = 300
    health_type: str = "EC2"
    grace: int = 0
    policies: list[str] = field(default_factory=lambda: ["Default"])
    protect_new: bool = False
    service_role: str = ""
    placement_group: str | None = None
    stored: dict[str, Any] = field(default_factory=dict)
    """settings that are shown again and change nothing here"""
    tags: dict[str, Tag] = field(default_factory=dict)
    hooks: dict[str, Hook] = field(default_factory=dict)
    suspended: dict[str, str] = field(default_factory=dict)
    notifications: dict[str, list[str]] = field(default_factory=dict)
    metrics: set[str] = field(default_factory=set)
    balancers: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    refreshes: list[Refresh] = field(default_factory=list)
    deleting: bool = False
    reasons: list[str] = field(default_factory=list)
    """what has been asked for since the last launch or end: it begins the next activities' causes"""
    to_replace: int = 0
    """how many of the missing were unhealthy: the cause of their successors is worded otherwise"""
    failures: int = 0
    retry_at: float = 0.0
    failed: set[Place] = field(default_factory=set)
    """where it has failed in this attempt to reach the desired capacity"""
    rebalance_failures: int = 0
    rebalance_at: float = 0.0
    scaled_at: float | None = None
    told_protected: bool = False

    @property
    def counted(self) -> int:
        """The capacity that is there or on its way."""
        there = sum(member.counts for member in self.members.values())
        return there + sum(not launch.extra for launch in self.launches)

    @property
    def in_service(self) -> list[Member]:
        return [member for member in self.members.values() if member.state == "InService"]

    @property
    def zones(self) -> list[str]:
        return sorted({place.zone for place in self.places})

    @property
    def refresh(self) -> Refresh | None:
        """The one that is going on."""
        return next((refresh for refresh in self.refreshes if refresh.active), None)

    def hooks_of(self, transition: str) -> list[Hook]:
        return [hook for hook in self.hooks.values() if hook.transition == transition]

    def may(self, process: str) -> bool:
        return process not in self.suspended

    def try_at_once(self) -> None:
        """Somebody has changed something: do not wait out what went wrong before."""
        self.failures, self.retry_at, self.told_protected = 0, 0.0, False
        self.rebalance_failures, self.rebalance_at = 0, 0.0
        self.failed.clear()


def new_id() -> str:
    return str(uuid.uuid4())
