# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Decisions about Auto Scaling groups: their state goes in, the next action comes out. No call, no clock.

`judge` decides whether to keep waiting for a group. `next_step` then takes a group to its goal, step by step. Both use
only what AWS shows, so an interrupted run resumes from there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ...module_utils.contract.report import FAILED

NOT_YET_SECONDS = 180.0
"""A new instance profile takes effect within this time; one that does not is wrong."""
REQUEST_AGAIN_SECONDS = 15.0
"""Auto Scaling waits ever longer after failures. After a transient one, the capacity is set again after this."""
STUCK_SECONDS = 15.0
"""A machine that failed and is not abandoned by itself within this time keeps its place: it gave up."""
MOST_DETAILS = 3
"""Machines of a group whose logs are shown."""
MOST_LINES = 10
"""Lines of a log that are shown."""
_ROUND_SECONDS = 10


class Policy(StrEnum):
    AT_LEAST = "at_least"
    ALL_OR_NOTHING = "all_or_nothing"
    BEST_EFFORT = "best_effort"


class FailureKind(StrEnum):
    """Why a launch failed, as far as it decides what the watch does."""

    CAPACITY = "capacity"
    ZONE = "zone"
    NOT_YET = "not_yet"
    THROTTLED = "throttled"
    CONFIGURATION = "configuration"
    SETUP = "setup"
    """The machine started, and could not configure itself."""
    UNKNOWN = "unknown"
    LATE = "late"
    """No failure: not in service when the time was up."""


_TRANSIENT = frozenset({FailureKind.NOT_YET, FailureKind.THROTTLED})
_ELSEWHERE = frozenset({FailureKind.CAPACITY, FailureKind.ZONE})
"""Failures that do not rule out another availability zone."""

# Parts of AWS's sentences that decide what the watch does; the first that fits counts. Other sentences, such as those
# about a quota, are only shown.
_WORDS: Mapping[FailureKind, Sequence[str]] = {
    FailureKind.SETUP: ("lifecycle action",),
    FailureKind.THROTTLED: ("request limit exceeded", r"server\.internalerror", "an internal error has occurred"),
    FailureKind.NOT_YET: ("invalid iam instance profile", "has no associated iam roles", "service-linked role"),
    FailureKind.ZONE: (
        "not supported in your requested availability zone",
        "constrained and we are no longer accepting",
        "availability zone is no longer supported",
    ),
    FailureKind.CAPACITY: ("do not have sufficient .*capacity", "no spot capacity", "spot request price"),
    FailureKind.CONFIGURATION: (
        "does not exist",
        "could not find the specified version",
        "is unknown",
        "not supported",
        "may not be used",
        "is invalid",
        "cannot be run",
        "does not match",
        "belong to different networks",
        r"client\.internalerror",
        "not authorized",
        "not subscribed",
        "is being validated",
    ),
}
_RULES = tuple((why, re.compile("|".join(words), re.IGNORECASE | re.DOTALL)) for why, words in _WORDS.items())


def classify(message: str) -> FailureKind:
    """Return the kind of failure of AWS's message."""
    return next((why for why, words in _RULES if words.search(message)), FailureKind.UNKNOWN)


@dataclass(frozen=True)
class GroupInstance:
    id: str
    state: str = "InService"
    healthy: bool = True

    @property
    def is_in_service(self) -> bool:
        return self.state == "InService" and self.healthy

    @property
    def is_pending(self) -> bool:
        return self.state.startswith("Pending")

    @property
    def is_ending(self) -> bool:
        return self.state.startswith("Terminat")

    @property
    def is_held(self) -> bool:
        """Return whether its launch lifecycle hook keeps it out of service."""
        return self.state == "Pending:Wait"


@dataclass(frozen=True)
class NodeSetup:
    """What a machine reports while it configures itself: text of a node, printable and of limited length."""

    state: str = ""
    """A state of contract/report.py; empty if it has not reported. `log` is then the end of its console."""
    step: str = ""
    log: Sequence[str] = ()
    bundle: str = ""
    reported: float = 0.0
    """When, by AWS's clock."""


@dataclass(frozen=True)
class LaunchAttempt:
    """A scaling activity that launches an instance."""

    status: str
    started: float
    message: str = ""
    ended: float | None = None
    machine: str = ""
    """The instance that it launched."""

    @property
    def failed(self) -> bool:
        return self.status == "Failed" or (self.status == "Cancelled" and bool(self.message))

    @property
    def is_running(self) -> bool:
        return self.status not in ("Failed", "Cancelled", "Successful", "WaitingForConnectionDraining")

    @property
    def why(self) -> FailureKind:
        return classify(self.message)


