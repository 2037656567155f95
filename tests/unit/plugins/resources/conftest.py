"""The module file_system, and a place for its file systems."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.modules import run_module
from tests.unit.plugins.resources.file_system_kit import Place, Run


@pytest.fixture
def run(aws: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The cloud's time stands still; waiting is what makes it pass."""

    def passes(seconds: float) -> None:
        with aws.cloud.lock:
            aws.cloud.clock.advance(seconds)

    monkeypatch.setattr("ansible_collections.deeplearning.aws.plugins.module_utils.aws.polling.sleep", passes)

    def call(**arguments: Any) -> dict[str, Any]:
        return run_module(capsys, "file_system", **arguments)

    return call


@pytest.fixture
def place(aws: Any) -> Place:
    return Place(aws)
