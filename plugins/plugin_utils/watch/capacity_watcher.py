# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Poll Auto Scaling groups until they have settled, carry out the decisions of `capacity`, and report progress."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any

from ...module_utils.aws.client import Aws, AwsError
from ...module_utils.aws.polling import ProgressPrinter, until
from ...module_utils.contract.boot import HOOK
from ...module_utils.contract.errors import UserError
from . import capacity
from .elastic_address import ElasticAddress
from .setup_reports import SetupReports

_STEP = re.compile(r" \([^)]*\)")
"""At which step a machine is, in a line of progress."""
_MACHINE = re.compile(r"\bi-[0-9a-f]+")

RESOLVE_SECONDS = 300.0
"""The longest time for pending launches to resolve after the wait."""


@dataclass
class CapacityWatch:
    """One wait for some groups."""

    api: AutoScaling
    targets: Sequence[capacity.GroupTarget]
    rules: capacity.WaitRules
    since: float
    display: Callable[[str], None]
    reports: SetupReports
    addresses: Sequence[ElasticAddress] = ()
    other_writer: Callable[[], str] = lambda: ""
    """Return who else has changed the cluster since this playbook released its lock; empty if nobody has."""
    changed: bool = False
    states: dict[str, capacity.WaitState] = field(default_factory=dict)
    _groups: dict[str, capacity.ScalingGroup] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        """Wait until all groups have settled, and return the result."""
        started = self.api.now()
        verdicts = self._wait(started)
        failed = capacity.GroupVerdict.FAILED in verdicts.values()
        # Read before the groups are restored: AWS's messages are those of the failed launches, and machines that are
        # abandoned then have not failed.
        self._read_consoles()
        missing, in_service = self._missing(), self._in_service()
        if failed:
            self._report_reasons(missing)
        goals = {
            name: self.states[name].before if failed else None
            for name, verdict in verdicts.items()
            if failed or verdict is capacity.GroupVerdict.SHORT
        }
        if goals:
            self._reach(goals)
        self._describe(None)
        if not failed:
            if self._in_service() != in_service:
                # The last ones came while launches were suspended.
                missing = self._missing()
            self._report_reasons(missing)
        outcome = "failed" if failed else "degraded" if missing else "full"
        return self._result(outcome, missing, self.api.now() - started)

    def _fail_if_changed_by_others(self) -> None:
        writer = self.other_writer()
        if writer:
            raise UserError(
                f"{writer} while this playbook waited for machines, so it leaves them as they are and stops here. Run "
                "it again."
            )

    def _missing(self) -> list[capacity.MissingMachines]:
        return [
            missing for target in self.targets for missing in capacity.missing_of(self._groups[target.name], target)
        ]

    def _in_service(self) -> int:
        return sum(self._groups[target.name].in_service for target in self.targets)

    def _wait(self, started: float) -> dict[str, capacity.GroupVerdict]:
        progress = ProgressPrinter(self.display, self.api.now)
        verdicts: dict[str, capacity.GroupVerdict] = {}

        def poll() -> bool | None:
            self._describe(self._short())
            associated = self._associate()
            now = self.api.now()
            for name, group in self._groups.items():
                self.states[name] = capacity.remember(self.states.get(name), group, now)
            for target in self.targets:
                group, state = self._groups[target.name], self.states[target.name]
                verdicts[target.name] = capacity.judge(group, target, state, self.rules, now)
            self._report(progress, started, now)
            if capacity.GroupVerdict.FAILED in verdicts.values():
                return True
            acted = self._act(verdicts, now)
            done = associated and not acted and capacity.GroupVerdict.WAIT not in verdicts.values()
            return True if done else None

        self._until(poll, self.rules.deadline - self.api.now())
        return verdicts

    def _until(self, poll: Callable[[], bool | None], seconds: float) -> None:
        until(poll, seconds, state=self._state, now=self.api.now, pause=self.api.pause)

    def _state(self) -> object:
        return [
            (group.in_service, group.launching, len(group.failures), group.desired_capacity, group.launch_suspended)
            for _name, group in sorted(self._groups.items())
        ]

    def _short(self) -> frozenset[str] | None:
        """Return the groups whose launches matter: at the first poll, all."""
        if not self.states:
            return None
        desired = {target.name: target.desired_capacity for target in self.targets}
        return frozenset(name for name, state in self.states.items() if state.most < desired[name])

    def _act(self, verdicts: Mapping[str, capacity.GroupVerdict], now: float) -> bool:
        acted = False
        if self._has_something_to_do(verdicts) and self.other_writer():
            # What this playbook knows of the cluster is old: it only watches from here on.
            return False
        for target in self.targets:
            outdated = self._groups[target.name].outdated(self.rules.bundle)
            if outdated:
                self.api.abandon(target.name, outdated)
                acted = self.changed = True
            if verdicts[target.name] is capacity.GroupVerdict.RESUME:
                self.api.resume(target.name)
            elif verdicts[target.name] is capacity.GroupVerdict.REQUEST:
                self.api.set_desired(target.name, target.desired_capacity)
                self.states[target.name] = replace(self.states[target.name], requested=now)
            else:
                continue
            acted = self.changed = True
        return acted

    def _has_something_to_do(self, verdicts: Mapping[str, capacity.GroupVerdict]) -> bool:
        actions = (capacity.GroupVerdict.RESUME, capacity.GroupVerdict.REQUEST)
        if any(verdict in actions for verdict in verdicts.values()):
            return True
        return any(self._groups[target.name].outdated(self.rules.bundle) for target in self.targets)

    def _associate(self) -> bool:
        """Associate the addresses with the machines of their groups. Return whether all are."""
        associated = True
        for address in self.addresses:
            group = self._groups[address.group]
            machines = [machine.id for machine in group.machines if machine.healthy and not machine.is_ending]
            self.changed |= address.associate(machines)
            associated &= address.is_associated(machines)
        return associated

    def _read_consoles(self) -> None:
        """Read the consoles of some machines that have not reported."""
        for name, group in self._groups.items():
            silent = [machine for machine in capacity.unconfigured(group) if machine not in group.setups]
            consoles = {
                machine: capacity.NodeSetup(log=self.reports.console(machine))
                for machine in silent[: capacity.MOST_DETAILS]
            }
            self._groups[name] = replace(group, setups={**group.setups, **consoles})

    def _reach(self, goals: Mapping[str, frozenset[str] | None]) -> None:
        """Take all groups to their goals (see `next_step`) at once. In the end none has its launches suspended."""
        deadline = self.api.now() + RESOLVE_SECONDS

        def poll() -> bool | None:
            self._describe(frozenset(goals))
            is_late = self.api.now() >= deadline
            steps = {
                name: capacity.next_step(self._groups[name], keep, patient=not is_late) for name, keep in goals.items()
            }
            actions = {step.action for step in steps.values()}
            if not actions <= {capacity.GroupAction.WAIT, capacity.GroupAction.DONE}:
                self._fail_if_changed_by_others()
            for name, step in steps.items():
                self._do(name, step)
            if is_late and actions <= {capacity.GroupAction.WAIT, capacity.GroupAction.DONE}:
                # Terminating machines need no further action.
                for name, group in self._groups.items():
                    if group.launch_suspended:
                        self.api.resume(name)
                return True
            return True if actions == {capacity.GroupAction.DONE} else None

        self._until(poll, math.inf)

    def _do(self, name: str, step: capacity.NextAction) -> None:
        match step.action:
            case capacity.GroupAction.SUSPEND:
                self.api.suspend(name)
            case capacity.GroupAction.ABANDON:
                self.api.abandon(name, *step.arguments)
            case capacity.GroupAction.TERMINATE:
                self.api.terminate(*step.arguments)
            case capacity.GroupAction.SET_DESIRED:
                self.api.set_desired(name, *step.arguments)
            case capacity.GroupAction.RESUME:
                self.api.resume(name)
            case capacity.GroupAction.WAIT | capacity.GroupAction.DONE:
                return
        self.changed = True

    def _describe(self, detailed: frozenset[str] | None) -> None:
        names = [target.name for target in self.targets]
        self._groups = self.api.describe(names, self.since, detailed)
        missing = [name for name in names if name not in self._groups]
        if missing:
            self._fail_if_changed_by_others()
            raise AwsError(
                f"There is no Auto Scaling group {' and no '.join(missing)}: run deeplearning.aws.site, which makes "
                "what is missing."
            )
        self._groups = self.reports.add_to(self._groups)

    def _report(self, progress: ProgressPrinter, started: float, now: float) -> None:
        """Report each change, and nothing if all machines are in service at the first poll."""
        short = any(self._groups[target.name].in_service < target.desired_capacity for target in self.targets)
        if short or progress.has_reported:
            names = [target.name for target in self.targets]
            # Without what all begin with, the cluster's name.
            same = os.path.commonprefix(names).rpartition("-")[0] + "-" if len(names) > 1 else ""
            words = (
                f"{target.name.removeprefix(same)} " + capacity.progress_of(self._groups[target.name], target, now)
                for target in self.targets
            )
            # Once, and not the time that is left: all take it for an estimate.
            limit = f", gives up after {capacity.clock(round(self.rules.deadline - started))}"
            rest = f", {capacity.clock(now - started)}{'' if progress.has_reported else limit}"
            line = "; ".join(words)
            # A machine's next step is no reason for a line of its own.
            progress.report(line, rest, _STEP.sub("", line))

    def _report_reasons(self, missing: Sequence[capacity.MissingMachines]) -> None:
        for machines in missing:
            self.display("\n".join([capacity.explain(machines), *machines.details]))

    def _result(self, outcome: str, missing: Sequence[capacity.MissingMachines], seconds: float) -> dict[str, Any]:
        groups = self._groups
        shown = {
            target.name: {
                "desired": target.desired_capacity,
                "in_service": groups[target.name].in_service,
                "instances": sorted(groups[target.name].serving),
            }
            for target in self.targets
        }
        words = [f"{name} {group['in_service']}/{group['desired']} in service" for name, group in shown.items()]
        in_service = self._in_service()
        if outcome == "failed":
            words.append(
                f"{in_service} that ran before this are left running" if in_service else "no machine is left running"
            )
        sentences = ". ".join([*(capacity.explain(item) for item in missing), ", ".join(words)])
        return {
            "changed": self.changed,
            "failed": outcome == "failed",
            "outcome": outcome,
            "groups": shown,
            "desired": sum(target.desired_capacity for target in self.targets),
            "in_service": in_service,
            "missing": [
                {**asdict(machines), "why": str(machines.why), "explained": capacity.explain(machines)}
                for machines in missing
            ],
            "elsewhere": outcome == "failed" and capacity.elsewhere(missing),
            "waited_seconds": round(seconds, 1),
            "msg": "\n".join([f"{sentences}.", *(line for item in missing for line in item.details)]),
        }


