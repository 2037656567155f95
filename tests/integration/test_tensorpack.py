"""TensorPack and Horovod on a master and two workers: the recipe's command on every rank, what ranks exchange, a
detector, and a wheel that is built for all."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.paths import NVIDIA_DRIVER

from localcloud.testing.gpus import STATE
from tests.fasterrcnn import PROGRAM
from tests.integration.machines import Cluster
from tests.integration.runs import MASTER, NODES, PYTHON, Runs
from tests.nvml import Gpus
from tools.recipe_docs import ONE_NODE, documented

ROOT = Path(__file__).resolve().parents[2]
TRAINERS = "/opt/deeplearning/trainers"
EXAMPLE = "/efs/data/tensorpack/examples/FasterRCNN"
DRIVERS = "/proc/driver"
# In place of the example's own: it records how it was started.
STAND_IN = """
import json, os, sys
options = {"argv": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ)}
with open(f"{os.environ['DEEPLEARNING_RUN_DIR']}/options{os.environ['DEEPLEARNING_RANK']}.json", "w") as file:
    json.dump(options, file)
"""
# An example as TensorPack's own are: only the recipe's front lets its trainer find in TensorFlow 2 what it looks for.
# The gradient of a weight times x is x, whatever the weight is: each step takes off the mean of all ranks' x. Weights
# are not broadcast after the start: nothing but gradients can make them alike.
AVERAGES = """
import json, os
import horovod.tensorflow as hvd
import tensorflow
from tensorpack import *

tf = tensorflow.compat.v1
weights = []


class Line(ModelDesc):
    def inputs(self):
        return [tf.TensorSpec((), tf.float32, "x")]

    def build_graph(self, x):
        return tf.get_variable("weight", (), initializer=tf.zeros_initializer()) * x

    def optimizer(self):
        return tf.train.GradientDescentOptimizer(1.0)


class Watch(Callback):
    _chief_only = False

    def _setup_graph(self):
        self.weight = next(variable for variable in tf.global_variables() if variable.name == "weight:0")

    def _trigger_step(self):
        weights.append(float(self.trainer.sess.run(self.weight)))


trainer = HorovodTrainer()
trainer.BROADCAST_EVERY_EPOCH = False
# In the second step rank 1 has other data than the rest.
data = [[1.0], [301.0 if hvd.rank() == 1 else 1.0]]
config = TrainConfig(
    model=Line(),
    data=QueueInput(DataFromList(data, shuffle=False)),
    callbacks=[Watch()],
    extra_callbacks=[],
    monitors=[],
    steps_per_epoch=2,
    max_epoch=1,
)
launch_train_with_config(config, trainer)
with open(f"{os.environ['DEEPLEARNING_RUN_DIR']}/weights{hvd.rank()}.json", "w") as file:
    json.dump(weights, file)
"""

# Leave the environment as on a machine that configured itself when there was no wheel.
WITHOUT_HOROVOD = """
import json, subprocess
from pathlib import Path

