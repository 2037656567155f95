"""run.sh of 2019 and of 2018 on booted machines, by conda's path. With the program of ours in the example's place all
nodes train; the example as published ends where docs/from-the-old-scripts.md says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.integration.machines import Cluster
from tests.published.conftest import Sources
from tests.published.kit import FOLDER, MASTER, send
from tests.published.pages import conda_links, example_changes
from tests.published.programs import FASTER_RCNN, FIRST_RUN, RUN, Program

pytestmark = pytest.mark.long

EXAMPLE = "/efs/data/tensorpack/examples/FasterRCNN"
SUM = """
import socket, sys
import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init()
total = hvd.allreduce(tf.constant(hvd.rank() + 1.0), op=hvd.Sum)
print(f"rank {hvd.rank()} of {hvd.size()} on {socket.gethostname()}: {float(total)} {sys.argv[1:]}\\n", end="")
"""
COCO = """
cd $EFS_MOUNT/data
python3 /opt/deeplearning/trainers/generate.py coco2017 --format coco --train 8 --test 4
mkdir coco2017/pretrained-models
python3 -c 'import numpy; numpy.savez("coco2017/pretrained-models/ImageNet-R50-AlignPadding.npz", none=0)'
"""
REMOVE = (
    "cd $EFS_MOUNT && find data -maxdepth 1 -type l -delete && rm -rf data/coco2017 data/tensorpack mask-rcnn-coco-*"
)


@pytest.fixture(scope="module")
def lab(training_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with TensorPack as its `python3`, and the page's links on each node."""
    configured = training_cluster.play("playbooks/configure.yml", cluster_default_framework="tensorpack")
    assert configured.code == 0, configured.output[-4000:]
    linked = training_cluster.ssh(MASTER, "bash -l", input=f"set -e\n{conda_links()}")
    assert linked.returncode == 0, linked.stderr
    yield training_cluster
    training_cluster.says(MASTER, f"bash -lc '{REMOVE}'")


def run(lab: Cluster, sources: Sources, program: Program, *variables: str) -> str:
    """Run it from the home, as its guide does, with one process on a node: without GPUs it would start eight."""
    send(lab, sources.file(program).parent, ["run.sh"], FOLDER)
    line = " ".join([*variables, "DEEPLEARNING_WORKER_GPU_COUNT=1", f"bash {FOLDER}/run.sh < /dev/null 2>&1"])
    return lab.ssh(MASTER, "bash -l", input=line, timeout=500).stdout


@pytest.mark.parametrize("program", [RUN, FIRST_RUN], ids=["2019", "2018"])
def test_one_process_on_each_node_trains_with_horovod(lab: Cluster, sources: Sources, program: Program) -> None:
    lab.says(MASTER, f"rm -rf /efs/mask-rcnn-coco-* && mkdir -p {EXAMPLE}")
    assert lab.ssh(MASTER, f"cat > {EXAMPLE}/train.py", input=SUM).returncode == 0
    printed = run(lab, sources, program)
    ranks = re.findall(
        r"^rank (\d) of 3 on (\S+): 6\.0 \['--logdir', '(/efs/mask-rcnn-coco-3-efs-\S+)/train_log", printed, re.M
    )
    assert sorted(rank for rank, _host, _logs in ranks) == ["0", "1", "2"], printed[-4000:]
    assert len({host for _rank, host, _logs in ranks}) == 3
    assert printed.count("'TRAINER=horovod']") == 3
    # It says that it does not train on an odd number of nodes, and does.
    assert "must be 1 or even" in printed
    files = lab.says(MASTER, f"grep -l 'of 3 on' {ranks[0][2]}/1/rank.*/stdout").split()
    assert len(files) == 3


@pytest.fixture(scope="module")
def coco(lab: Cluster) -> Cluster:
    assert lab.ssh(MASTER, "bash -l", input=f"set -e\n{COCO}").returncode == 0
    return lab


@pytest.mark.parametrize(
    ("program", "changed", "end"),
    [
        (RUN, False, "AttributeError: module 'tensorflow' has no attribute 'global_variables'"),
        (RUN, True, "AssertionError: [GPUUtilizationTracker] needs GPU!"),
        (FIRST_RUN, True, "NameError: name 'val2017' is not defined"),
    ],
    ids=["published", "changed", "2018"],
)
def test_the_published_example_ends_where_the_page_says(
    coco: Cluster, sources: Sources, program: Program, changed: bool, end: str
) -> None:
    """On one node: there are no GPUs, and three of these would not fit."""
    send(coco, sources.file(FASTER_RCNN).parents[2], ["examples/FasterRCNN"], "/efs/data/tensorpack")
    commands = example_changes() if changed else example_changes().splitlines()[0]
    assert coco.ssh(MASTER, "bash -l", input=f"set -e\n{commands}").returncode == 0
    printed = run(coco, sources, program, "DEEPLEARNING_WORKERS_COUNT=1")
    assert end in printed.splitlines(), printed[-4000:]
