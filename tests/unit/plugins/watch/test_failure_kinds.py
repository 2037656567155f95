"""Each of AWS's ways to say why a launch failed, and what people read about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.watch.capacity import (
    MOST_DETAILS,
    MOST_LINES,
    STUCK_SECONDS,
    FailureKind,
    GroupInstance,
    GroupTarget,
    GroupVerdict,
    LaunchAttempt,
    MissingMachines,
    NodeSetup,
    Policy,
    ScalingGroup,
    WaitRules,
    WaitState,
    classify,
    clock,
    elsewhere,
    explain,
    judge,
    missing_of,
    progress_of,
    remember,
)


def test_awss_sentences_are_recognized_in_any_case() -> None:
    assert classify("REQUEST LIMIT EXCEEDED.") is classify("request limit exceeded.") is FailureKind.THROTTLED


@pytest.mark.parametrize("message", ["", "It failed.", "Arena", "A machine was sufficient", "Quota exceeded"])
def test_any_other_sentence_decides_nothing(message: str) -> None:
    assert classify(message) is FailureKind.UNKNOWN


@pytest.mark.parametrize(
    ("why", "sentence"),
    [
        (
            "capacity",
            "AWS has no capacity for 2 of w: ask for fewer, another type or another zone, or try again later.",
        ),
        ("zone", "this zone does not offer the type of 2 of w: choose other zones with cluster_availability_zones."),
        ("not_yet", "AWS did not accept the instance profile of 2 of w in time: run the same command again."),
        ("throttled", "AWS kept refusing 2 of w for the moment: run the same command again."),
        ("configuration", "the settings of 2 of w are wrong: correct them and run the same command again."),
        ("unknown", "AWS could not launch 2 of w."),
    ],
)
def test_every_kind_is_explained_with_awss_message(why: str, sentence: str) -> None:
    assert explain(MissingMachines("w", 2, FailureKind(why), "Sorry.")) == f"{sentence} AWS says: Sorry."


def test_only_missing_capacity_is_explained_by_the_placement_group() -> None:
    messages = ("There is no Spot capacity available that matches your request.", "Quota exceeded")
    attempts = [LaunchAttempt("Failed", 5.0, text) for text in messages]
    group = ScalingGroup("w", 2, attempts=attempts, placement_group="red")
    lacking, over_quota = (explain(item) for item in missing_of(group, GroupTarget("w", 2)))
    assert ", or try again later, or without the placement group (-e cluster_placement_group=false). AWS" in lacking
    assert "placement group" not in over_quota


def test_what_is_ours_has_no_message_of_aws() -> None:
    assert explain(MissingMachines("w", 1, FailureKind.SETUP, "x")) == (
        "1 of w could not configure themselves: correct the cause that their logs show, and run deeplearning.aws.site "
        "again"
    )
    assert explain(MissingMachines("w", 1, FailureKind.LATE, "x")) == (
        "1 of w did not come in time: run the same command again, or raise cluster_capacity_timeout_minutes"
    )


def failed(*messages: str, desired: int = 3, machines: Any = ()) -> ScalingGroup:
    attempts = [LaunchAttempt("Failed", 0.0, text, 1.0) for text in messages]
    return ScalingGroup("w", desired, machines, attempts=attempts)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("There is no Spot capacity available", "waiting for capacity"),
        ("not supported in your requested availability zone", "unavailable in this zone"),
        ("vCPU limit", "failed"),
        ("invalid IAM instance profile", "waiting for IAM"),
        ("Request limit exceeded.", "throttled"),
        ("You are not authorized", "refused"),
        ("Lifecycle Action", "to be replaced"),
        ("It failed.", "failed"),
    ],
)
def test_progress_says_what_is_waited_for(message: str, words: str) -> None:
    assert progress_of(failed(message, "You are not authorized"), GroupTarget("w", 3), 0) == f"0/3 ready, 3 {words}"
    assert progress_of(failed(), GroupTarget("w", 3), 0) == "0/3 ready, 3 waiting"


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0:00"), (0, "0:00"), (59.9, "0:59"), (60, "1:00"), (3661, "61:01")]
)
def test_time_left_is_minutes_and_seconds(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_another_zone_may_help_if_all_that_is_missing_is_the_zones() -> None:
    capacity, zone, other = (
        MissingMachines("w", 1, why, "") for why in (FailureKind.CAPACITY, FailureKind.ZONE, FailureKind.UNKNOWN)
    )
    assert elsewhere([capacity, zone]) and elsewhere([zone])
    assert not elsewhere([]) and not elsewhere([capacity, other])


@pytest.mark.parametrize(
    ("target", "policy", "enough"),
    [
        (GroupTarget("w", 5, 2), "at_least", 2),
        (GroupTarget("w", 2, 5), "at_least", 2),
        (GroupTarget("w", 5, 2), "best_effort", 0),
        (GroupTarget("w", 5, 2), "all_or_nothing", 5),
        (GroupTarget("w", 5, 2, essential=True), "best_effort", 5),
        (GroupTarget("w", 5, 2, essential=True), "at_least", 5),
        (GroupTarget("w", 5), "at_least", 0),
    ],
)
def test_how_many_are_enough(target: GroupTarget, policy: str, enough: int) -> None:
    assert target.enough(Policy(policy)) == enough


@pytest.mark.parametrize(
    ("status", "message", "is_failed", "is_running"),
    [
        ("Failed", "", True, False),
        ("Cancelled", "no capacity", True, False),
        ("Cancelled", "", False, False),
        ("Successful", "", False, False),
        ("WaitingForConnectionDraining", "", False, False),
        ("InProgress", "", False, True),
        ("PreInService", "", False, True),
    ],
)
def test_the_states_of_an_attempt(status: str, message: str, is_failed: bool, is_running: bool) -> None:
    attempt = LaunchAttempt(status, 0.0, message)
    assert (attempt.failed, attempt.is_running) == (is_failed, is_running)


@pytest.mark.parametrize(
    ("state", "healthy", "expected"),
    [
        ("InService", True, (True, False, False, False)),
        ("InService", False, (False, False, False, False)),
        ("Pending", True, (False, True, False, False)),
        ("Pending:Wait", True, (False, True, False, True)),
        ("Pending:Proceed", True, (False, True, False, False)),
        ("Terminating:Wait", True, (False, False, True, False)),
        ("Terminated", True, (False, False, True, False)),
        ("Standby", True, (False, False, False, False)),
    ],
)
def test_the_states_of_a_machine(state: str, healthy: bool, expected: tuple[bool, ...]) -> None:
    machine = GroupInstance("i-1", state, healthy)
    assert (machine.is_in_service, machine.is_pending, machine.is_ending, machine.is_held) == expected


def test_the_memory_of_a_wait() -> None:
    serving = [GroupInstance("i-1"), GroupInstance("i-2")]
    attempt = LaunchAttempt("Successful", 0.0, machine="i-2")
    first = remember(None, ScalingGroup("w", 3, serving, attempts=[attempt]), 10.0)
    # i-2 was launched by this run.
    assert first == WaitState(10.0, frozenset({"i-1"}), 2, 10.0, 10.0)
    same = remember(first, ScalingGroup("w", 3, serving), 20.0)
    assert same == first
    grown = remember(same, ScalingGroup("w", 3, [*serving, GroupInstance("i-3")]), 30.0)
    assert (grown.most, grown.progress, grown.before) == (3, 30.0, first.before)
    fewer = remember(grown, ScalingGroup("w", 3, serving), 40.0)
    assert (fewer.most, fewer.progress) == (3, 30.0)
    broken = remember(first, failed("x", machines=serving), 50.0)
    assert broken.progress == 50.0
    again = remember(broken, failed("x", "y", machines=serving), 60.0)
    assert again.progress == 50.0
    assert remember(NEW, ScalingGroup("w", 3, serving[:1]), 10.0).progress == 10.0


def held(number: int, count: int = 1) -> list[GroupInstance]:
    return [GroupInstance(f"i-{number + index}", "Pending:Wait") for index in range(count)]


def test_machines_are_stuck_after_some_seconds_with_this_bundle() -> None:
    setup = NodeSetup("failed", "efs_mount", ["no route"], "b", 100.0)
    setups = {"i-1": setup, "i-2": NodeSetup("failed", bundle="a"), "i-3": NodeSetup("configuring", bundle="b")}
    group = ScalingGroup("w", 4, [*held(1, 4)], setups={**setups, "i-9": setup})
    assert list(group.failed_setups) == ["i-1", "i-2"]
    assert group.stuck("b", 100 + STUCK_SECONDS) == ["i-1"]
    assert group.stuck("b", 99.9 + STUCK_SECONDS) == []
    assert group.outdated("b") == ["i-2"]
    serving = ScalingGroup("w", 4, [GroupInstance("i-1")], setups=setups)
    assert serving.failed_setups == {}


def test_each_missing_machine_takes_the_newest_reason_that_is_left() -> None:
    def counted(group: ScalingGroup, desired: int = 3) -> list[tuple[str, int, str]]:
        return [(item.why.value, item.count, item.message) for item in missing_of(group, GroupTarget("w", desired))]

    assert counted(failed("no Spot capacity", "vCPU limit", "not authorized"), 2) == [
        ("capacity", 1, "no Spot capacity"),
        ("unknown", 1, "vCPU limit"),
    ]
    # The last message applies to those that were not tried again.
    assert counted(failed("vCPU limit", "no Spot capacity"), 4) == [
        ("unknown", 3, "vCPU limit"),
        ("capacity", 1, "no Spot capacity"),
    ]
    assert counted(failed("Lifecycle Action abandoned"), 1) == [("setup", 1, "")]
    assert counted(failed(), 2) == [("late", 2, "AWS said nothing about it")]
    assert counted(ScalingGroup("w", 2, [GroupInstance("i-1", "Pending")]), 2) == [
        ("late", 2, "no launch of it had ended")
    ]
    assert counted(ScalingGroup("w", 2, [GroupInstance("i-1"), GroupInstance("i-2")]), 2) == []
    assert counted(ScalingGroup("w", 2, [GroupInstance("i-1"), GroupInstance("i-2")]), 1) == []


def test_the_machines_that_are_shown_with_their_logs() -> None:
    log = [f"line {number}" for number in range(MOST_LINES + 2)]
    failures = {f"i-{number}": NodeSetup("failed", "efs_mount", log, "b") for number in range(1, 6)}
    setups = {**failures, "i-6": NodeSetup("configuring", ""), "i-7": NodeSetup(log=["boot"])}
    group = ScalingGroup("w", 8, held(1, 8), setups=setups)
    setup, late = missing_of(group, GroupTarget("w", 8))
    assert (setup.why, setup.count, late.why, late.count) == (FailureKind.SETUP, 5, FailureKind.LATE, 3)
    shown = [line for line in setup.details if not line.startswith("    ")]
    assert shown == [f"i-{number}: efs_mount" for number in range(1, MOST_DETAILS + 1)]
    assert [line for line in setup.details if line.startswith("    ")][:MOST_LINES] == [
        f"    line {number}" for number in range(2, MOST_LINES + 2)
    ]
    assert list(late.details) == [
        "i-6: configuring",
        "i-7 has not reported. The end of its console:",
        "    boot",
    ]


def test_a_machine_of_which_nothing_is_known_hides_no_other() -> None:
    setups = {"i-2": NodeSetup("failed", "efs_mount"), "i-3": NodeSetup(log=["boot"])}
    lifecycle = LaunchAttempt("Cancelled", 0.0, "Lifecycle Action abandoned", machine="i-9")
    group = ScalingGroup("w", 4, held(1, 3), attempts=[lifecycle], setups=setups)
    setup, late = missing_of(group, GroupTarget("w", 4))
    assert list(setup.details) == ["i-2: efs_mount"]
    assert list(late.details) == ["i-3 has not reported. The end of its console:", "    boot"]
    unknown = replace(group, machines=held(1), setups={"i-9": NodeSetup("failed", "packages")})
    (setup, *_others) = missing_of(unknown, GroupTarget("w", 2))
    assert list(setup.details) == ["i-9: packages"]


def test_progress_of_machines_that_configure_themselves_names_the_slowest() -> None:
    setups = {
        "i-1": NodeSetup("configuring", "packages", reported=80.0),
        "i-2": NodeSetup("configuring", "efs_mount", reported=55.0),
        "i-3": NodeSetup("failed", "frameworks"),
        "i-4": NodeSetup("failed", ""),
        "i-5": NodeSetup(log=["boot"]),
    }
    group = ScalingGroup("w", 8, [*held(1, 5), GroupInstance("i-9")], setups=setups)
    assert progress_of(group, GroupTarget("w", 8), 100.0) == (
        "1/8 ready, 1 launching, 2 configuring (efs_mount, 0:40), 2 failed: frameworks, 2 waiting"
    )
    only = ScalingGroup("w", 1, held(4), setups=setups)
    assert progress_of(only, GroupTarget("w", 1), 100.0) == "0/1 ready, 1 failed"


NEW = WaitState(0.0)
BUSY = "Request limit exceeded."
RULES = WaitRules(Policy.AT_LEAST, deadline=600.0, settle=60.0, bundle="b")


@pytest.mark.parametrize(
    ("group", "state", "now", "verdict"),
    [
        # Transient failures are tried again some seconds after the last of them, or of our own request.
        (failed(BUSY), WaitState(0.0), 16.0, "request"),
        (failed(BUSY), WaitState(0.0), 15.9, "wait"),
        (failed(BUSY), WaitState(0.0, requested=5.0), 19.9, "wait"),
        (failed(BUSY), WaitState(0.0, requested=5.0), 20.0, "request"),
        (failed(BUSY, "no Spot capacity"), WaitState(0.0), 20.0, "wait"),
        # A profile that is not in effect for this long never will be.
        (failed("invalid IAM instance profile"), WaitState(0.0), 179.9, "request"),
        (failed("invalid IAM instance profile"), WaitState(0.0), 180.0, "failed"),
        (failed(BUSY, "invalid IAM instance profile"), WaitState(0.0), 180.0, "request"),
        (failed(), WaitState(0.0), 599.9, "request"),
        (failed(), WaitState(0.0), 600.0, "failed"),
        (failed("It failed."), WaitState(0.0, progress=10.0), 69.9, "wait"),
        (failed("It failed."), WaitState(0.0, progress=10.0), 70.0, "failed"),
        (failed("not authorized", "no Spot capacity"), WaitState(0.0), 1.0, "failed"),
        # Failures of machines that came later do not count.
        (failed(BUSY, "not authorized", machines=[GroupInstance("i-1"), GroupInstance("i-2")]), NEW, 1.0, "wait"),
        (
            failed("not authorized", BUSY, machines=[GroupInstance("i-1"), GroupInstance("i-2")]),
            NEW,
            1.0,
            "failed",
        ),
        (failed(BUSY, BUSY, BUSY, "not authorized"), WaitState(0.0), 1.0, "wait"),
    ],
)
def test_when_a_group_is_tried_again_or_given_up(
    group: ScalingGroup, state: WaitState, now: float, verdict: str
) -> None:
    assert judge(group, GroupTarget("w", 3, 1), state, RULES, now) is GroupVerdict(verdict)
