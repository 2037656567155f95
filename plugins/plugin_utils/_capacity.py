# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Waiting for machines: what is seen of Auto Scaling groups in, what is to be done next out. No call, no clock.

`judge` looks at groups that shall grow and says when that is over and how. `towards` then leads a group, step by step,
to what was decided. Both know nothing but what AWS shows, so whoever was interrupted goes on from there.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

NOT_YET_SECONDS = 180.0
"""A new instance profile takes effect within this; one that still does not is wrong."""
ASK_AGAIN_SECONDS = 15.0
"""Auto Scaling waits ever longer after failures. What fails in passing is asked for again after this."""


class Policy(StrEnum):
    AT_LEAST = "at_least"
    ALL_OR_NOTHING = "all_or_nothing"
    BEST_EFFORT = "best_effort"


class Why(StrEnum):
    """Why a launch failed."""

    CAPACITY = "capacity"
    ZONE = "zone"
    QUOTA = "quota"
    NOT_YET = "not_yet"
    THROTTLED = "throttled"
    CONFIGURATION = "configuration"
    UNKNOWN = "unknown"
    LATE = "late"
    """no failure: not there when time was up"""


_PASSING = frozenset({Why.NOT_YET, Why.THROTTLED})
_ELSEWHERE = frozenset({Why.CAPACITY, Why.ZONE})
"""Another zone may have what this one has not."""

# AWS's words and its codes; the first that fits counts.
_WORDS: Sequence[tuple[Why, Sequence[str]]] = (
    (Why.THROTTLED, ("request ?limit ?exceeded", "throttl", "rate exceeded", "too ?many ?requests")),
    (Why.NOT_YET, ("invalid iam instance profile", r"iaminstanceprofile\.\w+ is invalid")),
    (Why.NOT_YET, ("service-linked role .*(being created|not (yet )?(ready|available))", "linkedrole.*notpermitted")),
    (Why.ZONE, ("not supported in your requested availability zone", "constrained and we are no longer accepting")),
    (
        Why.CAPACITY,
        ("sufficient .*capacity", "insufficient ?(instance|host)? ?capacity", "reservationcapacityexceeded"),
    ),
    (Why.CAPACITY, ("no spot capacity", "unfulfillable capacity", "capacity[- ]not[- ]available", "out of capacity")),
    (Why.CAPACITY, ("price-too-low", "spot request.*price")),
    (Why.QUOTA, ("vcpu (capacity|limit)", "(vcpu|instance|volume|address)limitexceeded", "max ?spot ?instance ?count")),
    (Why.QUOTA, ("your quota allows", "quota (was )?exceeded", "limit has been reached")),
    (Why.QUOTA, ("not enough free addresses", "insufficientfreeaddresses")),
    (Why.THROTTLED, (r"server\.internalerror", "internal ?error on launch", "service ?unavailable")),
    (Why.THROTTLED, ("an internal error has occurred",)),
    (Why.CONFIGURATION, (r"\b(ami|image)\b.*(not|invalid)", "invalid ?ami", "key ?pair", "invalid ?subnet")),
    (
        Why.CONFIGURATION,
        ("security group", "invalid ?group", "launch ?template", "placement group", "subnet .*not exist"),
    ),
    (Why.CONFIGURATION, (r"client\.internalerror", "client error on launch", "kms")),
    (Why.CONFIGURATION, ("not authorized", "unauthorizedoperation", "access ?denied", "authfailure", "passrole")),
    (Why.CONFIGURATION, ("does not exist", "is (not valid|invalid)", "not supported", "unsupported", "malformed")),
    (Why.CONFIGURATION, ("invalid ?parameter", "architecture", "virtualization", "boot mode", r"\bena\b")),
    (Why.CONFIGURATION, ("optinrequired", "pendingverification")),
)
_RULES = tuple((why, re.compile("|".join(words), re.IGNORECASE | re.DOTALL)) for why, words in _WORDS)


def classify(message: str) -> Why:
    """What kind of failure AWS's message tells of."""
    return next((why for why, words in _RULES if words.search(message)), Why.UNKNOWN)


@dataclass(frozen=True)
class Machine:
    id: str
    state: str = "InService"
    healthy: bool = True

    @property
    def serves(self) -> bool:
        return self.state == "InService" and self.healthy

    @property
    def comes(self) -> bool:
        return self.state.startswith("Pending")


@dataclass(frozen=True)
class Attempt:
    """An activity that launches a machine."""

    id: str
    status: str
    started: float
    message: str = ""
    ended: float | None = None
    machine: str = ""
    """what it has launched"""

    @property
    def failed(self) -> bool:
        return self.status == "Failed" or (self.status == "Cancelled" and bool(self.message))

    @property
    def under_way(self) -> bool:
        return self.status not in ("Failed", "Cancelled", "Successful", "WaitingForConnectionDraining")

    @property
    def why(self) -> Why:
        return classify(self.message)


