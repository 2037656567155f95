"""What AWS does to a run of provision.yml without anybody's fault: used up quotas, failed gateways, late reads."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.account.census import CLUSTER, WHOLE, census, prepare
from tests.account.kit import CLOUD_HALF, Ran
from tests.account.observed import Seen


def failed(account: Any) -> str:
    """The failure as users see it: its sentence, once, and at most five lines more."""
    users = account.environment | {"ANSIBLE_STDOUT_CALLBACK": "deeplearning.aws.short"}
    ran: Ran = replace(account, environment=users).play(CLOUD_HALF)
    assert ran.code == 2, ran.output[-4000:]
    after_changes = re.split(r"\n(?:changed: .*|  .* created +\d+:\d\d)\n", ran.output)[-1].split("\nPLAY RECAP")[0]
    lines = [line for line in after_changes.splitlines() if line.strip()]
    assert 1 < len(lines) <= 1 + 5, ran.output[-4000:]
    (sentence,) = (line for line in lines if line.startswith("fatal: [localhost]: "))
    assert ran.output.count(sentence.removeprefix("fatal: [localhost]: ")) == 1
    assert any(line.startswith("  still costs ") for line in lines), lines
    return " ".join(ran.output.split())


@pytest.mark.parametrize(
    ("action", "code", "message"),
    [
        ("ec2:CreateVpc", "VpcLimitExceeded", "The maximum number of VPCs has been reached."),
        pytest.param(
            *("ec2:AllocateAddress", "AddressLimitExceeded", "The maximum number of addresses has been reached."),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_used_up_quota_is_explained(account: Any, action: str, code: str, message: str) -> None:
    """Others have used it up since the plan was made."""
    prepare(account)
    account.cloud.faults.add("error", {"action": action}, value={"code": code, "message": message, "status": 400})
    output = failed(account)
    assert f"{action} failed: {message} ({code})" in output
    assert "request a higher limit in Service Quotas, and run the same command again." in output


@pytest.mark.long
def test_without_room_anywhere_it_reports_what_exists_and_what_that_costs(account: Any) -> None:
    account.wants("red", cluster_availability_zones=["us-east-1a"], provision_settle_seconds=1)
    account.cloud.faults.add("capacity", {"type": "t3.medium"}, value=1)
    ran = account.play(CLOUD_HALF)
    assert ran.code == 2
    assert "-e destroy=red" in ran.output and "NAT gateway" in ran.output
    assert "We currently do not have sufficient t3.medium capacity" in ran.output
    assert not Seen(account, region="us-east-1").instances()


@pytest.mark.long
def test_the_only_zone_has_no_efs_and_another_is_named(account: Any) -> None:
    """What the first try has left in its zone does not keep the second one there."""
    prepare(account)
    empty, ec2 = census(account), account.client("ec2")
    code, message = "UnsupportedAvailabilityZone", "Mount targets are not available in this availability zone"
    error = {"code": code, "message": message, "status": 400}
    account.cloud.faults.add("error", {"action": "efs:CreateMountTarget"}, value=error, left=2)
    account.settings["cluster_availability_zones"] = ["us-east-1a"]
    output = failed(account)
    assert "AWS has no EFS in the zone us-east-1a: name other zones with cluster_availability_zones." in output
    assert f"AWS says: elasticfilesystem:CreateMountTarget failed: {message} ({code})." in output

    account.settings["cluster_availability_zones"] = ["us-east-1b"]
    ran = account.play(CLOUD_HALF)
    assert ran.code == 0, ran.output[-4000:]
    assert census(account) - empty == WHOLE
    ours = ec2.describe_subnets(Filters=[{"Name": "tag:deeplearning:cluster", "Values": [CLUSTER]}])["Subnets"]
    assert {subnet["AvailabilityZone"] for subnet in ours} == {"us-east-1b"}


@pytest.mark.long
def test_a_nat_gateway_that_fails_is_replaced_by_the_next_run(account: Any) -> None:
    prepare(account)
    empty = census(account)
    fault = account.cloud.faults.add("fail-nat", {})
    output = failed(account)
    assert "is failed (" in output and "Run the playbook again: it creates another one." in output
    account.cloud.faults.remove(fault)
    ran = account.play(CLOUD_HALF)
    assert ran.code == 0, ran.output[-4000:]
    gateways = [gateway["State"] for gateway in account.client("ec2").describe_nat_gateways()["NatGateways"]]
    assert gateways.count("available") == 1 and set(gateways) == {"available", "failed"}
    assert census(account) - empty - WHOLE <= Counter({"NAT": len(gateways) - 1})
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
