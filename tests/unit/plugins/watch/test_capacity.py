"""When a group has settled, how that is reported, and that no good machine is lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import AwsError
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity import (
    FailureKind,
    GroupAction,
    GroupInstance,
    GroupTarget,
    GroupVerdict,
    LaunchAttempt,
    NodeSetup,
    Policy,
    ScalingGroup,
    WaitRules,
    WaitState,
    elsewhere,
    explain,
    judge,
    missing_of,
    next_step,
    progress_of,
)
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity_watcher import (
    CapacityWatch,
    attempts_of,
    group_of,
)

CAPACITY = (
    "We currently do not have sufficient g5.xlarge capacity in the Availability Zone you requested (us-east-1a). "
    "Launching EC2 instance failed."
)
QUOTA = (
    "You have requested more vCPU capacity than your current vCPU limit of 8 allows for the instance bucket that the "
    "specified instance type belongs to. Launching EC2 instance failed."
)
PROFILE = "Invalid IAM Instance Profile name. Launching EC2 instance failed."
IMAGE = "The image id '[ami-0bad]' does not exist. Launching EC2 instance failed."
ZONE = (
    "Your requested instance type (p5.48xlarge) is not supported in your requested Availability Zone (us-east-1e). "
    "Launching EC2 instance failed."
)
THROTTLED = "Request limit exceeded. Launching EC2 instance failed."


def group(serving: int = 0, pending: int = 0, failures: Sequence[str] = (), **more: Any) -> ScalingGroup:
    """`failures` are the newest first; each began at 0 and ended at 1."""
    machines = [GroupInstance(f"i-{n}") for n in range(serving)] + [
        GroupInstance(f"i-p{n}", "Pending") for n in range(pending)
    ]
    attempts = [LaunchAttempt("Failed", 0.0, message, 1.0) for message in failures]
    return ScalingGroup("workers", more.pop("desired", 5), machines, attempts=attempts, **more)


FIVE = GroupTarget("workers", 5, 2)
NEW = WaitState(0.0)
RULES = WaitRules(Policy.AT_LEAST, deadline=600.0, settle=60.0, bundle="new")


@pytest.mark.parametrize(
    ("seen", "target", "policy", "now", "verdict"),
    [
        pytest.param(group(5), FIVE, "at_least", 1, "full", id="all there"),
        pytest.param(group(6), FIVE, "at_least", 1, "full", id="more than all"),
        pytest.param(
            group(5, launch_suspended=True), FIVE, "at_least", 1, "resume", id="all there, launching still held"
        ),
        pytest.param(group(0), FIVE, "at_least", 1, "wait", id="nothing has begun"),
        pytest.param(group(0), FIVE, "at_least", 16, "request", id="nothing has begun for long: asked again"),
        pytest.param(group(3, 2), FIVE, "at_least", 100, "wait", id="what is in flight is waited for"),
        pytest.param(group(3, desired=3), FIVE, "at_least", 1, "request", id="a second run asks for all again"),
        pytest.param(group(3, launch_suspended=True), FIVE, "at_least", 1, "resume", id="interrupted while held"),
        pytest.param(group(3, 0, [CAPACITY] * 2), FIVE, "at_least", 59, "wait", id="no capacity: settling"),
        pytest.param(group(3, 0, [CAPACITY] * 2), FIVE, "at_least", 60, "short", id="no capacity: enough came"),
        pytest.param(group(1, 0, [CAPACITY] * 4), FIVE, "at_least", 60, "failed", id="no capacity: too few"),
        pytest.param(group(4, 0, [CAPACITY]), FIVE, "all_or_nothing", 60, "failed", id="all or nothing"),
        pytest.param(group(0, 0, [CAPACITY] * 5), FIVE, "best_effort", 60, "short", id="best effort takes none"),
        pytest.param(
            group(0, 0, [CAPACITY]),
            GroupTarget("workers", 1, 0, True),
            "best_effort",
            60,
            "failed",
            id="but not of the master",
        ),
        pytest.param(group(3, 1, [CAPACITY]), FIVE, "at_least", 300, "wait", id="settled, but one is still launching"),
        pytest.param(group(3, 0, [QUOTA] * 2), FIVE, "at_least", 60, "short", id="quota"),
        pytest.param(group(0, 0, [ZONE]), FIVE, "at_least", 2, "failed", id="not in this zone: no use in waiting"),
        pytest.param(group(0, 0, [IMAGE]), FIVE, "best_effort", 2, "failed", id="bad image: at once"),
        pytest.param(group(3, 1, [IMAGE]), FIVE, "at_least", 2, "failed", id="bad image: even while others launch"),
        pytest.param(group(0, 0, [PROFILE] * 5), FIVE, "at_least", 10, "wait", id="late profile: wait"),
        pytest.param(group(0, 0, [PROFILE] * 5), FIVE, "at_least", 17, "request", id="late profile: request again"),
        pytest.param(group(0, 0, [PROFILE] * 5), FIVE, "at_least", 180, "failed", id="a profile that never comes"),
        pytest.param(group(3, 0, [CAPACITY] * 2 + [PROFILE]), FIVE, "at_least", 200, "short", id="it came in the end"),
        pytest.param(group(0, 0, [THROTTLED] * 5), FIVE, "at_least", 300, "request", id="throttled: request again"),
        pytest.param(group(3, 0, ["?"] * 2), FIVE, "at_least", 60, "short", id="unknown failures settle"),
        pytest.param(group(3, 2), FIVE, "at_least", 600, "short", id="time is up: enough"),
        pytest.param(group(1, 4), FIVE, "at_least", 600, "failed", id="time is up: too few"),
    ],
)
def test_judgement(seen: ScalingGroup, target: GroupTarget, policy: str, now: float, verdict: str) -> None:
    assert judge(seen, target, NEW, replace(RULES, policy=Policy(policy)), now) == verdict


def test_an_unhealthy_machine_does_not_count() -> None:
    seen = group(4)
    seen = replace(seen, machines=[*seen.machines, GroupInstance("i-ill", healthy=False)])
    assert judge(seen, FIVE, NEW, RULES, 1.0) is GroupVerdict.WAIT


ALL = None
NONE: frozenset[str] = frozenset()
FIRST_TWO = frozenset({"i-0", "i-1"})


@pytest.mark.parametrize(
    ("seen", "goal", "patient", "step"),
    [
        pytest.param(group(3, 1), ALL, True, (GroupAction.SUSPEND, 0), id="first of all, no more launches"),
        pytest.param(
            group(3, 1, launch_suspended=True), ALL, True, (GroupAction.WAIT, 0), id="what is in flight resolves"
        ),
        pytest.param(
            group(3, desired=5), ALL, True, (GroupAction.SUSPEND, 0), id="held, lest one begins between look and set"
        ),
        pytest.param(
            group(3, launch_suspended=True), ALL, True, (GroupAction.SET_DESIRED, 3), id="then the number is lowered"
        ),
        pytest.param(
            group(3, desired=3, launch_suspended=True),
            ALL,
            True,
            (GroupAction.RESUME, 0),
            id="then launching is allowed",
        ),
        pytest.param(group(3, desired=3), ALL, True, (GroupAction.DONE, 0), id="then it is over"),
        pytest.param(
            group(5, launch_suspended=True),
            ALL,
            True,
            (GroupAction.RESUME, 0),
            id="the late ones came: nothing is lowered",
        ),
        pytest.param(
            group(3, 1, launch_suspended=True),
            ALL,
            False,
            (GroupAction.SET_DESIRED, 4),
            id="what never resolves keeps its place",
        ),
        pytest.param(
            group(3, launch_suspended=True),
            NONE,
            True,
            (GroupAction.SET_DESIRED, 0),
            id="to nothing: Auto Scaling ends them",
        ),
        pytest.param(
            group(3, desired=0, launch_suspended=True), NONE, True, (GroupAction.WAIT, 0), id="until they are gone"
        ),
        pytest.param(
            group(0, desired=0, launch_suspended=True),
            NONE,
            True,
            (GroupAction.RESUME, 0),
            id="and it may launch again",
        ),
        pytest.param(
            group(4, launch_suspended=True), FIRST_TWO, True, (GroupAction.TERMINATE, 0), id="the new ones end by name"
        ),
        pytest.param(
            group(2, launch_suspended=True), FIRST_TWO, True, (GroupAction.SET_DESIRED, 2), id="and the old ones stay"
        ),
        pytest.param(
            group(2, desired=2), FIRST_TWO, True, (GroupAction.DONE, 0), id="nothing was added: nothing is done"
        ),
    ],
)
def test_the_way_back(
    seen: ScalingGroup, goal: frozenset[str] | None, patient: bool, step: tuple[GroupAction, int]
) -> None:
    actual = next_step(seen, goal, patient)
    number = actual.arguments[0] if actual.action is GroupAction.SET_DESIRED else 0
    assert (actual.action, number) == step


def test_only_what_came_in_this_run_is_ended() -> None:
    assert next_step(group(4, launch_suspended=True), FIRST_TWO, True).arguments == (["i-2", "i-3"],)


def test_each_missing_machine_has_its_reason() -> None:
    actual = missing_of(group(2, 0, [CAPACITY, QUOTA, CAPACITY]), FIVE)
    assert [(shortage.why, shortage.count) for shortage in actual] == [
        (FailureKind.CAPACITY, 2),
        (FailureKind.UNKNOWN, 1),
    ]
    assert not elsewhere(actual)
    assert elsewhere(missing_of(group(2, 0, [CAPACITY]), FIVE))


def test_an_explanation_has_awss_own_words() -> None:
    (actual,) = missing_of(group(3, 0, [CAPACITY]), FIVE)
    assert explain(actual).startswith("AWS has no capacity for 2 of workers: ask for fewer")
    assert explain(actual).endswith(f"AWS says: {CAPACITY}")


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        (group(5), "5/5 ready"),
        (group(0, 2), "0/5 ready, 2 launching, 3 waiting"),
        (group(2, 1, [CAPACITY]), "2/5 ready, 1 launching, 2 waiting for capacity"),
        (group(3, 0, [QUOTA]), "3/5 ready, 2 failed"),
    ],
)
def test_progress_in_words(seen: ScalingGroup, line: str) -> None:
    assert progress_of(seen, FIVE, now=0) == line


class FakeApi:
    """A group in a zone with so much room. Each look moves it on by one step, and the time by the pause."""

    def __init__(self, room: int, desired: int = 5, serving: int = 0, message: str = CAPACITY) -> None:
        self.time, self.room, self.desired, self.message = 0.0, room, desired, message
        self.serving = [f"i-old{n}" for n in range(serving)]
        self.pending: list[str] = []
        self.failures: list[LaunchAttempt] = []
        self.held = False
        self.writes: list[tuple[Any, ...]] = []
        self.lowest_room_while_pending: int | None = None

    def describe(self, names: Sequence[str], since: float, detailed: frozenset[str] | None) -> dict[str, ScalingGroup]:
        self._step()
        machines = [GroupInstance(instance_id) for instance_id in self.serving] + [
            GroupInstance(instance_id, "Pending") for instance_id in self.pending
        ]
        held = frozenset({"Launch"}) if self.held else frozenset[str]()
        return {"workers": ScalingGroup("workers", self.desired, machines, held, tuple(reversed(self.failures)))}

    def _step(self) -> None:
        self.serving += self.pending
        self.pending = []
        while not self.held and len(self.serving) + len(self.pending) < self.desired:
            if len(self.serving) + len(self.pending) >= self.room:
                if not self.failures or self.failures[-1].started + 20 <= self.time:
                    missing = self.desired - len(self.serving) - len(self.pending)
                    self.failures += [LaunchAttempt("Failed", self.time, self.message, self.time)] * missing
                break
            self.pending.append(f"i-{len(self.serving) + len(self.pending)}")

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.time += seconds

    def set_desired(self, name: str, number: int) -> None:
        assert not self.pending or number >= self.desired, "lowered while a launch is in flight"
        self.writes.append(("set", number))
        self.desired = number
        self.serving = self.serving[:number]

    def suspend(self, name: str) -> None:
        self.writes.append(("hold",))
        self.held = True

    def resume(self, name: str) -> None:
        self.writes.append(("resume",))
        self.held = False

    def terminate(self, machines: Sequence[str]) -> None:
        for machine in machines:
            self.writes.append(("end", machine))
            self.serving.remove(machine)
            self.desired -= 1


class NoReports:
    def add_to(self, groups: dict[str, ScalingGroup]) -> dict[str, ScalingGroup]:
        return groups

    def console(self, machine: str) -> list[str]:
        return []


def watched(api: FakeApi, target: GroupTarget = FIVE, **rules: Any) -> tuple[dict[str, Any], list[str]]:
    lines: list[str] = []
    result = CapacityWatch(api, [target], replace(RULES, **rules), 0.0, lines.append, NoReports()).run()
    return result, lines


def test_a_full_group_is_not_changed_and_nothing_is_printed() -> None:
    api = FakeApi(room=5, serving=5)
    result, lines = watched(api)
    assert (result["outcome"], result["changed"], api.writes, lines) == ("full", False, [], [])


def test_all_come() -> None:
    api = FakeApi(room=5)
    result, lines = watched(api)
    assert (result["outcome"], result["in_service"], result["changed"], api.writes) == ("full", 5, False, [])
    assert lines[0] == "workers 0/5 ready, 5 launching, 0:00, gives up after 10:00"


def test_three_of_five_stand() -> None:
    api = FakeApi(room=3)
    result, lines = watched(api)
    assert (result["outcome"], result["failed"], result["in_service"]) == ("degraded", False, 3)
    assert api.writes == [("hold",), ("set", 3), ("resume",)]
    assert [(shortage["count"], shortage["why"], shortage["message"]) for shortage in result["missing"]] == [
        (2, "capacity", CAPACITY)
    ]
    assert any("3/5 ready, 2 waiting for capacity" in line for line in lines)
    assert lines[-1].startswith("AWS has no capacity for 2 of workers")


def test_too_few_machines_are_terminated() -> None:
    api = FakeApi(room=3)
    result, _ = watched(api, GroupTarget("workers", 5, 4))
    assert (result["outcome"], result["failed"], result["elsewhere"]) == ("failed", True, True)
    assert (api.serving, api.desired, api.held) == ([], 0, False)


def test_what_ran_before_survives_a_failure() -> None:
    api = FakeApi(room=3, serving=2)
    result, _ = watched(api, GroupTarget("workers", 5, 4))
    assert result["failed"]
    assert (api.serving, api.desired, api.held) == (["i-old0", "i-old1"], 2, False)
    assert ("end", "i-2") in api.writes


def test_a_second_run_asks_again_and_gets_them() -> None:
    api = FakeApi(room=5, desired=3, serving=3)
    result, _ = watched(api)
    assert (result["outcome"], result["changed"], api.writes) == ("full", True, [("set", 5)])


def test_what_fails_in_passing_is_asked_for_again() -> None:
    api = FakeApi(room=0, message=PROFILE)
    pause = api.pause

    def effective(seconds: float) -> None:
        pause(seconds)
        api.room = 5 if ("set", 5) in api.writes else 0

    api.pause = effective  # type: ignore[method-assign]
    result, _ = watched(api)
    assert result["outcome"] == "full"
    assert ("set", 5) in api.writes


def test_progress_is_printed_after_a_change_or_every_ten_seconds() -> None:
    api = FakeApi(room=3)
    _, lines = watched(api)
    waiting = [line for line in lines if "waiting for capacity" in line]
    assert 4 <= len(waiting) <= 8, "one each ten seconds of the sixty"


def test_a_group_that_does_not_exist_is_named() -> None:
    with pytest.raises(AwsError, match="no Auto Scaling group others"):
        watched(FakeApi(room=3), GroupTarget("others", 1))


def test_a_group_as_aws_describes_it() -> None:
    states = [("i-1", "InService", "Healthy"), ("i-2", "InService", "Unhealthy"), ("i-3", "Pending", "Healthy")]
    keys = ("InstanceId", "LifecycleState", "HealthStatus")
    shown = {
        "AutoScalingGroupName": "c-workers",
        "DesiredCapacity": 5,
        "Instances": [dict(zip(keys, state, strict=True)) for state in states],
        "SuspendedProcesses": [{"ProcessName": "Launch", "SuspensionReason": "User suspended it"}],
    }
    attempt = LaunchAttempt("Failed", 0.0, CAPACITY, 1.0)
    seen = group_of(shown, [attempt])
    assert (seen.name, seen.desired_capacity, seen.launch_suspended) == ("c-workers", 5, True)
    assert (seen.serving, seen.launching, seen.failures) == ({"i-1"}, 1, [attempt])
    assert [machine.id for machine in seen.machines] == ["i-1", "i-2", "i-3"]
    empty = group_of({"AutoScalingGroupName": "c-master", "DesiredCapacity": 1}, ())
    assert (empty.desired_capacity, empty.machines, empty.launch_suspended) == (1, [], False)


def test_activities_of_earlier_runs_are_history() -> None:
    from datetime import UTC, datetime

    def activity(started: float, status: str = "Failed", description: str = "Launching a new EC2 instance") -> Any:
        start = datetime.fromtimestamp(started, UTC)
        return {"ActivityId": str(started), "StatusCode": status, "Description": description, "StartTime": start}

    actual = attempts_of(
        [
            activity(30),
            activity(20, description="Terminating EC2 instance: i-1"),
            activity(9),
            activity(8, "PreInService"),
        ],
        since=10,
    )
    assert [attempt.started for attempt in actual] == [30, 8]


ABANDONED = "Instance failed to complete user's Lifecycle Action: Lifecycle Action with token 1 was abandoned"


def booting(serving: int = 0, *setups: NodeSetup | None, **more: Any) -> ScalingGroup:
    """Machines that the launch hook holds, by what each has reported."""
    held = [GroupInstance(f"i-h{n}", "Pending:Wait") for n in range(len(setups))]
    reported = {f"i-h{n}": setup for n, setup in enumerate(setups) if setup}
    machines = [*group(serving).machines, *held]
    return ScalingGroup("workers", more.pop("desired", 5), machines, setups=reported, **more)


def failed(reported: float = 0.0, bundle: str = "new") -> NodeSetup:
    return NodeSetup("failed", "efs_mount", ["mount: no route to host"], bundle, reported)


def configuring(step: str = "frameworks", reported: float = 0.0) -> NodeSetup:
    return NodeSetup("configuring", step, ["installing"], "new", reported)


ALL_OR_NOTHING = replace(RULES, policy=Policy.ALL_OR_NOTHING)


@pytest.mark.parametrize(
    ("seen", "rules", "now", "verdict"),
    [
        pytest.param(booting(3, failed(), configuring()), RULES, 14, "wait", id="it may still abandon itself"),
        pytest.param(booting(3, failed(), configuring()), RULES, 15, "wait", id="the other one may come"),
        pytest.param(booting(4, failed()), RULES, 15, "short", id="enough are ready, one keeps its place"),
        pytest.param(booting(1, *[failed()] * 4), RULES, 15, "failed", id="too few are left"),
        pytest.param(booting(1, *[failed()] * 3, configuring()), RULES, 15, "wait", id="just enough are left"),
        pytest.param(booting(4, failed()), ALL_OR_NOTHING, 15, "failed", id="all are needed"),
        pytest.param(booting(0, failed(), *[None] * 4), ALL_OR_NOTHING, 15, "failed", id="at once: none can make up"),
        pytest.param(booting(4, failed(bundle="old")), ALL_OR_NOTHING, 500, "wait", id="an older bundle's: replaced"),
        pytest.param(booting(4, configuring()), RULES, 600, "short", id="too late"),
        pytest.param(booting(4, None), RULES, 599, "wait", id="it has not reported yet"),
    ],
)
def test_when_machines_that_configure_themselves_have_settled(
    seen: ScalingGroup, rules: WaitRules, now: float, verdict: str
) -> None:
    assert judge(seen, FIVE, NEW, rules, now) is GroupVerdict(verdict)


def test_only_machines_that_failed_with_another_bundle_are_outdated() -> None:
    seen = booting(1, failed(), failed(bundle="old"), failed(bundle=""), configuring(), None)
    assert seen.outdated("new") == ["i-h1", "i-h2"]


def test_machines_that_are_held_are_given_back_before_the_number_is_lowered() -> None:
    before = frozenset({"i-0", "i-1"})
    seen = booting(2, failed(), configuring())
    assert next_step(seen, before, True).action is GroupAction.SUSPEND
    step = next_step(replace(seen, launch_suspended=True), before, True)
    assert (step.action, step.arguments) == (GroupAction.ABANDON, (["i-h0", "i-h1"],))
    # They are ending, and Auto Scaling must not take one of the others instead.
    ending = [GroupInstance("i-h0", "Terminating"), GroupInstance("i-h1", "Terminating")]
    ended = replace(seen, launch_suspended=True, machines=[*group(2).machines, *ending])
    step = next_step(ended, before, True)
    assert (step.action, step.arguments) == (GroupAction.SET_DESIRED, (2,))


def test_a_machine_that_could_not_configure_itself_is_shown_with_its_log() -> None:
    attempt = LaunchAttempt("Cancelled", 0.0, ABANDONED, 1.0, "i-gone")
    seen = booting(2, failed(), configuring(), attempts=[attempt])
    seen = replace(seen, setups={**seen.setups, "i-gone": NodeSetup("failed", "docker", ["no space left"], "new")})
    setup, late = missing_of(seen, FIVE)
    assert (setup.why, setup.count, late.why, late.count) == (FailureKind.SETUP, 2, FailureKind.LATE, 1)
    assert list(setup.details) == [
        "i-h0: efs_mount",
        "    mount: no route to host",
        "i-gone: docker",
        "    no space left",
    ]
    assert list(late.details) == ["i-h1: frameworks", "    installing"]
    assert explain(setup).startswith("2 of workers could not configure themselves: ")
    silent = booting(4, None)
    silent = replace(silent, setups={"i-h0": NodeSetup(log=["Kernel panic"])})
    (late,) = missing_of(silent, FIVE)
    assert list(late.details) == ["i-h0 has not reported. The end of its console:", "    Kernel panic"]


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        (booting(5), "5/5 ready"),
        (booting(3, None, configuring("efs_mount", 8)), "3/5 ready, 1 launching, 1 configuring (efs_mount, 0:40)"),
        (
            booting(2, configuring("a", 9), configuring("b", 3), failed()),
            "2/5 ready, 2 configuring (b, 0:40), 1 failed",
        ),
        # Machines that are in service, with reports from before that.
        (replace(booting(3), setups={"i-0": failed(), "i-1": configuring("a", 9)}), "3/5 ready, 2 waiting"),
        (
            replace(booting(3, failed()), setups={"i-0": NodeSetup("failed", "docker"), "i-h0": failed()}),
            "3/5 ready, 1 failed: efs_mount, 1 waiting",
        ),
    ],
)
def test_progress_of_machines_that_configure_themselves(seen: ScalingGroup, line: str) -> None:
    assert progress_of(seen, FIVE, now=50).startswith(line)
