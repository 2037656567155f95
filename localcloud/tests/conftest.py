"""A cloud in this process for each test that asks: time stands still until a test advances it, and nothing boots."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from botocore.loaders import Loader

import localcloud.api.services  # noqa: F401 - registers what the services answer
from localcloud.core.calls import CallLog
from localcloud.core.cloud import Cloud
from localcloud.core.latency import Latency, latency_from
from localcloud.tests.clock import ManualClock

MODELS = Loader()
"""The models of AWS's services, which take half of a test's time to read: read once for all."""


@pytest.fixture
def latency() -> Latency:
    """How long things take; a test that needs waiting overrides it."""
    return latency_from("none")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cloud(clock: ManualClock, latency: Latency) -> Iterator[Cloud]:
    cloud = Cloud(clock, threading.RLock(), latency, CallLog())
    cloud._session._session.register_component("data_loader", MODELS)
    yield cloud
    cloud.close()
