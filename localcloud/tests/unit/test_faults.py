"""Faults: whom they strike, how often, and how the parts of the service learn of them."""

from __future__ import annotations

from typing import Any

import pytest

from localcloud.api.services import BY_NAME
from localcloud.core.errors import AwsError
from localcloud.core.faults import Faults
from localcloud.testing.clock import ManualClock


@pytest.fixture
def faults(clock: ManualClock) -> Faults:
    return Faults(clock)


def refusals(faults: Faults, service: str, operation: str, calls: int) -> list[str]:
    """What came of so many calls: ok, or the code."""
    results = []
    for _ in range(calls):
        try:
            faults.refuse_call(service, operation, BY_NAME[service].throttled())
            results.append("ok")
        except AwsError as error:
            results.append(error.code)
    return results


@pytest.mark.parametrize(
    "target, what, strikes",
    [
        ({}, {"type": "t3.micro"}, True),
        ({"type": "t3.micro"}, {"type": "t3.micro"}, True),
        ({"type": "t3.*"}, {"type": "t3.micro"}, True),
        ({"type": "t?.micro"}, {"type": "t3.micro"}, True),
        ({"type": "t3.*"}, {"type": "t3a.micro"}, False),
        ({"type": "T3.*"}, {"type": "t3.micro"}, False),
        ({"type": "t3.*", "zone": "us-east-1a"}, {"type": "t3.micro", "zone": "us-east-1a"}, True),
        ({"type": "t3.*", "zone": "us-east-1a"}, {"type": "t3.micro", "zone": "us-east-1b"}, False),
        ({"zone": "us-east-1a"}, {"type": "t3.micro"}, True),  # the call names no zone
        ({"zone": "us-east-1a"}, {"zone": None}, False),
        ({"zone": "*"}, {"zone": None}, True),
    ],
)
def test_whom_a_fault_strikes(faults: Faults, target: dict[str, str], what: dict[str, Any], strikes: bool) -> None:
    fault = faults.add("capacity", target, 0)
    assert fault.strikes(**what) == strikes
    assert faults.of_kind("capacity", **what) == ([fault] if strikes else [])
    assert faults.of_kind("quota", **what) == []


def test_each_has_its_own_id_and_can_be_cleared_by_itself(faults: Faults) -> None:
    first, second = faults.add("cut", {"instance": "i-1"}), faults.add("cut", {"instance": "i-2"})
    assert [fault.id for fault in faults] == ["fault-1", "fault-2"]
    faults.remove(first)
    faults.remove(first)
    assert list(faults) == [second]
    for fault in faults:
        faults.remove(fault)
    assert list(faults) == []
    assert faults.add("cut", {}).id == "fault-3", "an id is never given twice"


def error(code: str) -> dict[str, Any]:
    return {"code": code, "message": "as asked", "status": 500}


def test_errors_by_action_and_count(faults: Faults) -> None:
    fault = faults.add("error", {"action": "ec2:Run*"}, error("InternalError"), left=2)
    assert refusals(faults, "ec2", "DescribeInstances", 2) == ["ok", "ok"]
    assert refusals(faults, "ec2", "RunInstances", 1) == ["InternalError"]
    assert fault.left == 1
    assert refusals(faults, "ec2", "RunInstances", 3) == ["InternalError", "ok", "ok"]
    assert list(faults) == [], "used up"


def test_an_error_without_a_count_stays(faults: Faults) -> None:
    faults.add("error", {}, error("Unavailable"))
    assert refusals(faults, "iam", "GetRole", 5) == ["Unavailable"] * 5


def test_errors_come_one_after_another(faults: Faults) -> None:
    faults.add("error", {}, error("First"), left=1)
    faults.add("error", {}, error("Second"), left=1)
    assert refusals(faults, "ec2", "RunInstances", 3) == ["First", "Second", "ok"]


def test_an_error_says_what_was_asked_for(faults: Faults) -> None:
    faults.add("error", {}, error("InternalError"))
    with pytest.raises(AwsError) as caught:
        faults.refuse_call("ec2", "RunInstances", AwsError("Throttling", "Rate exceeded"))
    assert (caught.value.code, caught.value.message, caught.value.status) == ("InternalError", "as asked", 500)


def test_throttling_strikes_a_share_of_calls_and_the_same_ones_again(faults: Faults, clock: ManualClock) -> None:
    faults.seed(7)
    faults.add("throttle", {"action": "ec2:*"}, 0.3)
    first = refusals(faults, "ec2", "DescribeInstances", 200)
    assert 40 < first.count("RequestLimitExceeded") < 80
    other = Faults(clock)
    other.seed(7)
    other.add("throttle", {"action": "ec2:*"}, 0.3)
    assert refusals(other, "ec2", "DescribeInstances", 200) == first
    other.seed(8)
    assert refusals(other, "ec2", "DescribeInstances", 200) != first
    assert refusals(faults, "iam", "GetRole", 50) == ["ok"] * 50


@pytest.mark.parametrize("rate, came", [(0.0, "ok"), (1.0, "Throttling")])
def test_all_calls_or_none(faults: Faults, rate: float, came: str) -> None:
    faults.add("throttle", {}, rate)
    assert set(refusals(faults, "autoscaling", "DescribeAutoScalingGroups", 50)) == {came}


@pytest.mark.parametrize(
    "service, code, status",
    [
        ("ec2", "RequestLimitExceeded", 503),
        ("s3", "SlowDown", 503),
        ("efs", "ThrottlingException", 400),
        ("ssm", "ThrottlingException", 400),
        ("service-quotas", "TooManyRequestsException", 400),
        ("autoscaling", "Throttling", 400),
        ("iam", "Throttling", 400),
        ("sts", "Throttling", 400),
    ],
)
def test_each_service_has_its_own_word_for_too_many(service: str, code: str, status: int) -> None:
    error = BY_NAME[service].throttled()
    assert (error.code, error.status) == (code, status)


def test_capacity_is_the_least_of_what_strikes_and_is_taken_and_given_back(faults: Faults) -> None:
    assert faults.capacity_left("t3.micro", "us-east-1a") is None
    faults.add("capacity", {"type": "t3.*"}, 5)
    faults.add("capacity", {"zone": "us-east-1a"}, 2)
    assert faults.capacity_left("t3.micro", "us-east-1a") == 2
    assert faults.capacity_left("t3.micro", "us-east-1b") == 5
    assert faults.capacity_left("m5.large", "us-east-1b") is None
    faults.take_capacity("t3.micro", "us-east-1a", 2)
    assert faults.capacity_left("t3.micro", "us-east-1a") == 0
    assert faults.capacity_left("t3.micro", "us-east-1b") == 3
    faults.take_capacity("t3.micro", "us-east-1a", -1)
    assert faults.capacity_left("t3.micro", "us-east-1a") == 1


def test_quotas_and_the_delay_of_policies(faults: Faults) -> None:
    assert (faults.quota("L-1"), faults.iam_delay()) == (None, None)
    faults.add("quota", {"code": "L-1"}, 8)
    faults.add("quota", {}, 16)
    faults.add("late-iam", {}, 5.0)
    faults.add("late-iam", {}, 30.0)
    assert (faults.quota("L-1"), faults.quota("L-2"), faults.iam_delay()) == (8, 16, 30.0)


def test_faults_may_be_cleared_during_an_iteration(faults: Faults) -> None:
    for _ in range(3):
        faults.add("cut", {})
    for fault in faults:
        faults.remove(fault)
    assert list(faults) == []
