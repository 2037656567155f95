"""Published programs of PyTorch as runs on booted machines, unchanged: ranks 0 to 3, two on each of two nodes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.digits import digits
from tests.integration.machines import Cluster
from tests.published.conftest import Sources
from tests.published.kit import MASTER, Environment, create_environment
from tests.published.programs import ACCELERATE_SCRIPT, DDP, LIGHTNING_DEMO

pytestmark = pytest.mark.long

RANKS = range(4)
DECLARE_OPERATORS = """
cat >> {environment}/lib/python3*/site-packages/torchvision/extension.py << 'END'
for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{{name}}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
END
"""
"""Only PyTorch's own index has the build for processors. That of PyPI finds no CUDA, and then lacks what it imports."""
TRAIN_DEMO = """
import os

from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

model = BoringModel()
trainer = Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    max_epochs=1,
    default_root_dir=os.environ["DEEPLEARNING_RUN_DIR"],
)
trainer.fit(model)
print(f"rank {trainer.global_rank} has {model.layer.weight.sum().item()}")
"""


@pytest.fixture(scope="module")
def ddp_environment(training_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return create_environment(training_cluster, "ddp", tmp_path_factory.mktemp("wheels"), DECLARE_OPERATORS)


@pytest.fixture(scope="module")
def lightning_environment(training_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return create_environment(training_cluster, "lightning", tmp_path_factory.mktemp("wheels"))


def train(cluster: Cluster, environment: Environment, run: str, script: Path, **options: object) -> list[str]:
    """Train on two nodes with two processes each, and return the log of each rank."""
    where = {"nodes": 2, "processes_per_node": 2, "python": environment.python}
    trained = cluster.play("train.yml", framework="pytorch", run_id=run, script=str(script), **where, **options)
    assert trained.code == 0, trained.output[-6000:]
    logs = f"/efs/runs/{cluster.name}/{run}/logs"
    names = cluster.says(MASTER, f"cd {logs} && ls -- *.worker?.log").split()
    assert names == [f"deeplearning-worker{1 + rank // 2}.worker{rank}.log" for rank in RANKS]
    return [cluster.says(MASTER, f"cat {logs}/{name}") for name in names]


def test_ddp_trains_with_its_own_requirements(
    training_cluster: Cluster, sources: Sources, ddp_environment: Environment, tmp_path: Path
) -> None:
    shutil.copy(sources.file(DDP), tmp_path)
    data = tmp_path / "data/MNIST/raw"
    data.mkdir(parents=True)
    for name, content in (digits("train", 600) | digits("t10k", 100)).items():
        (data / name).write_bytes(content)
    words = (
        "--total_epochs=1 --save_every=1 --batch_size=32 --use_mlflow --checkpoint_path {run}/checkpoints/snapshot.pt"
    )
    logs = train(
        training_cluster, ddp_environment, "ddp", tmp_path / "ddp.py", sync=str(tmp_path), script_args=words.split()
    )
    for rank, log in enumerate(logs):
        # Each rank has a fourth of the images.
        assert f"[RANK {rank}] Epoch 0 | Batchsize: 32 | Steps: 5 | Loss: " in log, log[-4000:]
        assert "Using GLOO backend" in log
    assert "Warning: MLflow" not in logs[0], logs[0][-4000:]
    assert training_cluster.says(MASTER, "cat ~/mlruns/*/*/metrics/train_loss").split()
    assert training_cluster.says(MASTER, f"ls /efs/runs/{training_cluster.name}/ddp/checkpoints") == "snapshot.pt"


def test_lightning_trains_a_model_of_its_own(
    training_cluster: Cluster, lightning_environment: Environment, tmp_path: Path
) -> None:
    assert b"class BoringModel(" in lightning_environment.extract(LIGHTNING_DEMO)
    script = tmp_path / "train_demo.py"
    script.write_text(TRAIN_DEMO)
    logs = train(training_cluster, lightning_environment, "lightning", script)
    for rank, log in enumerate(logs):
        assert f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/4" in log, log[-4000:]
    # Their data differ, and their gradients are averaged.
    weights = {log.partition(f"rank {rank} has ")[2].split()[0] for rank, log in enumerate(logs)}
    assert len(weights) == 1


def test_accelerate_has_gradients_in_step_on_all_ranks(
    training_cluster: Cluster, lightning_environment: Environment, tmp_path: Path
) -> None:
    script = tmp_path / "test_sync.py"
    script.write_bytes(lightning_environment.extract(ACCELERATE_SCRIPT))
    # PyTorch's own lines name the rank, as the script prints none.
    spoken = {"TORCH_DISTRIBUTED_DEBUG": "INFO", "TORCH_CPP_LOG_LEVEL": "INFO"}
    logs = train(training_cluster, lightning_environment, "accelerate", script, env=spoken)
    for rank, log in enumerate(logs):
        assert f"[Rank {rank}]: DDP Initialized with:" in log and " world_size: 4\n" in log, log[-4000:]
        # Accelerate knows the first process of each node.
        assert ("**Test Distributed `no_sync` context manager**" in log) == (rank % 2 == 0)