environment = Path("/opt/deeplearning/env/tensorpack")
subprocess.run([environment / "bin/python", "-m", "pip", "uninstall", "--quiet", "--yes", "horovod"], check=True)
marker = environment / ".deeplearning.json"
record = json.loads(marker.read_text())
del record["versions"]["horovod"]
(environment / ".deeplearning-unfinished.json").write_text(json.dumps(record))
marker.unlink()
"""


@pytest.fixture(scope="module")
def runs(training_cluster: Cluster) -> Runs:
    return Runs(training_cluster)


@pytest.fixture
def eight_gpus(training_cluster: Cluster, tmp_path: Path) -> Iterator[None]:
    """Pretended, on each node, as far as runs look for them. Reports would say that machines have changed."""
    gpus = Gpus(tmp_path)
    gpus.set(count=8)
    library = f"/usr/lib/{gpus.library.name}"
    for node in NODES:
        write = f"sudo mkdir -p /etc/localcloud && base64 -d | sudo tee {library} > /dev/null"
        line = f"sudo systemctl stop deeplearning-report.timer && {write}"
        content = base64.b64encode(gpus.library.read_bytes()).decode()
        assert training_cluster.ssh(node, line, input=content).returncode == 0
        state = gpus.file.read_text(encoding="utf-8")
        assert training_cluster.ssh(node, f"sudo tee {STATE}", input=state).returncode == 0
        driver = f"sudo install -D /dev/null {NVIDIA_DRIVER}"
        training_cluster.says(node, f"sudo mount -t tmpfs driver {DRIVERS} && {driver}")
    yield
    for node in NODES:
        removed = f"sudo umount {DRIVERS} && sudo rm {library} {STATE}"
        training_cluster.says(node, f"{removed} && sudo systemctl start deeplearning-report.timer")


def printed(cluster: Cluster, run: str, name: str, count: int) -> list[dict[str, Any]]:
    """What each rank has written down."""
    output = cluster.says(
        MASTER, f"cd /efs/runs/{cluster.name}/{run} && for n in $(seq 0 {count - 1}); do cat {name}$n.json; echo; done"
    )
    return [json.loads(line) for line in output.splitlines() if line]


def test_the_recipe_starts_the_documented_command_on_every_rank(training_cluster: Cluster, eight_gpus: None) -> None:
    cluster = training_cluster
    cluster.says(
        MASTER,
        f"sudo mkdir -p -m 1777 /efs/data && mkdir -p /efs/data/coco2017 {EXAMPLE} && touch /efs/data/coco2017/1.jpg",
    )
    assert cluster.ssh(MASTER, f"cat > {EXAMPLE}/train.py", input=STAND_IN).returncode == 0
    ran = cluster.play("train.yml", recipe="maskrcnn", run_id="recipe", sweep=[1, 2], python=PYTHON)
    assert ran.code == 0, ran.output[-6000:]
    words, expected = documented(ONE_NODE)
    for nodes, steps in ((1, 15000), (2, 7500)):
        run, world = f"recipe-{nodes}", 8 * nodes
        names = {
            "$RUN": f"/efs/runs/{cluster.name}/{run}",
            "$DATA": "/efs/data/coco2017",
            "EPOCH=15000": f"EPOCH={steps}",
        }
        command = [f"{EXAMPLE}/train.py", *words]
        for name, value in names.items():
            command = [word.replace(name, value) for word in command]
        for rank, process in enumerate(printed(cluster, run, "options", world)):
            variables = process["environment"]
            assert [word.replace("/coco2017/../", "/") for word in process["argv"]] == command
            assert process["folder"] == EXAMPLE
            assert {name: variables[name] for name in expected} == {
                **expected,
                "NCCL_SOCKET_IFNAME": f"={variables['GLOO_SOCKET_IFNAME']}",
            }
            places = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
            assert [int(variables[name]) for name in places] == [rank, world, rank % 8]
            assert variables["GLOO_SOCKET_IFNAME"] not in ("", "lo", "docker0")
            assert "TF_USE_LEGACY_KERAS" not in variables


def test_gradients_are_averaged_so_that_one_ranks_data_changes_all_ranks_weights_alike(runs: Runs) -> None:
    runs.cluster.ssh(MASTER, "mkdir -p /efs/averages && cat > /efs/averages/train.py", input=AVERAGES)
    options = {"framework": "tensorpack", "python": None, "data": "/efs/averages", "nodes": 2}
    run_id = runs.start(f"{TRAINERS}/fasterrcnn.py", "--example", "/efs/averages", "MODE_MASK=True", **options)
    assert runs.wait(run_id) == 0, runs.log(run_id, "worker1")
    # The mean of 1 and 1, and then that of 1 and 301.
    assert printed(runs.cluster, run_id, "weights", 2) == [[-1.0, -152.0]] * 2


@pytest.fixture(scope="module")
def detector(training_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The staged data set: few images, in an archive as COCO's were. A small detector is in the example's place."""
    training_cluster.says(MASTER, f"mkdir -p {EXAMPLE}; sudo rm -rf /efs/data/coco2017")
    for file in (Path(__file__).parent / "detector").glob("*.py"):
        put = training_cluster.ssh(MASTER, f"cat > {EXAMPLE}/{file.name}", input=file.read_text())
        assert put.returncode == 0, put.stderr
    made = tmp_path_factory.mktemp("coco")
    generate = [PYTHON, ROOT / "files/trainers/generate.py", made / "data", "--format", "coco"]
    subprocess.run([*generate, "--train", "400", "--test", "40"], check=True)
    with tarfile.open(made / "coco-2017.tar", "w") as archive:
        archive.add(made / "data", "data")
    shutil.rmtree(made / "data")
    staged = training_cluster.play("stage.yml", dataset="coco2017", source_dir=str(made), stage_target="efs")
    assert staged.code == 0, staged.output[-6000:]
    return "coco2017"


