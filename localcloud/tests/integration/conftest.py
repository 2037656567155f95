"""A real local cloud, and small networks in it: plain boto3 and ssh, nothing of ours at the client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localcloud.testing.booted import (
    Clients,
    Network,
    command,
    environment,
    localcloud,
    new_network,
    traces,
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that bring a local cloud up and down go before those that share one."""
    items.sort(key=lambda item: "nothing_up" not in getattr(item, "fixturenames", ()))


@pytest.fixture
def nothing_up() -> Iterator[dict[str, object]]:
    """What this machine looks like without a local cloud; afterwards it looks like that again."""
    assert localcloud("status").returncode == 2, "a local cloud is up on this machine: end it with localcloud down"
    localcloud("down")
    before = traces()
    try:
        yield dict(before)
    finally:
        localcloud("down")
    assert traces() == before


@pytest.fixture(scope="session")
def cloud() -> Iterator[Clients]:
    """The local cloud, up for the whole session. One that is up already is not touched."""
    if localcloud("status").returncode == 0:
        pytest.fail("a local cloud is up on this machine: end it with localcloud down, then test again")
    started = localcloud("up", "--strict")
    assert started.returncode == 0, started.stderr
    try:
        yield Clients(environment())
    finally:
        ended = localcloud("down")
        assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key pair of the person who tests; its public half is registered as key pair `tester`."""
    path = tmp_path_factory.mktemp("keys") / "tester"
    command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))
    return path


@pytest.fixture
def network(cloud: Clients, key: Path) -> Iterator[Network]:
    """A network of the test's own."""
    with new_network(cloud, key) as made:
        yield made


@pytest.fixture(scope="module")
def shared_network(cloud: Clients, key: Path) -> Iterator[Network]:
    """A network for all tests of a file: each leaves it as it was."""
    with new_network(cloud, key) as made:
        yield made
