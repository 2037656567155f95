"""A cloud in this process for each test that asks: time stands still until told otherwise, and nothing boots."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator

import pytest
from botocore.loaders import Loader

from localcloud.api.front import EXTENSIONS
from localcloud.calls import CallLog
from localcloud.clock import ManualClock
from localcloud.cloud import Cloud
from localcloud.latency import Latency, latency_from

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
    for name in EXTENSIONS:
        importlib.import_module(f"localcloud.api.{name}")
    cloud = Cloud(clock, threading.RLock(), latency, CallLog())
    cloud._session._session.register_component("data_loader", MODELS)
    yield cloud
    cloud.close()
