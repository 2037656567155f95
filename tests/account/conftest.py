"""An AWS account of its own for each test (see the kit)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.account.kit import Account, account_in
from tests.forking import ForkingPython


@pytest.fixture
def latency() -> str:
    return "none"


@pytest.fixture(scope="session")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkingPython]:
    with ForkingPython(tmp_path_factory.mktemp("forking")) as forking:
        yield forking


@pytest.fixture
def account(tmp_path: Path, latency: str, forking: ForkingPython) -> Iterator[Account]:
    with account_in(tmp_path, latency, forking) as account:
        yield account
