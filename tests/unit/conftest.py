"""An AWS account in this process, behind HTTP, for each test that asks: the local cloud's API, and no machines."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import botocore.loaders
import pytest
from botocore.config import Config

from localcloud.api.iam.identities import bootstrap
from localcloud.core.calls import CallLog
from localcloud.core.cloud import Cloud
from localcloud.core.latency import latency_from
from localcloud.core.lateness import OBSERVER
from localcloud.endpoint.front import Front
from localcloud.endpoint.server import HttpServer
from localcloud.testing.clock import ManualClock


@dataclass(frozen=True)
class Account:
    cloud: Cloud
    endpoint: str
    environment: dict[str, str]
    """what a program needs to reach it as an administrator; set in this process already"""

    def client(self, service: str, region: str = "us-east-1") -> Any:
        """Plain boto3, to set up and to check independently: it never sees a delayed state."""
        return boto3.Session(
            self.environment["AWS_ACCESS_KEY_ID"], self.environment["AWS_SECRET_ACCESS_KEY"], region_name=region
        ).client(service, endpoint_url=self.endpoint, config=Config(user_agent_appid=OBSERVER))

    def calls(self) -> list[str]:
        """What was called so far, as service:Operation."""
        return [f"{record['service']}:{record['operation']}" for record in self.cloud.calls.since()]


def _keep_inside(cloud: Cloud) -> None:
    """The cloud asks moto through boto3 too, in this same process: not by way of its own server, which would never
    answer."""
    inner = cloud._session.client
    aside = Config(ignore_configured_endpoint_urls=True)
    cloud._session.client = lambda *args, config, **more: inner(*args, config=config.merge(aside), **more)


@functools.cache
def _loader(data_path: str | None) -> botocore.loaders.Loader:
    """Reads AWS's service models once for all tests, and not once a session."""
    return _create_loader(data_path)


_create_loader = botocore.loaders.create_loader


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    # moto sets these to what it likes and puts back what it has found: then pytest takes that away.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "nothing")
    monkeypatch.setattr("botocore.session.create_loader", _loader)
    cloud = Cloud(ManualClock(time.time()), threading.RLock(), latency_from("none"), CallLog(), strict=True)
    _keep_inside(cloud)
    server = HttpServer(Front(cloud), "127.0.0.1", 0)
    server.start()
    key, secret = bootstrap(cloud)
    endpoint = f"http://127.0.0.1:{server.port}"
    environment = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    for name in ("AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    yield Account(cloud, endpoint, environment)
    # It takes half a second to notice, which tests need not wait for.
    threading.Thread(target=server.stop, daemon=True).start()
    cloud.close()