@dataclass(frozen=True)
class ScalingGroup:
    """An Auto Scaling group as AWS shows it."""

    name: str
    desired_capacity: int
    machines: Sequence[GroupInstance] = ()
    launch_suspended: bool = False
    """Auto Scaling may launch nothing."""
    attempts: Sequence[LaunchAttempt] = ()
    """The newest first, of this run alone."""
    setups: Mapping[str, NodeSetup] = field(default_factory=dict)
    """By instance id."""
    placement_group: str = ""

    @property
    def failed_setups(self) -> dict[str, NodeSetup]:
        """What the machines report that could not configure themselves and are still held by the hook, by their ids."""
        held = [machine.id for machine in self.machines if machine.is_held]
        return {name: self.setups[name] for name in held if name in self.setups and self.setups[name].state == FAILED}

    def stuck(self, bundle: str, now: float) -> list[str]:
        """Return the machines that failed with this bundle and keep their places, so that AWS launches no more."""
        failed = [name for name, setup in self.failed_setups.items() if setup.bundle == bundle]
        return [name for name in failed if now - self.setups[name].reported >= STUCK_SECONDS]

    def outdated(self, bundle: str) -> list[str]:
        """Return the machines that keep their places after they failed with another bundle."""
        return [name for name, setup in self.failed_setups.items() if setup.bundle != bundle]

    @property
    def serving(self) -> frozenset[str]:
        return frozenset(machine.id for machine in self.machines if machine.is_in_service)

    @property
    def in_service(self) -> int:
        return len(self.serving)

    @property
    def launching(self) -> int:
        """The number of launches in flight."""
        # A machine that is pending has an activity under way as well: count the larger, not both.
        pending = sum(machine.is_pending for machine in self.machines)
        return max(pending, sum(attempt.is_running for attempt in self.attempts))

    @property
    def failures(self) -> list[LaunchAttempt]:
        return [attempt for attempt in self.attempts if attempt.failed]


@dataclass(frozen=True)
class GroupTarget:
    name: str
    desired_capacity: int
    minimum: int = 0
    essential: bool = False
    """All of it is needed, whatever the policy."""

    def enough(self, policy: Policy) -> int:
        if self.essential or policy is Policy.ALL_OR_NOTHING:
            return self.desired_capacity
        return min(self.minimum, self.desired_capacity) if policy is Policy.AT_LEAST else 0


@dataclass(frozen=True)
class WaitRules:
    policy: Policy
    deadline: float
    settle: float
    """Seconds after the last launch, or the first failure, until the missing machines are given up."""
    bundle: str
    """The bundle by which machines configure themselves."""


@dataclass(frozen=True)
class WaitState:
    """What the current state of a group does not show."""

    started: float
    before: frozenset[str] = frozenset()
    """Instances that were in service before this run."""
    most: int = 0
    progress: float = 0.0
    """When the last instance came into service, or the first launch failed."""
    requested: float = 0.0
    """When the desired capacity was last set."""


def remember(state: WaitState | None, group: ScalingGroup, now: float) -> WaitState:
    """Return the state after another poll."""
    if state is None:
        before = group.serving - {attempt.machine for attempt in group.attempts}
        return WaitState(now, before, group.in_service, now, now)
    grown = group.in_service > state.most
    first_failure = bool(group.failures) and state.progress == state.started
    progress = now if grown or first_failure else state.progress
    return WaitState(state.started, state.before, max(state.most, group.in_service), progress, state.requested)


@dataclass(frozen=True)
class MissingMachines:
    """Machines that are missing for the same reason."""

    group: str
    count: int
    why: FailureKind
    message: str
    """AWS's message."""
    details: Sequence[str] = ()
    """Lines about single machines, with text of these machines."""
    placement_group: str = ""


def missing_of(group: ScalingGroup, target: GroupTarget) -> list[MissingMachines]:
    """Group the missing machines by reason: each takes the newest failure that is left."""
    count = target.desired_capacity - group.in_service
    if count <= 0:
        return []
    # A machine that keeps its place has no failed launch, and AWS's message about an abandoned one is of no use.
    reasons = [(FailureKind.SETUP, "")] * len(group.failed_setups)
    reasons += [
        (failure.why, "" if failure.why is FailureKind.SETUP else failure.message) for failure in group.failures
    ]
    reasons = reasons[:count]
    late = "no launch of it had ended" if group.launching else "AWS said nothing about it"
    if group.setups:
        unfinished = sum(machine.is_pending for machine in group.machines) - len(group.failed_setups)
        reasons += [(FailureKind.LATE, late)] * min(count - len(reasons), unfinished)
    # Auto Scaling tries one after another: its last message applies to those that it has not tried again.
    reasons += [reasons[0] if reasons else (FailureKind.LATE, late)] * (count - len(reasons))
    return [
        MissingMachines(group.name, number, why, message, _details(group, why), group.placement_group)
        for (why, message), number in Counter(reasons).items()
    ]


