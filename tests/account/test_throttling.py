"""AWS refuses three of ten calls as too many: it takes longer, and nothing else comes of it."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from tests.account.fleet import ACCOUNT
from tests.account.kit import CLOUD_HALF, REGION, ROLE_PLAY

NAME = "c-slow"
BUCKET = f"{NAME}-{ACCOUNT}-{REGION}"
RATE, SEED = 0.3, 3
ROLES = (
    ROLE_PLAY
    + f"""\
    - ansible.builtin.import_role:
        name: deeplearning.aws.iam
      vars: {{iam_cluster: {NAME}, iam_region: {REGION}, iam_account: "{ACCOUNT}", iam_bucket: {BUCKET}}}
    - ansible.builtin.import_role:
        name: deeplearning.aws.bucket
      vars: {{bucket_cluster: {NAME}, bucket_name: {BUCKET}, bucket_account: "{ACCOUNT}"}}
"""
)
WORDS = {"RequestLimitExceeded", "Throttling", "ThrottlingException", "SlowDown"}


@pytest.fixture(autouse=True)
def settings(account: Any) -> None:
    account.wants(NAME)


def play(account: Any, playbooks: Any, **extra: Any) -> Any:
    """It succeeds, though it was throttled as often as was asked for."""
    started = time.time()
    ran = account.play(playbooks, **extra)
    assert ran.code == 0, ran.output[-6000:]
    results = Counter(call["result"] in WORDS for call in account.cloud.calls.since(started))
    assert 0.2 < results[True] / results.total() < 0.4, results
    return ran


def test_roles_and_destroy_with_three_of_ten_calls_refused(account: Any) -> None:
    (account.folder / "roles.yml").write_text(ROLES, encoding="utf-8")
    account.cloud.faults.seed(SEED)
    account.cloud.faults.add("throttle", {}, value=RATE)
    assert play(account, str(account.folder / "roles.yml")).changed > 0
    assert play(account, "destroy.yml", destroy=NAME).changed == 1


@pytest.mark.long
def test_site_and_destroy_with_three_of_ten_calls_refused(account: Any) -> None:
    account.cloud.faults.seed(SEED)
    account.cloud.faults.add("throttle", {}, value=RATE)
    assert "is ready: 2 of 2 machines in service" in play(account, CLOUD_HALF).output
    assert play(account, "destroy.yml", destroy=NAME, cluster_keep_efs=False).changed == 1
