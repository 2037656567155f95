# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Watching groups until they have settled: looks, does what `_capacity` says, and tells of it.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from ansible_collections.deeplearning.aws.plugins.module_utils._aws import Aws
from ansible_collections.deeplearning.aws.plugins.plugin_utils._capacity import (
    Attempt,
    Do,
    Goal,
    Group,
    Machine,
    Memory,
    Missing,
    Rules,
    Step,
    Verdict,
    Wish,
    clock,
    elsewhere,
    explain,
    judge,
    missing_of,
    progress_of,
    remember,
    towards,
)

_MACHINE = re.compile(r"\bi-[0-9a-f]+")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
TELL_EVERY = 10.0
RESOLVE_SECONDS = 300.0
"""So long may launches that are in flight take to resolve when the waiting is over."""


class Vanished(Exception):
    """A group that is waited for does not exist."""


class Api(Protocol):
    def look(self, names: Sequence[str], since: float, detailed: frozenset[str] | None) -> dict[str, Group]:
        """The groups that exist; with their attempts, where `detailed` (None: for all) names them."""

    def now(self) -> float:
        """The time as AWS has it."""

    def pause(self, seconds: float) -> None: ...

    def set_desired(self, name: str, number: int) -> None: ...

    def hold(self, name: str) -> None: ...

    def resume(self, name: str) -> None: ...

    def end(self, machine: str) -> None:
        """Terminate it, and want one less."""


