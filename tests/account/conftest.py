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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--late-reads", type=float, metavar="SECONDS", help="let playbooks read what they create late")


@pytest.fixture(scope="session")
def late_reads(pytestconfig: pytest.Config) -> float | None:
    seconds: float | None = pytestconfig.getoption("late_reads", None)
    return seconds


@pytest.fixture(scope="session")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkingPython]:
    with ForkingPython(tmp_path_factory.mktemp("forking")) as forking:
        yield forking


@pytest.fixture
def account(tmp_path: Path, latency: str, late_reads: float | None, forking: ForkingPython) -> Iterator[Account]:
    with account_in(tmp_path, latency, late_reads, forking) as account:
        yield account
