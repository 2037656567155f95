"""Published programs, out of snapshots of their repositories. docs/testing.md has the commands that bring these."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.clusters import (
    background,
    cloud_with_machines,
    emr_cluster,
    emr_creation,
    image,
    training_cluster,
)
from tests.published.programs import PROGRAMS, VARIABLE, Program, Snapshot
from tests.unit.node.members_kit import Cluster, cluster_in

__all__ = ["background", "cloud_with_machines", "emr_cluster", "emr_creation", "image", "training_cluster"]


class Sources:
    """A folder of snapshots, each of which is at the commit that the facts were taken of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def snapshot(self, snapshot: Snapshot) -> Path:
        folder = self.folder / snapshot.folder
        words = ["git", "-c", "safe.directory=*", "-C", folder, "rev-parse", "--show-toplevel", "HEAD"]
        asked = subprocess.run(words, capture_output=True, text=True, check=False)
        if asked.stdout.split() != [str(folder.resolve()), snapshot.commit]:
            pytest.fail(
                f"{folder} is not {snapshot.repository} at {snapshot.commit[:8]}: docs/testing.md has the commands",
                pytrace=False,
            )
        return folder

    def file(self, program: Program) -> Path:
        file = self.snapshot(program.snapshot) / program.path
        content = file.read_bytes() if file.is_file() else b""
        if hashlib.sha256(content).hexdigest() != program.sha256:
            pytest.fail(f"{file} is not the published one: its SHA-256 differs", pytrace=False)
        return file


@pytest.fixture(scope="session")
def sources() -> Sources:
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.fail(f"{VARIABLE} names no folder of snapshots: docs/testing.md has the commands", pytrace=False)
    return Sources(Path(folder).resolve())


@pytest.fixture(params=PROGRAMS, ids=lambda program: f"{program.snapshot.folder}/{program.path}")
def program(request: pytest.FixtureRequest) -> Program:
    return request.param


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Nodes in folders: a master and a worker with 8 GPUs each, whose files and variables are those of real nodes."""
    cluster = cluster_in(tmp_path, monkeypatch)
    cluster.workers(2)
    return cluster