@dataclass
class Watch:
    """One wait for some groups."""

    api: Api
    wishes: Sequence[Wish]
    rules: Rules
    since: float
    say: Callable[[str], None]
    changed: bool = False
    memories: dict[str, Memory] = field(default_factory=dict)
    _told: str = ""
    _told_at: float = float("-inf")
    _pause: float = FIRST_PAUSE
    _seen: object = None

    def run(self) -> dict[str, Any]:
        """Until all groups have settled; says how."""
        started = self.api.now()
        groups, verdicts = self._grow()
        failed = Verdict.FAILED in verdicts.values()
        # Named before anything is taken back: AWS's words are those of the failed launches.
        missing = [one for wish in self.wishes for one in missing_of(groups[wish.name], wish)]
        if failed:
            self._tell_reasons(missing)
            self._lead({wish.name: Goal(self.memories[wish.name].before) for wish in self.wishes})
        elif Verdict.SHORT in verdicts.values():
            self._lead({name: Goal() for name, verdict in verdicts.items() if verdict is Verdict.SHORT})
        groups = self._look(None)
        if not failed:
            # The last ones may have come while launches were held.
            missing = [one for wish in self.wishes for one in missing_of(groups[wish.name], wish)]
            self._tell_reasons(missing)
        outcome = "failed" if failed else "degraded" if missing else "full"
        return self._result(outcome, groups, missing, self.api.now() - started)

    def _grow(self) -> tuple[dict[str, Group], dict[str, Verdict]]:
        while True:
            groups = self._look(self._short())
            now = self.api.now()
            for name, group in groups.items():
                self.memories[name] = remember(self.memories.get(name), group, now)
            short = {wish.name for wish in self.wishes if groups[wish.name].in_service < wish.wanted}
            verdicts = {
                wish.name: judge(groups[wish.name], wish, self.memories[wish.name], self.rules, now)
                for wish in self.wishes
            }
            self._tell(groups, now, waits=bool(short))
            acted = self._act(verdicts, now)
            if Verdict.FAILED in verdicts.values():
                return groups, verdicts
            if not acted and Verdict.WAIT not in verdicts.values():
                return groups, verdicts
            self._breathe(groups, self.rules.deadline - now)

    def _short(self) -> frozenset[str] | None:
        """Those whose attempts are of interest: at the first look, all."""
        if not self.memories:
            return None
        wanted = {wish.name: wish.wanted for wish in self.wishes}
        return frozenset(name for name, memory in self.memories.items() if memory.most < wanted[name])

    def _act(self, verdicts: Mapping[str, Verdict], now: float) -> bool:
        if Verdict.FAILED in verdicts.values():
            return False
        acted = False
        for wish in self.wishes:
            if verdicts[wish.name] is Verdict.RESUME:
                self.api.resume(wish.name)
            elif verdicts[wish.name] is Verdict.ASK:
                self.api.set_desired(wish.name, wish.wanted)
                self.memories[wish.name] = replace(self.memories[wish.name], asked=now)
            else:
                continue
            acted = self.changed = True
        return acted

    def _lead(self, goals: Mapping[str, Goal]) -> None:
        """All groups at once, each to its goal. In the end every one of them launches again what it wants."""
        deadline = self.api.now() + RESOLVE_SECONDS
        self._pause = FIRST_PAUSE
        while True:
            groups = self._look(frozenset(goals))
            now = self.api.now()
            steps = {name: towards(groups[name], goal, patient=now < deadline) for name, goal in goals.items()}
            for name, step in steps.items():
                self._do(name, step)
            if all(step.do is Do.DONE for step in steps.values()):
                return
            if now >= deadline and all(step.do in (Do.WAIT, Do.DONE) for step in steps.values()):
                # What is ending ends without us.
                for name, group in groups.items():
                    if group.holds:
                        self.api.resume(name)
                return
            if not any(step.do in (Do.HOLD, Do.SET, Do.END, Do.RESUME) for step in steps.values()):
                self._breathe(groups, RESOLVE_SECONDS)

    def _do(self, name: str, step: Step) -> None:
        if step.do in (Do.WAIT, Do.DONE):
            return
        self.changed = True
        if step.do is Do.HOLD:
            self.api.hold(name)
        elif step.do is Do.SET:
            self.api.set_desired(name, step.number)
        elif step.do is Do.RESUME:
            self.api.resume(name)
        else:
            for machine in step.machines:
                self.api.end(machine)

    def _look(self, detailed: frozenset[str] | None) -> dict[str, Group]:
        names = [wish.name for wish in self.wishes]
        groups = self.api.look(names, self.since, detailed)
        gone = [name for name in names if name not in groups]
        if gone:
            raise Vanished(
                f"There is no Auto Scaling group {' and no '.join(gone)}: run site.yml, which makes what is missing."
            )
        return groups

    def _breathe(self, groups: Mapping[str, Group], left: float) -> None:
        """Until the next look: soon while things move, later when they do not."""
        seen = {name: (group.in_service, group.coming, len(group.failures)) for name, group in groups.items()}
        self._pause = FIRST_PAUSE if seen != self._seen else min(LONGEST_PAUSE, self._pause * 1.4)
        self._seen = seen
        self.api.pause(max(0.05, min(left, self._pause * random.uniform(0.8, 1.2))))

    def _tell(self, groups: Mapping[str, Group], now: float, waits: bool) -> None:
        line = "; ".join(f"{wish.name} {progress_of(groups[wish.name], wish)}" for wish in self.wishes)
        if line == self._told and now - self._told_at < TELL_EVERY:
            return
        if not self._told and not waits:
            return
        self._told, self._told_at = line, now
        self.say(f"{line}, {clock(self.rules.deadline - now)} left")

    def _tell_reasons(self, missing: Sequence[Missing]) -> None:
        for one in missing:
            self.say(explain(one))

    def _result(
        self, outcome: str, groups: Mapping[str, Group], missing: Sequence[Missing], seconds: float
    ) -> dict[str, Any]:
        shown = {
            wish.name: {
                "wanted": wish.wanted,
                "in_service": groups[wish.name].in_service,
                "instances": sorted(groups[wish.name].serving),
            }
            for wish in self.wishes
        }
        words = [f"{name} {group['in_service']}/{group['wanted']} in service" for name, group in shown.items()]
        before = sum(groups[wish.name].in_service for wish in self.wishes)
        if outcome == "failed":
            words += [f"{before} that ran before this are left running"] if before else ["no machine is left running"]
        return {
            "changed": self.changed,
            "failed": outcome == "failed",
            "outcome": outcome,
            "settled": True,
            "groups": shown,
            "wanted": sum(wish.wanted for wish in self.wishes),
            "in_service": sum(groups[wish.name].in_service for wish in self.wishes),
            "missing": [
                {
                    "group": one.group,
                    "count": one.count,
                    "why": str(one.why),
                    "message": one.message,
                    "explained": explain(one),
                }
                for one in missing
            ],
            "elsewhere": outcome == "failed" and elsewhere(missing),
            "waited_seconds": round(seconds, 1),
            "msg": ". ".join([*(explain(one) for one in missing), ", ".join(words)]) + ".",
        }


