"""AWS refuses three of ten calls as too many: it takes longer, and nothing else comes of it."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from tests.account.census import KILLED, LIVING
from tests.account.kit import CLOUD_HALF

NAME = "c-slow"
RATE, SEED = 0.3, 3
TASKS = 30
"""After so many of its tasks provision.yml is ended: the rest calls AWS in the same ways."""
WORDS = {"RequestLimitExceeded", "Throttling", "ThrottlingException", "SlowDown"}


@pytest.fixture(autouse=True)
def settings(account: Any) -> None:
    account.wants(NAME)
    # Pauses between retries are as users have them.
    account.forking = None


def play(account: Any, playbooks: Any, *, code: int = 0, **extra: Any) -> Any:
    """It succeeds, though it was throttled as often as was asked for."""
    started = time.time()
    ran = account.play(playbooks, **extra)
    assert ran.code == code, ran.output[-6000:]
    results = Counter(call["result"] in WORDS for call in account.cloud.calls.since(started))
    assert 0.2 < results[True] / results.total() < 0.4, results
    return ran


def test_a_part_of_site_and_destroy_with_three_of_ten_calls_refused(account: Any) -> None:
    """The roles, the bucket and the VPC of a cluster are made, and removed."""
    account.cloud.faults.seed(SEED)
    account.cloud.faults.add("throttle", {}, value=RATE)
    ran = play(account, CLOUD_HALF, code=KILLED, kill_at_task=TASKS)
    assert "fatal: " not in ran.output and "Create the VPC" in ran.output, ran.output[-6000:]
    assert play(account, "destroy.yml", destroy=NAME).changed == 1


@pytest.mark.long
def test_site_and_destroy_with_three_of_ten_calls_refused(account: Any) -> None:
    account.cloud.faults.seed(SEED)
    account.cloud.faults.add("throttle", {}, value=RATE)
    assert "is ready: 2 of 2 machines in service" in play(account, CLOUD_HALF).output
    assert play(account, "destroy.yml", destroy=NAME, cluster_keep_efs=False).changed == 1


@pytest.mark.long
def test_an_emr_cluster_is_made_and_destroyed_with_three_of_ten_calls_refused(account: Any) -> None:
    for setting in ("cluster_image", "cluster_login_user"):
        del account.settings[setting]
    account.settings["cluster_instance_type"] = "m5.xlarge"
    account.cloud.faults.seed(SEED)
    account.cloud.faults.add("throttle", {}, value=RATE)
    play(account, CLOUD_HALF, emr=True, emr_poll_seconds=1)
    (cluster,) = account.client("emr").list_clusters()["Clusters"]
    assert (cluster["Name"], cluster["Status"]["State"]) == (NAME, "WAITING")
    assert play(account, "destroy.yml", destroy=NAME, cluster_keep_efs=False).changed == 1
    assert account.client("emr").list_clusters(ClusterStates=LIVING)["Clusters"] == []
