"""An AWS account of its own for each test (see the kit), and booted machines for those that need them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.kit import Account, account_in
from tests.integration.machines import Cloud, cloud_in


@pytest.fixture
def latency() -> str:
    return "none"


@pytest.fixture
def account(tmp_path: Path, latency: str) -> Iterator[Account]:
    with account_in(tmp_path, latency) as account:
        yield account


@pytest.fixture(scope="session")
def cloud_with_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """For clusters of booted machines. Tests give each a name of its own: the local cloud may be others' as well."""
    with cloud_in(tmp_path_factory.mktemp("operator")) as cloud:
        yield cloud