@dataclass(frozen=True)
class Group:
    """An Auto Scaling group as AWS shows it."""

    name: str
    desired: int
    machines: Sequence[Machine] = ()
    suspended: frozenset[str] = frozenset()
    attempts: Sequence[Attempt] = ()
    """the newest first, of this run alone"""

    @property
    def serving(self) -> frozenset[str]:
        return frozenset(machine.id for machine in self.machines if machine.serves)

    @property
    def in_service(self) -> int:
        return len(self.serving)

    @property
    def coming(self) -> int:
        """Launches in flight: decided on and not over."""
        # A machine that is pending has an activity under way as well: count the larger, not both.
        pending = sum(machine.comes for machine in self.machines)
        return max(pending, sum(attempt.under_way for attempt in self.attempts))

    @property
    def failures(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.failed]

    @property
    def holds(self) -> bool:
        """It launches nothing."""
        return "Launch" in self.suspended


@dataclass(frozen=True)
class Wish:
    name: str
    wanted: int
    least: int = 0
    essential: bool = False
    """all of it is needed, whatever the policy"""

    def enough(self, policy: Policy) -> int:
        if self.essential or policy is Policy.ALL_OR_NOTHING:
            return self.wanted
        return min(self.least, self.wanted) if policy is Policy.AT_LEAST else 0


@dataclass(frozen=True)
class Rules:
    policy: Policy
    deadline: float
    settle: float
    """seconds after the last machine came, or the first failed, until what is missing is given up"""


@dataclass(frozen=True)
class Memory:
    """What one look cannot show."""

    started: float
    before: frozenset[str] = frozenset()
    """machines that served before this run"""
    most: int = 0
    progress: float = 0.0
    """when the last machine came, or the first launch failed"""
    asked: float = 0.0
    """when the number was last asked for"""


def remember(memory: Memory | None, group: Group, now: float) -> Memory:
    """Memory after one more look."""
    if memory is None:
        before = group.serving - {attempt.machine for attempt in group.attempts}
        return Memory(now, before, group.in_service, now, now)
    grown = group.in_service > memory.most
    first_failure = bool(group.failures) and memory.progress == memory.started
    progress = now if grown or first_failure else memory.progress
    return Memory(memory.started, memory.before, max(memory.most, group.in_service), progress, memory.asked)


@dataclass(frozen=True)
class Missing:
    """Machines that did not come, for the same reason."""

    group: str
    count: int
    why: Why
    message: str
    """AWS's own words"""


def missing_of(group: Group, wish: Wish) -> list[Missing]:
    """Those that are missing and why: each missing machine takes the newest failure that is left."""
    count = wish.wanted - group.in_service
    if count <= 0:
        return []
    reasons = [(failure.why, failure.message) for failure in group.failures[:count]]
    late = "no launch of it had ended" if group.coming else "AWS said nothing about it"
    if reasons:
        # The engine tries one after another: what it said last holds for those it has not tried again.
        reasons += [reasons[0]] * (count - len(reasons))
    else:
        reasons = [(Why.LATE, late)] * count
    found: dict[tuple[Why, str], int] = {}
    for reason in reasons:
        found[reason] = found.get(reason, 0) + 1
    return [Missing(group.name, number, why, message) for (why, message), number in found.items()]


class Verdict(StrEnum):
    FULL = "full"
    WAIT = "wait"
    ASK = "ask"
    """ask for the number, now (again)"""
    RESUME = "resume"
    """somebody was interrupted while no launches were allowed: allow them"""
    SHORT = "short"
    """enough, and no more will come"""
    FAILED = "failed"


def judge(group: Group, wish: Wish, memory: Memory, rules: Rules, now: float) -> Verdict:
    """Where a group is on its way to what is wished for."""
    if group.in_service >= wish.wanted:
        return Verdict.RESUME if group.holds else Verdict.FULL
    short = Verdict.SHORT if group.in_service >= wish.enough(rules.policy) else Verdict.FAILED
    if now >= rules.deadline:
        return short
    if group.holds:
        return Verdict.RESUME
    if group.desired < wish.wanted:
        return Verdict.ASK
    reasons = group.failures[: wish.wanted - group.in_service]
    whys = {failure.why for failure in reasons}
    if Why.CONFIGURATION in whys or _still_not(group, now):
        return Verdict.FAILED
    if group.coming:
        return Verdict.WAIT
    if whys <= _PASSING:
        quiet_since = max([memory.asked, *(failure.ended or failure.started for failure in reasons)])
        return Verdict.ASK if now - quiet_since >= ASK_AGAIN_SECONDS else Verdict.WAIT
    if whys == {Why.ZONE} or now - memory.progress >= rules.settle:
        return short
    return Verdict.WAIT


