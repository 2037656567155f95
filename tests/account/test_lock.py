"""Two operators at once: one playbook changes a cluster at a time, and the other one waits, or says why it stops."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.account.census import CLUSTER, CONSENT, WHOLE, census, prepare
from tests.account.kit import CLOUD_HALF, REGION, Account
from tests.account.two_operators import Operator, two_operators

LONGEST_OFFSET = 25.0
"""Seconds between the starts of two playbooks. provision.yml takes a little longer."""
USUAL_SEEDS = (1, 2)
LONG_SEEDS = tuple(range(3, 11))
SEEDS = [*USUAL_SEEDS, *(pytest.param(seed, marks=pytest.mark.long) for seed in LONG_SEEDS)]


@pytest.fixture
def operators(account: Account, tmp_path: Path) -> tuple[Operator, Operator]:
    prepare(account)
    return two_operators(account, tmp_path)


def lock_of(account: Account) -> dict[str, Any]:
    s3 = account.client("s3")
    bucket = f"{CLUSTER}-123456789012-{REGION}"
    content: dict[str, Any] = json.loads(s3.get_object(Bucket=bucket, Key="lock.json")["Body"].read())
    return content


def offset(seed: int) -> float:
    return random.Random(seed).uniform(0.0, LONGEST_OFFSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_that_create_a_cluster_make_one_of_everything(
    account: Account, operators: tuple[Operator, Operator], seed: int
) -> None:
    empty = census(account)
    first, second = operators
    threads = [first.play(CLOUD_HALF), second.play(CLOUD_HALF, after=offset(seed))]
    for thread in threads:
        thread.join()

    outputs = f"{first.output[-6000:]}\n=== the second\n{second.output[-6000:]}"
    assert census(account) - empty == WHOLE, outputs
    assert (first.code, second.code) == (0, 0), outputs
    assert lock_of(account)["state"] == "free"


@pytest.mark.parametrize("seed", [*USUAL_SEEDS, 3, *(pytest.param(s, marks=pytest.mark.long) for s in range(4, 11))])
def test_one_that_creates_and_one_that_removes_leave_nothing_unseen(
    account: Account, operators: tuple[Operator, Operator], seed: int
) -> None:
    empty = census(account)
    creates, removes = operators
    threads = [creates.play(CLOUD_HALF), removes.play("destroy.yml", after=offset(seed), **CONSENT)]
    for thread in threads:
        thread.join()

    outputs = f"{creates.output[-6000:]}\n=== destroy\n{removes.output[-6000:]}"
    assert removes.code == 0, outputs
    if creates.code != 0:
        assert "destroy.yml" in creates.output or "was removed" in creates.output, outputs
    left = census(account) - empty
    # What is there after both have ended is a whole cluster, or nothing.
    expected = WHOLE if creates.code == 0 else {}
    assert left == expected, outputs
    again = account.play("destroy.yml", **CONSENT)
    assert again.code == 0, again.output[-4000:]
    assert census(account) == empty
