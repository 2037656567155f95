"""The records of Auto Scaling."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"

COUNTED = frozenset({"Pending", "Pending:Wait", "Pending:Proceed", "InService"})
"""The states of those that make up the group's capacity."""

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
class Subnet:
    """A subnet that the group may launch into."""

    zone: str
    id: str

    @property
    def details(self) -> dict[str, str]:
        """The names in the details of an activity."""
        return {"Subnet ID": self.id, "Availability Zone": self.zone}


@dataclass(frozen=True)
class LaunchTemplateSpecification:
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
    heartbeat: int = 3600
    default: str = "ABANDON"

    @property
    def longest(self) -> int:
        """Seconds after which the action ends, however often it was extended.

        https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_LifecycleHook.html
        """
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

    def complete(self, result: str) -> None:
        self.result = result
        self.why = f"Lifecycle Action Completed with {result} Result"

    def extend(self, now: float) -> None:
        """Restart the timeout of an action, as a heartbeat does."""
        self.deadline = now + self.hook.heartbeat


@dataclass
class Launch:
    """A launch that has been decided on and not made yet."""

    activity: Activity
    subnet: Subnet
    due: float


@dataclass
class Member:
    """An instance of the group."""

    id: str
    type: str
    subnet: Subnet
    launched: float
    template: LaunchTemplateSpecification
    """with the version that it really was launched from"""
    state: str = "Pending"
    health: str = "Healthy"
    unhealthy_reason: str = ""
    since: float | None = None
    """in service since"""
    activity: Activity | None = None
    """the one that brought it or, later, the one that ends it"""
    actions: list[Action] = field(default_factory=list)
    termination_requested: bool = False

    @property
    def counts(self) -> bool:
        return self.state in COUNTED

    def hold(self, hooks: Iterable[Hook], now: float) -> bool:
        """Begin an action for each of these hooks. Return True if there is one."""
        self.actions = [Action(hook, new_id(), now, now + hook.heartbeat) for hook in hooks]
        return bool(self.actions)

    def outcome(self, now: float) -> str | None:
        """Return the result of all actions that hold the instance: CONTINUE, ABANDON, or None while one is open.

        An abandoned action ends the wait for all.
        """
        for action in self.actions:
            if action.result is None and now >= min(action.deadline, action.started + action.hook.longest):
                action.result, action.why = action.hook.default, "Heartbeat Timeout"
        results = {action.result for action in self.actions}
        if "ABANDON" in results:
            return "ABANDON"
        return None if None in results else "CONTINUE"

    def open_action(self, hook: str, token: str | None) -> Action | None:
        """Return the open action of a hook, by its token if the request has one."""
        for action in self.actions:
            if action.hook.name == hook and action.result is None and token in (None, action.token):
                return action
        return None


@dataclass
class ScheduledAction:
    name: str
    arn: str
    start: float
    sizes: Mapping[str, int]
    """MinSize, MaxSize and DesiredCapacity, as far as the request has them"""
    recurrence: str = ""
    end: float | None = None
    """with a recurrence: when it is deleted"""
    has_run: bool = False


@dataclass
class Group:
    name: str
    arn: str
    created: float
    min_size: int
    max_size: int
    desired: int
    subnets: list[Subnet]
    template: LaunchTemplateSpecification
    zone_identifier: str = ""
    """the subnets, as they were given"""
    cooldown: int = 300
    health_type: str = "EC2"
    grace_period: int = 0
    service_role: str = ""
    placement_group: str | None = None
    stored: dict[str, Any] = field(default_factory=dict)
    """settings that are shown again and change nothing here"""
    tags: dict[str, Tag] = field(default_factory=dict)
    hooks: dict[str, Hook] = field(default_factory=dict)
    suspended: dict[str, str] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    scheduled: dict[str, ScheduledAction] = field(default_factory=dict)
    deleting: bool = False
    reasons: list[str] = field(default_factory=list)
    """what has been asked for since the last launch or end: it begins the next activities' causes"""
    to_replace: int = 0
    """how many of the missing were unhealthy: the cause of their successors is worded otherwise"""
    failures: int = 0
    retry_at: float = 0.0
    failed: set[Subnet] = field(default_factory=set)
    """where it has failed in this attempt to reach the desired capacity"""

    @property
    def counted(self) -> int:
        """Return the number of instances that count as capacity, including pending launches."""
        members = sum(member.counts for member in self.members.values())
        return members + len(self.launches)

    @property
    def in_service(self) -> list[Member]:
        return [member for member in self.members.values() if member.state == "InService"]

    @property
    def zones(self) -> list[str]:
        return sorted({subnet.zone for subnet in self.subnets})

    def allows(self, process: str) -> bool:
        return process not in self.suspended

    def reset_backoff(self) -> None:
        """Forget failures after a change, so that the next attempt is made at once."""
        self.failures, self.retry_at = 0, 0.0
        self.failed.clear()


def new_id() -> str:
    return str(uuid.uuid4())
