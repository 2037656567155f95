"""How fast ranks exchange gradients when our launcher has started them, beside the same mpirun typed by hand.

Needs a quiet machine, and the image with all frameworks (localcloud image build …). What is exchanged are 16 MB a time,
by Horovod over MPI, as files/trainers/preflight.py does it before a long run.
"""

from __future__ import annotations

import json
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from report import Row, write  # noqa: E402

from tests.integration.machines import Cluster, cloud_in  # noqa: E402

IMAGE = "localcloud-debian-12-mxnet-pytorch-tensorflow-tensorpack"
MASTER = "deeplearning-master"
SCRIPT = "/opt/deeplearning/trainers/preflight.py"
NODES = 2
ROUNDS = 5


def measured(cluster: Cluster, folder: str) -> float:
    """Gbit/s on the wire."""
    result = json.loads(cluster.says(MASTER, f"cat {folder}/preflight.json"))
    assert result["right"] and result["ranks"] == NODES, result
    return float(result["gbits"])


def ours(cluster: Cluster, run: str) -> float:
    asked = {"framework": "tensorpack", "distribution": "horovod", "script": SCRIPT, "nodes": NODES, "run_id": run}
    played = cluster.play("train.yml", **asked)
    assert played.code == 0, played.output[-6000:]
    return measured(cluster, f"/efs/runs/{cluster.name}/{run}")


def by_hand(cluster: Cluster, folder: str) -> float:
    settings = {"HOROVOD_CYCLE_TIME": "0.5", "HOROVOD_FUSION_THRESHOLD": "67108864", "DEEPLEARNING_RUN_DIR": folder}
    settings |= {"DEEPLEARNING_FRAMEWORK": "tensorpack", "DEEPLEARNING_DISTRIBUTION": "horovod"}
    settings |= {"DEEPLEARNING_WORLD": str(NODES)}
    hosts = ",".join(f"deeplearning-worker{rank}:1" for rank in range(1, NODES + 1))
    mpirun = f"mpirun -np {NODES} --host {hosts} --map-by slot --bind-to none --mca pml ob1 --mca btl ^openib"
    mpirun += " --mca btl_vader_single_copy_mechanism none --mca btl_tcp_if_include 10.0.0.0/16"
    options = " ".join(f"-x {name}={value}" for name, value in settings.items())
    trainer = shlex.join(["/opt/deeplearning/env/tensorpack/bin/python", SCRIPT])
    done = cluster.ssh(MASTER, f"mkdir -p {folder} && {mpirun} {options} {trainer}", timeout=600)
    assert done.returncode == 0, done.stderr
    return measured(cluster, folder)


def main() -> None:
    launched, typed = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        cloud_in(Path(folder)) as cloud,
        cloud.cluster("bench-allreduce", worker_count=NODES - 1, image=cloud.image(IMAGE)) as cluster,
    ):
        made = cluster.play("site.yml")
        assert made.code == 0, made.output[-6000:]
        # In turn, so that both meet the same machine.
        for number in range(ROUNDS):
            launched.append(ours(cluster, f"ours-{number}"))
            typed.append(by_hand(cluster, f"/efs/hand-{number}"))
    # Rows are met by being small: so it is by hand over ours, which may be 1 / 0.98.
    compared = statistics.median(typed) / statistics.median(launched)
    rows = [Row(f"all-reduce by hand over ours, {NODES} nodes", compared, "×", 1 / 0.98)]
    lines = ["", "Gbit/s of each round, ours and by hand:", "", "| ours | by hand |", "| --- | --- |"]
    lines += [f"| {one:.2f} | {other:.2f} |" for one, other in zip(launched, typed, strict=True)]
    write("allreduce", "All-reduce", rows, "\n".join(lines))


if __name__ == "__main__":
    main()
