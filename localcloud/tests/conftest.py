"""A cloud in this process for each test that asks: time stands still until a test advances it, and nothing boots.

A skipped test proves nothing, so it counts as failed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterator

import pytest
from botocore.loaders import Loader

import localcloud.api.services  # noqa: F401 - registers what the services answer
from localcloud.core.calls import CallLog
from localcloud.core.cloud import Cloud
from localcloud.core.latency import Latency, latency_from
from localcloud.testing.clock import ManualClock

MODELS = Loader()
"""The models of AWS's services, which take half of a test's time to read: read once for all."""


def pytest_configure() -> None:
    # No test can reach the AWS account of the user who runs it: only what a test itself sets counts.
    for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"]:
        del os.environ[name]
    os.environ |= {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    refused = os.geteuid() != 0 and not config.option.collectonly
    if refused and any(item.nodeid.startswith("tests/integration/") for item in items):
        raise pytest.UsageError("tests/integration boots machines: run it as root (sudo)")


def _fail_instead(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{reason}\nSkipped tests count as failed: supply what the test needs."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_instead(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_instead(report)
    return report


@pytest.fixture
def latency() -> Latency:
    """How long things take; a test that needs waiting overrides it."""
    return latency_from("none")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cloud(clock: ManualClock, latency: Latency) -> Iterator[Cloud]:
    cloud = Cloud(clock, threading.RLock(), latency, CallLog(), strict=True)
    cloud._session._session.register_component("data_loader", MODELS)
    yield cloud
    cloud.close()