class AutoScaling:
    """The groups of one region, over boto3."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self._ahead: float | None = None
        aws.client("autoscaling").meta.events.register("after-call.autoscaling", self._note_time)

    def _note_time(self, http_response: Any = None, **_: Any) -> None:
        """Note how far AWS's clock is ahead of ours: activities have AWS's time."""
        date = getattr(http_response, "headers", {}).get("date")
        if date and self._ahead is None:
            self._ahead = parsedate_to_datetime(date).timestamp() - int(time.time())

    def now(self) -> float:
        return time.time() + (self._ahead or 0.0)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def describe(
        self, names: Sequence[str], since: float, detailed: frozenset[str] | None
    ) -> dict[str, capacity.ScalingGroup]:
        groups = self._aws.pages(
            "autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", AutoScalingGroupNames=list(names)
        )
        observed = {}
        for group in groups:
            name = str(group["AutoScalingGroupName"])
            if group.get("Status"):
                continue  # it is being deleted
            needs_attempts = detailed is None or name in detailed
            observed[name] = group_of(group, self._attempts(name, since) if needs_attempts else ())
        return observed

    def _attempts(self, name: str, since: float) -> list[capacity.LaunchAttempt]:
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
        request = {"AutoScalingGroupName": name, "DesiredCapacity": number, "HonorCooldown": False}
        self._aws.call("autoscaling", "set_desired_capacity", **request)

    def suspend(self, name: str) -> None:
        self._aws.call("autoscaling", "suspend_processes", AutoScalingGroupName=name, ScalingProcesses=["Launch"])

    def resume(self, name: str) -> None:
        self._aws.call("autoscaling", "resume_processes", AutoScalingGroupName=name, ScalingProcesses=["Launch"])

    def abandon(self, name: str, machines: Sequence[str]) -> None:
        """Terminate machines that the launch hook holds. They may have ended the lifecycle action themselves."""
        request = {"AutoScalingGroupName": name, "LifecycleHookName": HOOK, "LifecycleActionResult": "ABANDON"}
        for machine in machines:
            self._aws.find(
                "autoscaling", "complete_lifecycle_action", ("ValidationError",), **request, InstanceId=machine
            )

    def terminate(self, machines: Sequence[str]) -> None:
        operation = "terminate_instance_in_auto_scaling_group"
        for machine in machines:
            self._aws.call("autoscaling", operation, InstanceId=machine, ShouldDecrementDesiredCapacity=True)


def group_of(shown: Mapping[str, Any], attempts: Sequence[capacity.LaunchAttempt]) -> capacity.ScalingGroup:
    machines = [
        capacity.GroupInstance(
            str(item["InstanceId"]), str(item["LifecycleState"]), item.get("HealthStatus") == "Healthy"
        )
        for item in shown.get("Instances") or ()
    ]
    return capacity.ScalingGroup(
        name=str(shown["AutoScalingGroupName"]),
        desired_capacity=int(shown["DesiredCapacity"]),
        machines=machines,
        launch_suspended=any(item["ProcessName"] == "Launch" for item in shown.get("SuspendedProcesses") or ()),
        attempts=attempts,
        placement_group=str(shown.get("PlacementGroup") or ""),
    )


def attempts_of(activities: Sequence[Mapping[str, Any]], since: float) -> list[capacity.LaunchAttempt]:
    """Return the launches among activities, the newest first, without those that ended and began before `since`."""
    attempts = []
    for item in activities:
        description = str(item.get("Description", ""))
        if not description.startswith("Launching"):
            continue
        ended = item.get("EndTime")
        attempt = capacity.LaunchAttempt(
            status=str(item["StatusCode"]),
            started=item["StartTime"].timestamp(),
            message=" ".join(str(item.get("StatusMessage") or "").split()),
            ended=ended.timestamp() if ended else None,
            machine="".join(_MACHINE.findall(description)[:1]),
        )
        if attempt.started >= since or attempt.is_running:
            attempts.append(attempt)
    return attempts
