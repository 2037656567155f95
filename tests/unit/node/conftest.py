"""What tests of runs share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from deeplearning.run import units
from deeplearning.run.folder import Folder

from tests.unit.node.runs_kit import CONFIG, create_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A run that has been created. Nothing is stopped by systemctl."""
    monkeypatch.setattr(units, "stop_attempt", Mock())
    return create_run(replace(CONFIG, efs_mount=str(tmp_path)))
