"""What AWS does to a run of provision.yml without anybody's fault: used up quotas, failed gateways, late reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.account.kit import CLOUD_HALF, Ran
from tests.account.test_interruption import WHOLE, census, prepare

VPCS, ADDRESSES = "L-F678F1CE", "L-0263D0A3"


def failed(account: Any) -> str:
    ran: Ran = account.play(CLOUD_HALF)
    assert ran.code == 2, ran.output[-4000:]
    return " ".join(ran.output.split())


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (VPCS, "ec2:CreateVpc failed: The maximum number of VPCs has been reached. (VpcLimitExceeded)"),
        pytest.param(
            ADDRESSES,
            "ec2:AllocateAddress failed: The maximum number of addresses has been reached. (Addr",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_used_up_quota_is_explained(account: Any, code: str, sentence: str) -> None:
    prepare(account)
    account.cloud.faults.add("quota", {"code": code}, value=1)
    output = failed(account)
    assert sentence in output
    assert "request a higher limit in Service Quotas, and run the same command again." in output


@pytest.mark.long
def test_a_nat_gateway_that_fails_is_replaced_by_the_next_run(account: Any) -> None:
    prepare(account)
    empty = census(account)
    account.cloud.faults.add("fail-nat", {}, left=1)
    output = failed(account)
    assert "is failed (" in output and "Run the playbook again: it creates another one." in output
    ran = account.play(CLOUD_HALF)
    assert ran.code == 0, ran.output[-4000:]
    gateways = [one["State"] for one in account.client("ec2").describe_nat_gateways()["NatGateways"]]
    assert sorted(gateways) == ["available", "failed"]
    assert census(account) - empty - WHOLE <= Counter({"NAT": 1})
    ran = account.play(CLOUD_HALF)
    assert (ran.code, ran.changed) == (0, 0)


@pytest.mark.long
def test_an_instance_profile_that_takes_effect_late_is_waited_for(account: Any) -> None:
    prepare(account)
    account.forking = None
    account.cloud.faults.add("late-iam", {}, 150.0)
    ran = account.play(CLOUD_HALF)
    assert ran.code == 0, ran.output[-4000:]
    refused = [call for call in account.cloud.calls.since() if call["operation"] == "CreateAutoScalingGroup"]
    assert len(refused) > 2


@pytest.mark.long
@pytest.mark.parametrize("seconds", [2.0, 6.0])
def test_reads_that_lag_behind_writes_double_nothing(account: Any, seconds: float) -> None:
    prepare(account)
    empty = census(account)
    account.forking = None
    fault = account.cloud.faults.add("late-reads", {}, seconds)
    ran = account.play(CLOUD_HALF)
    assert ran.code == 0, ran.output[-4000:]
    account.cloud.faults.remove(fault)
    assert census(account) - empty == WHOLE
    ran = account.play(CLOUD_HALF)
    assert (ran.code, ran.changed) == (0, 0)
