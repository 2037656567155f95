"""Fixtures of pytest. Use them with `pytest_plugins = ["localcloud.testing.fixtures"]` in your conftest.py."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from localcloud.testing import booted
from localcloud.testing.account import Account
from localcloud.testing.clock import ManualClock
from localcloud.testing.facts import DEFAULT_REGION


@pytest.fixture
def aws_account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """An account in this process for one test. boto3 uses it. Its time passes by `aws_account.clock.advance` alone."""
    with Account(ManualClock(time.time())) as account:
        use_account(account, monkeypatch)
        monkeypatch.setenv("AWS_DEFAULT_REGION", DEFAULT_REGION)
        yield account


@pytest.fixture(scope="session")
def booted_cloud() -> Iterator[booted.Clients]:
    """The local cloud with booted machines, for all tests of the session. One that is up already stays up."""
    with booted.running() as clients:
        yield clients


def use_account(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let boto3 in this process use an account, for one test."""
    for name in ("AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in account.variables.items():
        monkeypatch.setenv(name, value)
