"""What the launcher of training runs costs, and how runs scale. Needs a quiet machine, and a local cloud of its own.

First: localcloud up --cpus-per-instance 0.4, so that each node has its share and no more; and the image with all
frameworks (localcloud image build …).
"""

from __future__ import annotations

import json
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from report import Row, write  # noqa: E402

from localcloud.testing.booted import wait_for  # noqa: E402
from tests.integration.machines import Cluster, cloud_in  # noqa: E402

IMAGE = "localcloud-debian-12-mxnet-pytorch-tensorflow-tensorpack"
MASTER = "deeplearning-master"
FRAMEWORKS = ("tensorflow", "mxnet", "pytorch")
STARTS = {4: 10.0, 16: 15.0}
"""nodes, and seconds from train.yml to the first rank's start"""
SWEEP = (1, 2, 4)
ROUNDS = 3
DATA = "/efs/data/bench"
ARGUMENTS = ["--epochs", "3", "--batch-size", "32"]
TELLS = 'import time; print("started", time.time())'
"""what is started where only the start is measured"""


class Bench:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.root = cluster, f"/efs/runs/{cluster.name}"

    def train(self, name: str, **arguments: Any) -> float:
        """Runs train.yml to its end; when it was started."""
        started = time.time()
        played = self.cluster.play("train.yml", run_id=name, **arguments)
        assert played.code == 0, played.output[-6000:]
        return started

    def events(self, run: str, kind: str) -> list[dict[str, Any]]:
        lines = self.cluster.says(MASTER, f"cat {self.root}/{run}/events.jsonl").splitlines()
        return [event for line in lines if (event := json.loads(line))["event"] == kind]

    def speed(self, run: str) -> float:
        """Samples per second of all ranks, by what they wrote at the end of each epoch but the first."""
        metrics = self.cluster.says(MASTER, f"cat {self.root}/{run}/metrics/rank*.jsonl")
        return speed_of([json.loads(line) for line in metrics.splitlines()])


def speed_of(lines: list[Mapping[str, Any]]) -> float:
    by_epoch: dict[int, float] = {}
    for line in lines:
        if line["val_accuracy"] is not None and line["epoch"] > 1:
            by_epoch[line["epoch"]] = by_epoch.get(line["epoch"], 0.0) + line["samples_per_second"]
    return statistics.median(by_epoch.values())


def starts(bench: Bench, nodes: int) -> tuple[float, float]:
    """Seconds from train.yml to the first rank's start, and from that to the last one's."""
    bench.cluster.says(MASTER, f"mkdir -p /efs/scripts && printf %s {shlex.quote(TELLS)} > /efs/scripts/tells.py")
    run = f"start-{nodes}-{time.time():.0f}"
    asked = bench.train(
        run, framework="pytorch", python="/usr/bin/python3", script="/efs/scripts/tells.py", nodes=nodes
    )
    times = [event["time"] for event in bench.events(run, "process") if event["state"] == "started"]
    assert len(times) == nodes, times
    return min(times) - asked, max(times) - min(times)


def by_hand(bench: Bench, run: str, nodes: int) -> float:
    """The same trainer as our launcher starts, by an mpirun that a person types on the master."""
    hosts = ",".join(f"deeplearning-worker{rank}:1" for rank in range(1, nodes + 1))
    folder = f"{bench.root}/{run}"
    rank = "RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_RANK=0"
    trainer = "/opt/deeplearning/env/pytorch/bin/python /opt/deeplearning/trainers/cifar10_pytorch.py"
    line = f"{rank} MASTER_ADDR=deeplearning-worker1 MASTER_PORT=29400 exec {trainer}"
    line = f"{line} --data-dir {DATA} --run-dir {folder} {shlex.join(ARGUMENTS)}"
    mpirun = f"mpirun --host {hosts} -np {nodes} --bind-to none --map-by slot sh -c {shlex.quote(line)}"
    done = bench.cluster.ssh(MASTER, f"mkdir -p {folder} && {mpirun}", timeout=600)
    assert done.returncode == 0, done.stderr
    return bench.speed(run)


