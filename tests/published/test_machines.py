"""Published programs on booted machines, unchanged, by the commands of their guides."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.digits import digits
from tests.integration.machines import Cluster
from tests.published.conftest import Sources
from tests.published.kit import FOLDER, MASTER, send
from tests.published.programs import (
    EXAMPLE,
    FIT,
    HEALTH_CHECK,
    LAUNCH,
    METADATA_SETUP,
    TRACKER,
    TRAIN_CIFAR10,
    TRAIN_MNIST,
)

pytestmark = pytest.mark.long

RECORD_FILES = Path(__file__).with_name("record_files.py")
HEADLINE = """
cd {folder}/mxnet/{example}
PYTHONPATH={folder}/dmlc-core/tracker timeout -k 5 300 ../../tools/launch.py -n $DEEPLEARNING_WORKERS_COUNT \\
    -H /opt/deeplearning/addresses python {command} --kv-store dist_sync --num-epochs 1 --disp-batches 2 \\
    --model-prefix $PWD/{name} < /dev/null 2>&1
ls {name}-*
"""
"""The guide's line, but for `-H` and the tracker: that of MXNet 1.9.1 calls what Python 3.9 removed."""
TRAININGS = {
    "cifar10": "train_cifar10.py --network resnet --num-layers 8 --num-examples 256 --batch-size 32",
    "mnist": "train_mnist.py --network mlp --num-examples 600 --batch-size 50",
}


@pytest.fixture(scope="module")
def lab(training_cluster: Cluster, sources: Sources, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The cluster with MXNet as its `python`, its examples on the file system, and data where they look for them."""
    for program in (LAUNCH, FIT, TRAIN_CIFAR10, TRAIN_MNIST, TRACKER):
        sources.file(program)
    configured = training_cluster.play("playbooks/configure.yml", cluster_default_framework="mxnet")
    assert configured.code == 0, configured.output[-4000:]
    send(training_cluster, sources.snapshot(LAUNCH.snapshot), ["tools/launch.py", EXAMPLE], f"{FOLDER}/mxnet")
    send(training_cluster, sources.snapshot(TRACKER.snapshot), ["tracker"], f"{FOLDER}/dmlc-core")
    data = tmp_path_factory.mktemp("data")
    for name, content in (digits("train", 600) | digits("t10k", 100)).items():
        (data / f"{name}.gz").write_bytes(gzip.compress(content))
    send(training_cluster, data, [file.name for file in data.iterdir()], f"{FOLDER}/mxnet/{EXAMPLE}/data")
    send(training_cluster, RECORD_FILES.parent, [RECORD_FILES.name], FOLDER)
    made = f"cd {FOLDER}/mxnet/{EXAMPLE} && python {FOLDER}/{RECORD_FILES.name}"
    assert training_cluster.ssh(MASTER, "bash -l", input=made).returncode == 0
    return training_cluster


@pytest.mark.parametrize("name", TRAININGS)
def test_the_headline_command_trains_on_all_nodes(lab: Cluster, name: str) -> None:
    line = HEADLINE.format(folder=FOLDER, example=EXAMPLE, command=TRAININGS[name], name=name)
    done = lab.ssh(MASTER, "bash -l", input=line)
    assert done.stdout.count("Train-accuracy=") == 3, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.count("Validation-accuracy=") == 3
    # As in the lab, each rank writes its own.
    for prefix in (name, f"{name}-1", f"{name}-2"):
        assert f"{prefix}-0001.params" in done.stdout.split() and f"{prefix}-symbol.json" in done.stdout.split()


def test_the_health_check_reaches_each_node(training_cluster: Cluster, sources: Sources) -> None:
    training_cluster.says(MASTER, "rm -f /efs/*-health.check")
    done = training_cluster.ssh(MASTER, "bash -l", input=sources.file(HEALTH_CHECK).read_text())
    assert done.returncode == 0, done.stderr
    touched = training_cluster.says(MASTER, "cd /efs && ls *-health.check").split()
    assert touched == [f"deeplearning-worker{rank}-health.check" for rank in (1, 2, 3)]


def test_metadata_setup_finds_what_the_nodes_of_emr_have(emr_cluster: Cluster, sources: Sources) -> None:
    file = "/home/hadoop/worker_ip_file"
    before = emr_cluster.says(MASTER, f"cat {file}")
    send(emr_cluster, sources.file(METADATA_SETUP).parent, ["metadata_setup.sh"], FOLDER)
    # As its users do, in a shell of a login: others leave Debian's .bashrc at its beginning.
    printed = emr_cluster.says(MASTER, f"bash -ic 'source {FOLDER}/metadata_setup.sh'").splitlines()
    assert printed[-4:] == ["2", file, "0", "Environment variables are set!"]
    assert emr_cluster.says(MASTER, f"cat {file}") == before
