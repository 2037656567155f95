"""What holds for every test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.loader import init_plugin_loader

ROOT = Path(__file__).parent
LIMITED = ("tests/integration/", "tests/molecule/", "tests/published/")
pytest_plugins = ["tests.history"]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RootTests())
    # No test can reach the AWS account of the user who runs it: only what a test itself sets counts.
    for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"]:
        del os.environ[name]
    os.environ |= {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    # `import ansible_collections.deeplearning.aws…` and loaders by full name find this checkout.
    init_plugin_loader([str(ROOT / "collections")])


class RootTests:
    """Leave out the tests with the marker `root` if the user is not root, and count them in the summary."""

    def __init__(self) -> None:
        self.left_out = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if item.get_closest_marker("root")]
        if os.geteuid() == 0 or config.option.collectonly or not left_out:
            return
        items[:] = [item for item in items if not item.get_closest_marker("root")]
        config.hook.pytest_deselected(items=left_out)
        self.left_out = len(left_out)
        if hasattr(config, "workeroutput"):
            config.workeroutput["left_out"] = self.left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # Each worker of pytest-xdist collects all tests. One that crashed has no output.
        self.left_out = max(self.left_out, getattr(node, "workeroutput", {}).get("left_out", 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out:
            terminalreporter.write_line(f"{self.left_out} tests need root: not run")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("program"):
            is_installed = any(shutil.which(program) for program in marker.args)
            if not is_installed:
                # Only root can install it.
                item.add_marker("root")
    refused = os.geteuid() != 0 and not config.option.collectonly
    if refused and any(item.nodeid.startswith(LIMITED) for item in items):
        raise pytest.UsageError("tests on the local cloud boot machines: run them as root (sudo)")


def _fail_instead(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{reason}\nA skipped test proves nothing, so it counts as failed: supply what it needs."


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
