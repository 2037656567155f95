"""A newer version of the collection takes over a cluster whose run goes on: docs/upgrading.md, on booted machines.

The newer version is this one with another pin file of PyTorch and another node program, in a folder of its own.
"""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.account.kit import ROOT
from tests.integration.healing import start_training
from tests.integration.machines import Cloud, Cluster, Played
from tests.integration.runs import MASTER, Runs

MARKER = "cat /opt/deeplearning/env/pytorch/.deeplearning.json"
CHANGED = {
    "roles/framework/files/pytorch/requirements-cpu.txt": "# The newer version's.\n",
    "files/node/deeplearning/cli.py": "# The newer version's.\n",
}
"""What the newer version has at the end of these files."""
PROGRAM = "/opt/deeplearning/lib/deeplearning/cli.py"


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """Return a checkout of the newer version."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name, follow_symlinks=False)
    for name, more in CHANGED.items():
        with (tmp_path / name).open("a", encoding="utf-8") as file:
            file.write(more)
    return tmp_path


def played(cluster: Cluster, *words: str, **extra: object) -> Played:
    done = cluster.play(*words, **extra)
    assert done.code == 0, done.output[-6000:]
    return done


@pytest.mark.long
def test_a_run_goes_on_while_a_newer_version_takes_over(cloud_with_machines: Cloud, image: str, newer: Path) -> None:
    # As a person has it: no program that has imported the older version.
    cloud = replace(cloud_with_machines, forking=None)
    with cloud.cluster(
        f"u-{secrets.token_hex(3)}", image=image, worker_count=1, default_framework="pytorch"
    ) as cluster:
        played(cluster, "site.yml")
        runs = Runs(cluster)
        run_id = start_training(runs, "--epochs", "1000", nodes=2)
        runs.running(run_id)
        before = cluster.says(MASTER, MARKER)

        newer_one = replace(cluster, root=newer)
        taken_over = played(newer_one, "site.yml").output
        assert "The environment of pytorch stays as it is" in taken_over and f"because {run_id} uses it" in taken_over
        assert "is healthy: 2 nodes" in taken_over, taken_over[-6000:]
        for node in (MASTER, "deeplearning-worker2"):
            assert cluster.says(node, f"tail -n 1 {PROGRAM}") == CHANGED["files/node/deeplearning/cli.py"].strip()
            assert cluster.says(node, MARKER) == before
        assert runs.show(run_id)["state"] == "running"
        assert "another bundle" not in played(newer_one, "status.yml").output

        # The run obeys the newer version, was never interrupted before, and continues in the newer environment.
        played(newer_one, "stop.yml", run_id=run_id)
        assert runs.causes(run_id) == ["stopped"]
        saved = re.findall(r"epoch-(\d+)", cluster.says(MASTER, f"ls {runs.root}/{run_id}/checkpoints"))
        epochs = max(map(int, saved)) + 2
        resumed = played(newer_one, "train.yml", resume=run_id, script_args=["--epochs", str(epochs)])
        assert re.search(rf"run {run_id} has finished", resumed.output), resumed.output[-6000:]
        assert cluster.says(MASTER, MARKER) != before