def main() -> None:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, cloud_in(Path(folder)) as cloud:
        with cloud.cluster("bench-starts", worker_count=max(STARTS) - 1, image=cloud.image(IMAGE)) as cluster:
            made = cluster.play("site.yml")
            assert made.code == 0, made.output[-6000:]
            bench = Bench(cluster)
            for nodes, target in STARTS.items():
                first, spread = zip(*(starts(bench, nodes) for _ in range(ROUNDS)), strict=True)
                rows.append(Row(f"train.yml to the first rank, {nodes} nodes", statistics.median(first), "s", target))
                rows.append(Row(f"first rank to the last, {nodes} nodes", statistics.median(spread), "s", 2))
        with cloud.cluster("bench-speed", worker_count=max(SWEEP) - 1, image=cloud.image(IMAGE)) as cluster:
            made = cluster.play("site.yml")
            assert made.code == 0, made.output[-6000:]
            bench = Bench(cluster)
            generate = "sudo python3 /opt/deeplearning/trainers/generate.py"
            cluster.says(MASTER, f"{generate} {DATA} --train 2048 --test 128")
            rows.append(launcher(bench))
            rows += resumed(bench)
            speeds = scaling(bench)
    write("training", "Training runs", [*rows, *figures(speeds)], table(speeds))


def launcher(bench: Bench) -> Row:
    """In turn, so that both meet the same machine."""
    ours, theirs = [], []
    for number in range(ROUNDS):
        bench.train(f"ours-{number}", framework="pytorch", dataset=DATA, nodes=2, script_args=ARGUMENTS)
        ours.append(bench.speed(f"ours-{number}"))
        theirs.append(by_hand(bench, f"hand-{number}", 2))
    # Rows are met by being small: so it is by hand over ours, which may be 1 / 0.98.
    return Row(
        "throughput by hand over ours, 2 nodes", statistics.median(theirs) / statistics.median(ours), "×", 1 / 0.98
    )


def scaling(bench: Bench) -> dict[str, list[float]]:
    """Return the samples per second of all nodes, for each framework and number of nodes."""
    speeds: dict[str, list[float]] = {}
    for framework in FRAMEWORKS:
        for nodes in SWEEP:
            run = f"{framework}-{nodes}"
            bench.train(run, framework=framework, dataset=DATA, nodes=nodes, script_args=ARGUMENTS)
            speeds.setdefault(framework, []).append(bench.speed(run))
    return speeds


def figures(speeds: Mapping[str, list[float]]) -> list[Row]:
    return [
        Row(f"{framework}, {nodes} nodes", speed, "samples/s", None)
        for framework, measured in speeds.items()
        for nodes, speed in zip(SWEEP, measured, strict=True)
    ]


def table(speeds: Mapping[str, list[float]]) -> str:
    lines = ["", "Samples per second in all (speed-up), generated data, LeNet:", ""]
    lines += [f"| framework | {' | '.join(f'{nodes} nodes' for nodes in SWEEP)} |", "| --- |" + " --- |" * len(SWEEP)]
    for framework, measured in speeds.items():
        lines.append(
            f"| {framework} | {' | '.join(f'{speed:,.0f} ({speed / measured[0]:.2f})' for speed in measured)} |"
        )
    return "\n".join(lines)


def resumed(bench: Bench) -> list[Row]:
    """A worker's machine is killed while it trains; counted from when members have settled to the next progress."""
    run = f"killed-{time.time():.0f}"
    long = ["--epochs", "40", "--batch-size", "32"]
    bench.train(run, framework="pytorch", dataset=DATA, nodes=2, script_args=long, detach=True)
    wait_for(lambda: [event for event in bench.events(run, "progress") if event["epoch"] > 2], 300, "training")
    victim = next(member["instance_id"] for member in bench.cluster.members()["members"] if member["rank"] == 2)
    bench.cluster.cloud.client("ec2").terminate_instances(InstanceIds=[victim])

    def training_again() -> tuple[float, float] | None:
        settled = [event["time"] for event in bench.events(run, "plan") if event["attempt"] == 1]
        again = [event["time"] for event in bench.events(run, "progress") if settled and event["time"] > settled[0]]
        return (settled[0], again[0]) if again else None

    settled, again = wait_for(training_again, 300, "training again")
    bench.cluster.says(MASTER, f"deeplearning run stop {run}")
    return [Row("members settled to training again", again - settled, "s", 30)]


if __name__ == "__main__":
    main()
