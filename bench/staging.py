"""How long a set of many small files takes to unpack with 1, 2 and 4 nodes. Needs a quiet machine.

Nodes share the processors of this machine, and the file system is a folder of it: nothing waits for a network here,
which is what several nodes are good for on AWS. `localcloud up --cpus-per-instance 0.4` gives each node its own share.
"""

from __future__ import annotations

import io
import json
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "files/node"), str(Path(__file__).parent)]

from deeplearning.contract.manifest import digest  # noqa: E402
from report import Row, write  # noqa: E402

from tests.account.kit import REGION  # noqa: E402
from tests.integration.machines import Cloud, Cluster, cloud_in  # noqa: E402

MASTER = "deeplearning-master"
FILES, LARGEST = 20_000, 4000
NODES = (1, 2, 4)
ROUNDS = 3


def pack(folder: Path) -> Path:
    """As many archives as nodes: each is unpacked by one."""
    made = random.Random(0)
    folder.mkdir()
    for part in range(max(NODES)):
        with tarfile.open(folder / f"{part}.tar", "w") as archive:
            add_files(archive, made, range(part, FILES, max(NODES)))
    return folder


def add_files(archive: tarfile.TarFile, made: random.Random, numbers: Iterable[int]) -> None:
    for number in numbers:
        info = tarfile.TarInfo(f"{number % 100:02}/{number:06}.jpg")
        info.size = made.randrange(LARGEST)
        archive.addfile(info, io.BytesIO(made.randbytes(info.size)))


def played(cluster: Cluster, *words: str, **extra: Any) -> tuple[float, int]:
    """Seconds, and how many tasks changed something."""
    started = time.monotonic()
    done = cluster.play(*words, **extra)
    assert done.code == 0, done.output[-6000:]
    return time.monotonic() - started, done.changed


def unpacked(cluster: Cluster, source: str, nodes: int) -> float:
    """As stage.yml has it done, without the time of Ansible: seconds from the first share's begin to the whole set."""
    cluster.says(MASTER, "sudo rm -rf /efs/data/small /efs/data/.small.*")
    names = [MASTER, *(f"deeplearning-worker{rank}" for rank in range(2, nodes + 1))]
    for name in names:
        cluster.says(name, "true")
    started = time.monotonic()
    line = f"deeplearning unpack {{}} small {source} --share {{}}/{nodes}"
    shares = [
        subprocess.Popen(cluster.ssh_words(name) + [line.format("share", number)], stdout=subprocess.DEVNULL)
        for number, name in enumerate(names, 1)
    ]
    assert [share.wait() for share in shares] == [0] * nodes
    cluster.says(MASTER, line.format("finish", 1))
    took = time.monotonic() - started
    assert cluster.says(MASTER, "find /efs/data/small -name '*.jpg' | wc -l") == str(FILES)
    return took


def unpacking(cloud: Cloud, folder: Path) -> tuple[list[Row], str]:
    with cloud.cluster("bench-unpack", worker_count=max(NODES) - 1) as cluster:
        played(cluster, "site.yml")
        staged = cluster.play("stage.yml", dataset="small", source_dir=str(pack(folder / "small")))
        assert staged.code == 0, staged.output[-6000:]
        account = cloud.client("sts").get_caller_identity()["Account"]
        bucket = f"{account}-{REGION}-deeplearning-data"
        listed = json.load(cloud.client("s3").get_object(Bucket=bucket, Key="small/manifest.json")["Body"])
        source = f"--from s3://{bucket}/small --sha256 {digest(listed)}"
        rounds: dict[int, list[float]] = {nodes: [] for nodes in NODES}
        for _unused in range(ROUNDS):
            for nodes, measurements in rounds.items():
                measurements.append(unpacked(cluster, source, nodes))
        seconds = {nodes: statistics.median(measurements) for nodes, measurements in rounds.items()}
        stages = [
            played(cluster, "stage.yml", dataset="small", source_dir=str(folder / "small"), stage_target="efs")
            for _ in "ab"
        ]
    rows = [
        Row(f"seconds with {more} nodes, over those with {fewer}", seconds[more] / seconds[fewer], "×", 1)
        for fewer, more in zip(NODES, NODES[1:], strict=False)
    ]
    rows.append(Row("stage.yml, when all is there", stages[1][0], "s", None))
    rows.append(Row("stage.yml, when all is there: tasks that changed something", stages[1][1], "", 0))
    lines = ["", f"Unpacking {FILES:,} files of up to {LARGEST:,} bytes, by nodes:", ""]
    lines += ["| nodes | seconds | files a second |", "| --- | --- | --- |"]
    lines += [f"| {nodes} | {took:.1f} | {FILES / took:,.0f} |" for nodes, took in seconds.items()]
    return rows, "\n".join(lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, cloud_in(Path(scratch)) as cloud:
        rows, table = unpacking(cloud, Path(scratch))
    write("staging", "Staging data", rows, table)


if __name__ == "__main__":
    main()
