"""Scripts with the interface of the old systems run unchanged, by hand on the master: they read the workers file and
its variables, log in to each node, and find `python` on it, or `python3` by `mpirun -x PATH`. These scripts are the
test's; tests/published runs the old ones.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.integration.machines import Cluster
from tests.integration.old_scripts import SCRIPTS

MASTER = "deeplearning-master"


@pytest.fixture(scope="module")
def with_python(training_cluster: Cluster) -> Cluster:
    """Old scripts find `python` on the path with a default framework. It stays until the next configure.yml."""
    configured = training_cluster.play("playbooks/configure.yml", cluster_default_framework="tensorflow")
    assert configured.code == 0, configured.output[-4000:]
    return training_cluster


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_with_an_old_interface_runs_unchanged(with_python: Cluster, script: str) -> None:
    folder = f"mkdir -p $EFS_MOUNT/old/{script} && cd $EFS_MOUNT/old/{script}\n"
    done = with_python.ssh(MASTER, "bash -l", input=folder + textwrap.dedent(SCRIPTS[script]))
    sums = [line for line in done.stdout.splitlines() if line.startswith("the sum")]
    assert sums == ["the sum is 6"], done.stdout[-3000:] + done.stderr[-3000:]