def unconfigured(group: ScalingGroup) -> list[str]:
    """Return the machines that failed to configure themselves, and then those that have not finished."""
    failed = list(group.failed_setups)
    failed += [failure.machine for failure in group.failures if failure.why is FailureKind.SETUP and failure.machine]
    pending = [machine.id for machine in group.machines if machine.is_held]
    return list(dict.fromkeys([*failed, *pending]))


def _details(group: ScalingGroup, why: FailureKind) -> list[str]:
    """Return what some of the machines reported last."""
    if why not in (FailureKind.SETUP, FailureKind.LATE):
        return []
    late = {machine.id for machine in group.machines if machine.is_held} - group.failed_setups.keys()
    lines: list[str] = []
    listed = [name for name in unconfigured(group) if (name in late) == (why is FailureKind.LATE)]
    for name in listed[:MOST_DETAILS]:
        setup = group.setups.get(name)
        if setup is None:
            continue
        state = f": {setup.step or setup.state}" if setup.state else " has not reported. The end of its console:"
        lines += [name + state, *(f"    {line}" for line in setup.log[-MOST_LINES:])]
    return lines


class GroupVerdict(StrEnum):
    FULL = "full"
    WAIT = "wait"
    REQUEST = "request"
    """Set the desired capacity (again)."""
    RESUME = "resume"
    """An earlier run was interrupted while launches were suspended: resume them."""
    SHORT = "short"
    """Enough machines, and no more will come."""
    FAILED = "failed"


def judge(group: ScalingGroup, target: GroupTarget, state: WaitState, rules: WaitRules, now: float) -> GroupVerdict:
    """Decide how to go on with a group."""
    if group.in_service >= target.desired_capacity:
        return GroupVerdict.RESUME if group.launch_suspended else GroupVerdict.FULL
    short = GroupVerdict.SHORT if group.in_service >= target.enough(rules.policy) else GroupVerdict.FAILED
    if now >= rules.deadline:
        return short
    if group.launch_suspended:
        return GroupVerdict.RESUME
    if group.desired_capacity < target.desired_capacity:
        return GroupVerdict.REQUEST
    reasons = group.failures[: target.desired_capacity - group.in_service]
    whys = {failure.why for failure in reasons}
    if FailureKind.CONFIGURATION in whys or _still_not(group, now):
        return GroupVerdict.FAILED
    stuck = len(group.stuck(rules.bundle, now))
    if target.desired_capacity - stuck < target.enough(rules.policy):
        return GroupVerdict.FAILED
    if group.launching > stuck:
        return GroupVerdict.WAIT
    if group.in_service + stuck >= target.desired_capacity:
        return short
    if whys <= _TRANSIENT:
        quiet_since = max([state.requested, *(failure.ended or failure.started for failure in reasons)])
        return GroupVerdict.REQUEST if now - quiet_since >= REQUEST_AGAIN_SECONDS else GroupVerdict.WAIT
    if whys == {FailureKind.ZONE} or now - state.progress >= rules.settle:
        return short
    return GroupVerdict.WAIT


def _still_not(group: ScalingGroup, now: float) -> bool:
    """Return whether a profile is not in effect for so long that it never will be."""
    failures = [failure for failure in group.failures if failure.why is FailureKind.NOT_YET]
    return bool(failures) and failures[0] is group.failures[0] and now - failures[-1].started >= NOT_YET_SECONDS


class GroupAction(StrEnum):
    """What to do with a group."""

    SUSPEND = "suspend"
    WAIT = "wait"
    ABANDON = "abandon"
    """Terminate machines that the launch hook holds."""
    TERMINATE = "terminate"
    SET_DESIRED = "set_desired"
    RESUME = "resume"
    DONE = "done"


@dataclass(frozen=True)
class NextAction:
    action: GroupAction
    arguments: tuple[Any, ...] = ()
    """A number of machines, or their ids."""