class AutoScaling:
    """The groups of one region, over boto3."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self._ahead: float | None = None
        aws.client("autoscaling").meta.events.register("after-call.autoscaling", self._note_time)

    def _note_time(self, http_response: Any = None, **_: Any) -> None:
        """How far AWS's clock is ahead of ours: activities bear AWS's time."""
        date = getattr(http_response, "headers", {}).get("date")
        if date and self._ahead is None:
            self._ahead = parsedate_to_datetime(date).timestamp() - int(time.time())

    def now(self) -> float:
        return time.time() + (self._ahead or 0.0)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def look(self, names: Sequence[str], since: float, detailed: frozenset[str] | None) -> dict[str, Group]:
        groups = self._aws.pages(
            "autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", AutoScalingGroupNames=list(names)
        )
        found = {}
        for group in groups:
            name = str(group["AutoScalingGroupName"])
            if group.get("Status"):
                continue  # it is being deleted
            wanted = detailed is None or name in detailed
            found[name] = group_of(group, self._attempts(name, since) if wanted else ())
        return found

    def _attempts(self, name: str, since: float) -> list[Attempt]:
        # The header that clocks are compared by is in whole seconds.
        since += (self._ahead or 0.0) - 2
        listed: list[Any] = []
        token: dict[str, str] = {}
        while True:
            answer = self._aws.call(
                "autoscaling", "describe_scaling_activities", AutoScalingGroupName=name, MaxRecords=100, **token
            )
            page = answer.get("Activities") or []
            listed += page
            token = {"NextToken": answer["NextToken"]} if answer.get("NextToken") else {}
            if not token or page[-1]["StartTime"].timestamp() < since:
                return attempts_of(listed, since)

    def set_desired(self, name: str, number: int) -> None:
        self._aws.call(
            "autoscaling",
            "set_desired_capacity",
            AutoScalingGroupName=name,
            DesiredCapacity=number,
            HonorCooldown=False,
        )

    def hold(self, name: str) -> None:
        self._aws.call("autoscaling", "suspend_processes", AutoScalingGroupName=name, ScalingProcesses=["Launch"])

    def resume(self, name: str) -> None:
        self._aws.call("autoscaling", "resume_processes", AutoScalingGroupName=name, ScalingProcesses=["Launch"])

    def end(self, machine: str) -> None:
        self._aws.call(
            "autoscaling",
            "terminate_instance_in_auto_scaling_group",
            InstanceId=machine,
            ShouldDecrementDesiredCapacity=True,
        )


def group_of(shown: Mapping[str, Any], attempts: Sequence[Attempt]) -> Group:
    machines = [
        Machine(str(one["InstanceId"]), str(one["LifecycleState"]), one.get("HealthStatus") == "Healthy")
        for one in shown.get("Instances") or ()
    ]
    return Group(
        name=str(shown["AutoScalingGroupName"]),
        desired=int(shown["DesiredCapacity"]),
        machines=machines,
        suspended=frozenset(str(one["ProcessName"]) for one in shown.get("SuspendedProcesses") or ()),
        attempts=attempts,
    )


def attempts_of(activities: Sequence[Mapping[str, Any]], since: float) -> list[Attempt]:
    """The launches among activities (the newest first), those that began before `since` and are over left aside."""
    found = []
    for one in activities:
        description = str(one.get("Description", ""))
        if not description.startswith("Launching"):
            continue
        ended = one.get("EndTime")
        attempt = Attempt(
            id=str(one["ActivityId"]),
            status=str(one["StatusCode"]),
            started=one["StartTime"].timestamp(),
            message=" ".join(str(one.get("StatusMessage") or "").split()),
            ended=ended.timestamp() if ended else None,
            machine="".join(_MACHINE.findall(description)[:1]),
        )
        if attempt.started >= since or attempt.under_way:
            found.append(attempt)
    return found
