"""An AWS account of its own for each test (see the kit)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.account.kit import Account, account_in


@pytest.fixture
def latency() -> str:
    return "none"


@pytest.fixture
def account(tmp_path: Path, latency: str) -> Iterator[Account]:
    with account_in(tmp_path, latency) as account:
        yield account