def next_step(group: ScalingGroup, keep: frozenset[str] | None, patient: bool) -> NextAction:
    """Return the next step of a group to its goal: that only these instances are left, or without them all in service.

    The desired number is never lowered while a launch is in flight, since Auto Scaling would then take any machine:
    launches are suspended, those in flight resolve (as long as `patient`), then it is set. Machines that the launch
    hook holds are abandoned, as they could take much longer."""
    retained = group.serving if keep is None else group.serving & keep
    if group.launching and patient:
        if not group.launch_suspended:
            return NextAction(GroupAction.SUSPEND)
        held = sorted(machine.id for machine in group.machines if machine.is_held)
        return NextAction(GroupAction.ABANDON, (held,)) if held else NextAction(GroupAction.WAIT)
    # Whatever is still pending when patience has ended may yet come: with the goal "all that serve" it has a place.
    pending = sum(machine.is_pending for machine in group.machines)
    number = len(retained) + (pending if keep is None else 0)
    surplus = sorted(group.serving - retained)
    if group.desired_capacity != number or surplus:
        if not group.launch_suspended:
            return NextAction(GroupAction.SUSPEND)
        if surplus and retained:
            # By name: left to itself, Auto Scaling might end one of those that are to stay.
            return NextAction(GroupAction.TERMINATE, (surplus,))
        if group.desired_capacity != number:
            return NextAction(GroupAction.SET_DESIRED, (number,))
    if keep is not None and any(machine.id not in retained for machine in group.machines):
        return NextAction(GroupAction.WAIT)
    return NextAction(GroupAction.RESUME if group.launch_suspended else GroupAction.DONE)


# What people read


def clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


_WAITING_FOR: Mapping[FailureKind, str] = {
    FailureKind.CAPACITY: "waiting for capacity",
    FailureKind.ZONE: "unavailable in this zone",
    FailureKind.NOT_YET: "waiting for IAM",
    FailureKind.THROTTLED: "throttled",
    FailureKind.CONFIGURATION: "refused",
    FailureKind.SETUP: "to be replaced",
    FailureKind.UNKNOWN: "failed",
    FailureKind.LATE: "waiting",
}


def progress_of(group: ScalingGroup, target: GroupTarget, now: float) -> str:
    """Return text such as `6/9 ready, 1 configuring (efs_mount, 0:40), 1 failed: docker, 1 waiting for capacity`."""
    parts = [f"{group.in_service}/{target.desired_capacity} ready"]
    pending = [group.setups.get(machine.id) for machine in group.machines if machine.is_pending]
    failed = [setup for setup in pending if setup and setup.state == FAILED]
    configuring = [setup for setup in pending if setup and setup.state not in (FAILED, "")]
    coming = min(group.launching, max(0, target.desired_capacity - group.in_service))
    launching = max(0, coming - len(failed) - len(configuring))
    if launching:
        parts.append(f"{launching} launching")
    if configuring:
        slowest = min(configuring, key=lambda setup: setup.reported)
        # Rounded, as each change is a line.
        seconds = (now - slowest.reported) // _ROUND_SECONDS * _ROUND_SECONDS
        lasted = f", {clock(seconds)}" if seconds >= _ROUND_SECONDS else ""
        parts.append(f"{len(configuring)} configuring ({slowest.step or slowest.state}{lasted})")
    if failed:
        steps = dict.fromkeys(setup.step for setup in failed if setup.step)
        parts.append(f"{len(failed)} failed" + (f": {', '.join(list(steps)[:MOST_DETAILS])}" if steps else ""))
    waiting = target.desired_capacity - group.in_service - coming
    if waiting > 0:
        why = group.failures[0].why if group.failures else FailureKind.LATE
        parts.append(f"{waiting} {_WAITING_FOR[why]}")
    return ", ".join(parts)


_EXPLAINED: Mapping[FailureKind, str] = {
    FailureKind.CAPACITY: "AWS has no capacity for {these}: ask for fewer, another type or another zone, "
    "or try again later",
    FailureKind.ZONE: "this zone does not offer the type of {these}: choose other zones with "
    "cluster_availability_zones",
    FailureKind.NOT_YET: "AWS did not accept the instance profile of {these} in time: run the same command again",
    FailureKind.THROTTLED: "AWS kept refusing {these} for the moment: run the same command again",
    FailureKind.CONFIGURATION: "the settings of {these} are wrong: correct them and run the same command again",
    FailureKind.SETUP: "{these} could not configure themselves: correct the cause that their logs show, and run "
    "deeplearning.aws.site again",
    FailureKind.UNKNOWN: "AWS could not launch {these}",
    FailureKind.LATE: "{these} did not come in time: run the same command again, or raise "
    "cluster_capacity_timeout_minutes",
}


def explain(missing: MissingMachines) -> str:
    """Return one sentence, and AWS's message."""
    these = f"{missing.count} of {missing.group}"
    is_ours = missing.why in (FailureKind.LATE, FailureKind.SETUP)
    message = "" if is_ours else f". AWS says: {missing.message}"
    apart = ", or without the placement group (-e cluster_placement_group=false)"
    hint = apart if missing.placement_group and missing.why is FailureKind.CAPACITY else ""
    return _EXPLAINED[missing.why].format(these=these) + hint + message


def elsewhere(missing: Sequence[MissingMachines]) -> bool:
    """Return whether another zone may have what is missing."""
    return bool(missing) and all(machines.why in _ELSEWHERE for machines in missing)
