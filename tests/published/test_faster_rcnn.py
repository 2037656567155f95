"""TensorPack's published train.py on booted machines, unchanged, with what the published run.sh sets of its config.

The example refuses three processes, so two of three machines train. The third is there when one of these is killed.
"""

from __future__ import annotations

import json
import re
import shlex

import fasterrcnn
import pytest

from localcloud.testing.booted import wait_for
from tests.integration.healing import ClusterView
from tests.integration.machines import Cluster, localcloud
from tests.integration.runs import Runs
from tests.published.conftest import Sources
from tests.published.kit import FOLDER, MASTER, send
from tests.published.programs import FASTER_RCNN, FIRST_RUN

pytestmark = pytest.mark.long

TRAINERS = "/opt/deeplearning/trainers"
EXAMPLE = f"{FOLDER}/tensorpack/examples/FasterRCNN"
DATA = f"{FOLDER}/coco"
EPOCHS, STEPS = 8, 8
CHANGED = {
    # Since 2018 these names have a prefix, and what is no list is no text either.
    "DATA.TRAIN": "['coco_train2017']",
    "DATA.VAL": "['coco_val2017']",
    # As run.sh computes it for two workers, and its default.
    "TRAIN.EVAL_PERIOD": "4",
    "BACKBONE.NORM": "FreezeBN",
    # No weights to start from, and few epochs.
    "BACKBONE.WEIGHTS": "",
    "TRAIN.LR_SCHEDULE": "[8,12,16]",
}
SMALL = {
    "TRAIN.CHECKPOINT_PERIOD": "1",
    "BACKBONE.FREEZE_AT": "0",
    "BACKBONE.RESNET_NUM_BLOCKS": "[1,1,1,1]",
    "PREPROC.TRAIN_SHORT_EDGE_SIZE": "[64,64]",
    "PREPROC.TEST_SHORT_EDGE_SIZE": "64",
    "PREPROC.MAX_SIZE": "64",
    "FPN.NUM_CHANNEL": "16",
    "FPN.FRCNN_FC_HEAD_DIM": "32",
    "MRCNN.HEAD_DIM": "16",
    "RPN.BATCH_PER_IM": "32",
    "RPN.TRAIN_PER_LEVEL_NMS_TOPK": "50",
    "RPN.TEST_PER_LEVEL_NMS_TOPK": "50",
    "FRCNN.BATCH_PER_IM": "32",
    "DATA.NUM_WORKERS": "0",
    # COCO's metrics are computed of detections, and a network that has learned little is sure of none.
    "TEST.RESULT_SCORE_THRESH": "0.0",
    "TEST.RESULTS_PER_IM": "10",
}


def options_of(run_sh: str) -> dict[str, str]:
    """Return what run.sh sets of the example's config."""
    command = run_sh.partition("--config ")[2].replace("\\\n", " ").partition("\n")[0]
    return dict(word.split("=", 1) for word in shlex.split(command))


@pytest.fixture(scope="module")
def runs(training_cluster: Cluster, sources: Sources) -> Runs:
    """The published example and generated images of COCO's form, on the file system."""
    sources.file(FASTER_RCNN)
    snapshot = sources.snapshot(FASTER_RCNN.snapshot)
    send(training_cluster, snapshot, ["examples/FasterRCNN"], f"{FOLDER}/tensorpack")
    sent = training_cluster.says(MASTER, f"sha256sum {EXAMPLE}/train.py")
    assert sent.split()[0] == FASTER_RCNN.sha256
    generate = f"python3 {TRAINERS}/generate.py {DATA} --format coco --train 24 --test 4"
    training_cluster.says(MASTER, generate)
    return Runs(training_cluster)


def test_the_published_train_py_trains_goes_on_after_a_killed_machine_and_is_evaluated(
    runs: Runs, sources: Sources
) -> None:
    cluster, run = runs.cluster, "published"
    folder = f"{runs.root}/{run}"
    published = options_of(sources.file(FIRST_RUN).read_text())
    config = {name: value for name, value in (published | CHANGED | SMALL).items() if name not in fasterrcnn.OURS}
    words = ["--example", EXAMPLE, "--images-per-epoch", str(2 * STEPS), *(f"{n}={v}" for n, v in config.items())]
    ran = cluster.play(
        "train.yml",
        **{"framework": "tensorpack", "script": f"{TRAINERS}/fasterrcnn.py", "script_args": words},
        **{"dataset": DATA, "nodes": 2, "processor": True, "run_id": run, "detach": True},
    )
    assert ran.code == 0, ran.output[-6000:]

    saved = f"test -s {folder}/checkpoints/from-epoch-0/checkpoint"
    wait_for(lambda: cluster.ssh(MASTER, saved).returncode == 0 or runs.show(run)["result"], 600, "a checkpoint")
    view, killed = ClusterView(cluster), "deeplearning-worker2"
    assert killed in {process["node"] for process in runs.show(run)["processes"]}
    assert localcloud("fault", "kill", view.instances()[killed]).returncode == 0
    wait_for(lambda: runs.show(run)["result"], 900, "the run ends")
    log = runs.log(run, "worker0")
    assert runs.causes(run) == ["lost", "finished"], log[-6000:]

    first, second = re.findall(r"\+ \S+ (\S+/train\.py .*)", log)
    options = dict(word.split("=", 1) for word in shlex.split(first.partition("--config ")[2]))
    assert options.keys() >= published.keys()
    unchanged = published.keys() - CHANGED.keys() - {"DATA.BASEDIR", "TRAIN.STEPS_PER_EPOCH"}
    assert unchanged == {"MODE_MASK", "MODE_FPN", "TRAINER"}
    assert all(options[name] == published[name] for name in unchanged)
    assert first.startswith(f"{EXAMPLE}/train.py ") and "--load" not in first
    reached = int(re.findall(r"/from-epoch-(\d+) --load ", second)[0])
    assert f"/from-epoch-0/model-{STEPS * reached} " in second and 0 < reached < EPOCHS
    epochs = [int(epoch) for epoch in re.findall(r"Start Epoch (\d+) ", log)]
    before = len(epochs) - (EPOCHS - reached)
    assert epochs == [*range(1, before + 1), *range(reached + 1, EPOCHS + 1)]
    assert log.count("GPUMemoryTracker and GPUUtilizationTracker of TensorPack do nothing: processor=true") == 2
    final = json.loads(cluster.says(MASTER, f"cat {folder}/result.json"))["final"]
    assert (final["epoch"], final["step"], final["ranks"]) == (EPOCHS, EPOCHS * STEPS, 2) and final["loss"] > 0
    assert "Evaluate annotation type *segm*" in log and "Average Precision  (AP) @[ IoU=0.50:0.95 " in log

    evaluated = cluster.play("playbooks/evaluate.yml", run_id=run, nodes=1)
    assert evaluated.code == 0, evaluated.output[-6000:]
    sentence = rf"{run}, after epoch {EPOCHS}: average precision \d\.\d{{4}} on 4 images on generated data"
    assert re.search(sentence, " ".join(evaluated.output.split()))
    wait_for(view.is_complete, 300, "another machine is in the place of the killed one")
