"""An AWS account in this process, behind HTTP, for each test that asks: the local cloud's API, and no machines."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import botocore.loaders
import pytest

from localcloud.testing import account
from localcloud.testing.clock import ManualClock
from localcloud.testing.fixtures import use_account


@dataclass(frozen=True)
class Account:
    cloud: account.Account

    @property
    def endpoint(self) -> str:
        return self.cloud.endpoint

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to reach it as an administrator; set in this process already."""
        return dict(self.cloud.variables)

    def client(self, service: str, region: str = "us-east-1") -> Any:
        """Plain boto3, to set up and to check independently: it never sees a delayed state."""
        return self.cloud.client(service, region)

    def calls(self) -> list[str]:
        """What was called so far, as service:Operation."""
        return self.cloud.calls.operations()


@functools.cache
def _loader(data_path: str | None) -> botocore.loaders.Loader:
    """Reads AWS's service models once for all tests, and not once a session."""
    return _create_loader(data_path)


_create_loader = botocore.loaders.create_loader


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    monkeypatch.setattr("botocore.session.create_loader", _loader)
    with account.Account(ManualClock(time.time())) as cloud:
        use_account(cloud, monkeypatch)
        yield Account(cloud)
