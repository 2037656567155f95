"""What tests of runs share."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deeplearning.run import units
from deeplearning.run.folder import Folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A run that has been created. Nothing is stopped by systemctl."""
    monkeypatch.setattr(units, "stop_attempt", Mock())
    path = tmp_path / "runs" / "c" / "r1"
    for name in ("logs", "metrics", "attempts", "checkpoints"):
        (path / name).mkdir(parents=True)
    folder = Folder(str(path))
    record: dict[str, Any] = {"framework": "tensorflow", "distribution": "parameter_server", "data": "", "nodes": None}
    record |= {"script": "/efs/x/train.py", "script_args": ["{job_name}"], "python": "/p/bin/python"}
    record |= {"processes_per_node": None, "servers": 1, "max_restarts": 3, "busy": "wait"}
    record |= {"asked_at": "2026-01-01T00:00:00Z", "asked_by": "me"}
    folder.write("run.json", record)
    return folder
