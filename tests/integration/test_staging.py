"""stage.yml with booted machines: a set goes from a folder to the bucket and to the shared file system, once; and what
is wrong with it is a sentence."""

from __future__ import annotations

import io
import json
import random
import re
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.account.kit import REGION
from tests.integration.machines import Cluster, Played, localcloud

MASTER = "deeplearning-master"
TRANSFERS = ("GetObject", "PutObject", "CreateMultipartUpload", "UploadPart")
FILES = 300


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """A folder with the one archive that the old prepare-s3-bucket.sh made."""
    made, folder = random.Random(0), tmp_path / "coco"
    folder.mkdir()
    names = [f"train2017/{number:012}.jpg" for number in range(FILES)]
    names += ["val2017/1.jpg", "annotations/instances_val2017.json", "pretrained-models/ImageNet-R50-AlignPadding.npz"]
    with tarfile.open(folder / "coco-2017.tar", "w") as archive:
        for name in names:
            info = tarfile.TarInfo(f"data/{name}")
            info.size = made.randrange(100, 90_000)
            archive.addfile(info, io.BytesIO(made.randbytes(info.size)))
    return folder


def stage(cluster: Cluster, data: str, source: Path, **more: str) -> Played:
    return cluster.play("stage.yml", dataset=data, source_dir=str(source), **more)


def bucket_of(cluster: Cluster) -> str:
    account = cluster.cloud.client("sts").get_caller_identity()["Account"]
    return f"{cluster.name}-{account}-{REGION}"


def transfers(cluster: Cluster, data: str, since: datetime) -> list[str]:
    """Calls that moved what a set has, its list apart: of the operator and of the machines."""
    lines = localcloud("calls", "--json", "--since", since.isoformat()).stdout.splitlines()
    calls = [call for call in map(json.loads, lines) if call["operation"] in TRANSFERS]
    ours = f"{bucket_of(cluster)}/data/{data}/"
    moved = [(call, need["resource"]) for call in calls for need in call["required"]]
    return [call["operation"] for call, what in moved if ours in what and not what.endswith("manifest.json")]


def test_a_set_is_unpacked_by_all_nodes_and_a_second_run_moves_nothing(training_cluster: Cluster, coco: Path) -> None:
    cluster, before = training_cluster, datetime.now(UTC)
    first = stage(cluster, "coco2017", coco, stage_target="efs")
    assert first.code == 0, first.output[-6000:]
    assert "No checksums are published for these" in first.output
    told = re.findall(r"^  (\S+): \d+ of \d+ MiB$", first.output, re.MULTILINE)
    assert {MASTER, "deeplearning-worker2", "deeplearning-worker3"} <= set(told), first.output[-6000:]
    # As old scripts name them.
    counted = "for name in train2017 val2017 annotations pretrained-models; do ls /efs/data/$name/ | wc -l; done"
    assert cluster.says(MASTER, counted).split() == [str(FILES), "1", "1", "1"]
    marker = json.loads(cluster.says("deeplearning-worker3", "cat /efs/data/coco2017/.deeplearning.json"))
    assert marker["count"] == FILES + 3
    assert {"CreateMultipartUpload", "GetObject"} <= set(transfers(cluster, "coco2017", before))
    look = "find /efs/data/coco2017 -printf '%p %T@ %i\n' | sort | md5sum"
    found, between = cluster.says(MASTER, look), datetime.now(UTC)
    again = stage(cluster, "coco2017", coco, stage_target="efs")
    assert again.code == 0 and again.changed == 0, again.output[-6000:]
    assert transfers(cluster, "coco2017", between) == [] and cluster.says(MASTER, look) == found


def test_what_is_wrong_with_a_file_is_said_before_anything_is_sent(training_cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"not cifar10" * 1000)
    before = datetime.now(UTC)
    wrong = stage(training_cluster, "cifar10", tmp_path, stage_target="efs")
    assert wrong.code == 2 and "c32a1d4ab5d03f1284b67883e8d87530 is published: remove it" in " ".join(
        wrong.output.split()
    )
    corrupt = stage(training_cluster, "mine", tmp_path, stage_target="efs")
    assert corrupt.code == 2 and "cifar-10-binary.tar.gz is not a complete archive" in " ".join(corrupt.output.split())
    assert not transfers(training_cluster, "cifar10", before) + transfers(training_cluster, "mine", before)


def test_what_is_wrong_in_a_bucket_is_said_by_the_nodes(training_cluster: Cluster) -> None:
    cluster, s3 = training_cluster, training_cluster.cloud.client("s3")
    bucket, others = bucket_of(cluster), f"{cluster.name}-others"
    part = {"name": "a.tar", "kind": "tar", "size": 7000, "sha256": "0" * 64, "to": "", "strip": ""}
    manifest = {"schema": 1, "name": "rotten", "version": "0" * 16, "parts": [part], "links": {}}
    s3.create_bucket(Bucket=others)
    for name in (bucket, others):
        s3.put_object(Bucket=name, Key="data/rotten/manifest.json", Body=json.dumps(manifest).encode())
        s3.put_object(Bucket=name, Key="data/rotten/a.tar", Body=b"corrupt" * 1000)
    for verb, place, sentence in (
        ("share", f"s3://{bucket}/data/rotten", "a.tar is no whole archive"),
        ("finish", f"s3://{bucket}/data/rotten", "share 1 of 1 of rotten is missing: run stage.yml again"),
        ("share", f"s3://{others}/data/rotten", "not allowed s3 get_object .* cluster_s3_read"),
        ("share", f"s3://{bucket}/data/nothing", "holds no data set that was staged whole"),
    ):
        asked = cluster.ssh(MASTER, f"deeplearning unpack {verb} rotten --from {place}")
        assert asked.returncode == 2 and re.search(sentence, asked.stderr), (asked.stdout, asked.stderr)
    assert cluster.ssh(MASTER, "ls -d /efs/data/rotten").returncode == 2