def _still_not(group: Group, now: float) -> bool:
    """Not in effect for so long that it will never be."""
    failures = [failure for failure in group.failures if failure.why is Why.NOT_YET]
    return bool(failures) and failures[0] is group.failures[0] and now - failures[-1].started >= NOT_YET_SECONDS


@dataclass(frozen=True)
class Goal:
    """Where a group is led when the waiting is over."""

    keep: frozenset[str] | None = None
    """these machines alone; None: all that serve"""


class Do(StrEnum):
    HOLD = "hold"
    WAIT = "wait"
    END = "end"
    SET = "set"
    RESUME = "resume"
    DONE = "done"


@dataclass(frozen=True)
class Step:
    do: Do
    number: int = 0
    machines: Sequence[str] = ()


def towards(group: Group, goal: Goal, patient: bool) -> Step:
    """The next step to a goal.

    The desired number is never lowered while a launch is in flight, since Auto Scaling would then take any machine:
    launches are held, those in flight resolve (as long as `patient`), then it is set."""
    kept = group.serving if goal.keep is None else group.serving & goal.keep
    if group.coming and patient:
        return Step(Do.WAIT if group.holds else Do.HOLD)
    # Whatever is still pending when patience has ended may yet come: with the goal "all that serve" it has a place.
    pending = sum(machine.comes for machine in group.machines)
    number = len(kept) + (pending if goal.keep is None else 0)
    surplus = sorted(machine.id for machine in group.machines if machine.id not in kept and machine.serves)
    if goal.keep is None:
        surplus = []
    if group.desired != number or surplus:
        if not group.holds:
            return Step(Do.HOLD)
        if surplus and kept:
            # By name: left to itself, Auto Scaling might end one of those that are to stay.
            return Step(Do.END, machines=surplus)
        if group.desired != number:
            return Step(Do.SET, number)
    if goal.keep is not None and any(machine.id not in kept for machine in group.machines):
        return Step(Do.WAIT)
    return Step(Do.RESUME if group.holds else Do.DONE)


# What people read


def clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


_WAITING_FOR: Mapping[Why, str] = {
    Why.CAPACITY: "waiting for capacity",
    Why.ZONE: "not to be had in this zone",
    Why.QUOTA: "over the quota",
    Why.NOT_YET: "waiting for IAM",
    Why.THROTTLED: "throttled",
    Why.CONFIGURATION: "refused",
    Why.UNKNOWN: "failed",
    Why.LATE: "waiting",
}


def progress_of(group: Group, wish: Wish) -> str:
    """Such as `3/8 in service, 2 launching, 3 waiting for capacity`."""
    parts = [f"{group.in_service}/{wish.wanted} in service"]
    coming = min(group.coming, max(0, wish.wanted - group.in_service))
    if coming:
        parts.append(f"{coming} launching")
    waiting = wish.wanted - group.in_service - coming
    if waiting > 0:
        why = group.failures[0].why if group.failures else Why.LATE
        parts.append(f"{waiting} {_WAITING_FOR[why]}")
    return ", ".join(parts)


_EXPLAINED: Mapping[Why, str] = {
    Why.CAPACITY: "AWS has no capacity for {these}: ask for fewer, another type or another zone, or try again later",
    Why.ZONE: "the type of {these} is not to be had in this zone: choose other zones with cluster_zones",
    Why.QUOTA: "the account's quota does not allow {these}: have it raised (Service Quotas), or ask for fewer",
    Why.NOT_YET: "AWS did not accept the instance profile of {these} in time: run the same command again",
    Why.THROTTLED: "AWS kept refusing {these} for the moment: run the same command again",
    Why.CONFIGURATION: "the settings of {these} are wrong: correct them and run the same command again",
    Why.UNKNOWN: "AWS could not launch {these}",
    Why.LATE: "{these} did not come in time: run the same command again, or raise cluster_timeout_minutes",
}


def explain(missing: Missing) -> str:
    """One sentence, and AWS's words."""
    these = f"{missing.count} of {missing.group}"
    said = "" if missing.why is Why.LATE else f". AWS says: {missing.message}"
    return _EXPLAINED[missing.why].format(these=these) + said


def elsewhere(missing: Sequence[Missing]) -> bool:
    """May another zone have what is missing?"""
    return bool(missing) and all(one.why in _ELSEWHERE for one in missing)
