"""An EC2 to ask, machines that only record their calls, and the API over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localcloud.core.cloud import Cloud
from localcloud.endpoint.front import Front
from localcloud.endpoint.server import HttpServer
from localcloud.testing.clock import ManualClock
from localcloud_kits.ec2_kit import Ec2, Recorder
from localcloud_kits.rules_kit import Aws
from localcloud_kits.server_kit import Swapped


@pytest.fixture
def machines(cloud: Cloud) -> Recorder:
    cloud.machines = Recorder()
    return cloud.machines


@pytest.fixture
def ec2(cloud: Cloud, clock: ManualClock, machines: Recorder) -> Ec2:
    return Ec2(cloud, clock)


@pytest.fixture(scope="session")
def http() -> Iterator[tuple[Swapped, int]]:
    app = Swapped()
    server = HttpServer(app, "127.0.0.1", 0)
    server.start()
    yield app, server.port
    server.stop()


@pytest.fixture
def aws(cloud: Cloud, http: tuple[Swapped, int]) -> Aws:
    """The API over HTTP. Clients sign with the time that it really is: give the clock that, too."""
    app, port = http
    app.front = Front(cloud)
    return Aws(cloud, port)