def recipe(file: Path, schedule: int) -> str:
    """Write the recipe with shorter epochs and a shorter schedule."""
    text = (ROOT / "files/recipes/maskrcnn.yml").read_text()
    for whole, short in (('"120000"', '"200"'), ("[240000, 320000, 360000]", f"[{schedule}]")):
        assert whole in text
        text = text.replace(whole, short)
    file.write_text(text)
    return str(file)


def test_a_detector_is_trained_evaluated_resumed_and_reported_as_mask_rcnn_is(
    training_cluster: Cluster, detector: str, tmp_path: Path
) -> None:
    cluster, folder = training_cluster, f"/efs/runs/{training_cluster.name}/rcnn"

    def play(playbook: str, **extra: Any) -> str:
        ran = cluster.play(playbook, **extra)
        assert ran.code == 0, ran.output[-6000:]
        return " ".join(ran.output.split())

    def final() -> dict[str, Any]:
        result: dict[str, Any] = json.loads(cluster.says(MASTER, f"cat {folder}/result.json"))
        return result["final"]

    imported = cluster.ssh(MASTER, "/opt/deeplearning/env/tensorpack/bin/python -W ignore -", input=PROGRAM)
    assert imported.stdout.endswith("complete\n"), imported
    options = {"recipe": recipe(tmp_path / "short.yml", 25), "dataset": detector}
    ran = cluster.play("train.yml", **options, nodes=3)
    assert ran.code == 2 and "3 processes would train, and TensorPack's FasterRCNN" in ran.output, ran.output[-3000:]
    assert "Install the framework" not in ran.output

    printed = play("train.yml", **options, nodes=2, run_id="rcnn")
    assert re.search(r"epoch 1, step 100, 0:00 left, loss \d\.\d+, average precision 0\.\d+, \d+ samples/s", printed)
    trained = final()
    assert trained["loss"] > 0 and trained["samples_per_second"] > 0 and trained["ranks"] == 2
    precision = f"{trained['average_precision']:.4f}"
    expected = f"rcnn, after epoch 1: average precision {precision} on 40 images on generated data"
    assert expected in play("playbooks/evaluate.yml", run_id="rcnn")

    # With another number of processes, and for another epoch.
    words = json.loads(cluster.says(MASTER, f"cat {folder}/run.json"))["script_args"]
    longer = [word.replace("[25]", "[50]") for word in words]
    play("train.yml", resume="rcnn", nodes=1, script_args=longer)
    assert (final()["epoch"], final()["step"]) == (2, 300)
    assert "--load" in cluster.says(MASTER, f"grep from-epoch-1 {folder}/logs/*.worker0.log")
    assert expected in play("playbooks/evaluate.yml", run_id="rcnn", nodes=1, checkpoint=100)
    refused = cluster.play("playbooks/evaluate.yml", run_id="rcnn", checkpoint=7)
    assert refused.code == 2 and "checkpoint is 7, which rcnn does not have" in refused.output, refused.output[-3000:]

    printed = play("playbooks/report.yml", run_id=["rcnn"])
    assert "average precision" in printed and f"{final()['average_precision']:.3f}" in printed
    cluster.says(
        MASTER, f"ls {folder}/tensorboard/from-epoch-0/events.out.* {folder}/tensorboard/from-epoch-1/events.out.*"
    )


@pytest.mark.long
def test_one_node_builds_horovod_for_all_that_lack_it(training_cluster: Cluster) -> None:
    """The image has a wheel, so no other test here builds one. That takes some minutes."""
    cluster = training_cluster
    cluster.says(MASTER, "sudo rm -rf /efs/.deeplearning/wheels")
    for node in NODES:
        removed = cluster.ssh(node, "sudo /usr/bin/python3 -", input=WITHOUT_HOROVOD)
        assert removed.returncode == 0, removed.stderr
    options = {"framework": "tensorpack", "dataset": "generated", "run_id": "built"}
    ran = cluster.play("train.yml", **options, script_args=["--epochs", "1", "--num-examples", "1200"])
    assert ran.code == 0, ran.output[-6000:]
    result = json.loads(cluster.says(MASTER, f"cat /efs/runs/{cluster.name}/built/result.json"))
    assert (result["state"], result["final"]["ranks"]) == ("finished", 3)
    assert len(cluster.says(MASTER, "ls /efs/.deeplearning/wheels/*/*.whl").splitlines()) == 1
