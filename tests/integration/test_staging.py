"""stage.yml with booted machines: a set goes from a folder to the bucket and to the shared file system, once; and what
is wrong with it is a sentence."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import re
import subprocess
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.datasets import DATASETS
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.manifest import digest

from tests.account.kit import REGION
from tests.digits import digits
from tests.integration.machines import Cluster, Played, localcloud

MASTER = "deeplearning-master"
TRANSFERS = ("GetObject", "PutObject", "CreateMultipartUpload", "UploadPart")
NODES = (MASTER, "deeplearning-worker2", "deeplearning-worker3")
FILES = 300
PINNED = "/opt/deeplearning/lib/deeplearning/contract/datasets.py"
DIGESTS = {part.name: part.sha256 for name in ("cifar10", "mnist") for part in DATASETS[name].parts}
PUBLISHERS = ("storage.googleapis.com", "www.cs.toronto.edu", "ossci-datasets.s3.amazonaws.com")
TRUSTED = "/etc/ssl/certs/ca-certificates.crt"
SERVER = """
import http.server, ssl
server = http.server.ThreadingHTTPServer(("127.0.0.1", 443), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("../publisher.crt", "../publisher.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
SHOWS = """
import os, sys
count = sum(len(files) for _folder, _folders, files in os.walk(sys.argv[1]))
run, rank = os.environ["DEEPLEARNING_RUN_DIR"], os.environ["DEEPLEARNING_RANK"]
open(f"{run}/seen{rank}", "w").write(f"{sys.argv[1]} {count}\\n")
"""


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


def data_bucket(cluster: Cluster) -> str:
    account = cluster.cloud.client("sts").get_caller_identity()["Account"]
    return f"{account}-{REGION}-deeplearning-data"


def transfers(cluster: Cluster, data: str, since: datetime) -> list[str]:
    """Calls that moved what a set has, its list apart: of the operator and of the machines."""
    lines = localcloud("calls", "--json", "--since", since.isoformat()).stdout.splitlines()
    calls = [call for call in map(json.loads, lines) if call["operation"] in TRANSFERS]
    ours = f"{data_bucket(cluster)}/{data}/"
    moved = [(call, need["resource"]) for call in calls for need in call["required"]]
    return [call["operation"] for call, what in moved if ours in what and not what.endswith("manifest.json")]


def test_a_set_is_unpacked_and_a_second_run_moves_nothing(training_cluster: Cluster, coco: Path) -> None:
    cluster, before = training_cluster, datetime.now(UTC)
    first = stage(cluster, "coco2017", coco, stage_target="efs")
    assert first.code == 0, first.output[-6000:]
    assert "No checksums are published for these" in first.output
    # As old scripts name them.
    counted = "for name in train2017 val2017 annotations pretrained-models; do ls /efs/data/$name/ | wc -l; done"
    assert cluster.says(MASTER, counted).split() == [str(FILES), "1", "1", "1"]
    marker = json.loads(cluster.says("deeplearning-worker3", "cat /efs/data/coco2017/.deeplearning.json"))
    assert marker["count"] == FILES + 3
    assert {"CreateMultipartUpload", "GetObject"} <= set(transfers(cluster, "coco2017", before))
    look = "find /efs/data/coco2017 -printf '%p %T@ %i\n' | sort | md5sum"
    listing, between = cluster.says(MASTER, look), datetime.now(UTC)
    again = stage(cluster, "coco2017", coco, stage_target="efs")
    assert again.code == 0 and again.changed == 0, again.output[-6000:]
    assert transfers(cluster, "coco2017", between) == [] and cluster.says(MASTER, look) == listing


def test_the_archives_of_a_set_are_dealt_to_all_nodes(training_cluster: Cluster, tmp_path: Path) -> None:
    for number in range(3):
        with tarfile.open(tmp_path / f"{number}.tar", "w") as archive:
            info = tarfile.TarInfo(f"{number}.bin")
            info.size = 3 << 20
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    done = stage(training_cluster, "dealt", tmp_path, stage_target="efs")
    assert done.code == 0, done.output[-6000:]
    progress = re.findall(r"^  (\S+): \d+ of 3 MiB(?:, \d+ MiB/s, \S+ left)?$", done.output, re.MULTILINE)
    assert {MASTER, "deeplearning-worker2", "deeplearning-worker3"} == set(progress), done.output[-6000:]
    assert training_cluster.says("deeplearning-worker3", "ls /efs/data/dealt | wc -l") == "3"


@pytest.mark.long
def test_what_is_wrong_with_a_file_is_said_before_anything_is_sent(training_cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"not cifar10" * 1000)
    before = datetime.now(UTC)
    wrong = stage(training_cluster, "cifar10", tmp_path, stage_target="efs")
    sentence = f"instead of {DIGESTS['cifar-10-binary.tar.gz']}. Fetch it again"
    assert wrong.code == 2 and sentence in " ".join(wrong.output.split())
    corrupt = stage(training_cluster, "mine", tmp_path, stage_target="efs")
    assert corrupt.code == 2 and "cifar-10-binary.tar.gz is not a complete archive" in " ".join(corrupt.output.split())
    assert not transfers(training_cluster, "cifar10", before) + transfers(training_cluster, "mine", before)


def test_what_is_wrong_in_a_bucket_is_said_by_the_nodes(training_cluster: Cluster) -> None:
    cluster, s3 = training_cluster, training_cluster.cloud.client("s3")
    bucket, others = data_bucket(cluster), f"{cluster.name}-others"
    part = {"name": "a.tar", "kind": "tar", "size": 7000, "sha256": "0" * 64, "to": "", "strip": ""}
    manifest = {"schema": 1, "name": "rotten", "version": "0" * 16, "parts": [part], "links": {}}
    s3.create_bucket(Bucket=others)
    for name in (bucket, others):
        s3.put_object(Bucket=name, Key="rotten/manifest.json", Body=json.dumps(manifest).encode())
        s3.put_object(Bucket=name, Key="rotten/a.tar", Body=b"corrupt" * 1000)
    for verb, place, sentence in (
        ("share", f"s3://{bucket}/rotten", "a.tar is no whole archive"),
        ("finish", f"s3://{bucket}/rotten", "a.tar of rotten is not unpacked: run deeplearning.aws.stage again"),
        ("share", f"s3://{others}/rotten", "not allowed s3 get_object .* cluster_s3_read"),
        ("share", f"s3://{bucket}/nothing", "holds no data set that was staged whole"),
    ):
        asked = cluster.ssh(MASTER, f"deeplearning unpack {verb} rotten --from {place} --sha256 {digest(manifest)}")
        assert asked.returncode == 2 and re.search(sentence, asked.stderr), (asked.stdout, asked.stderr)
    assert cluster.ssh(MASTER, "ls -d /efs/data/rotten").returncode == 2


def cifar10() -> bytes:
    """An archive of the publisher's layout with few samples."""
    made, packed = random.Random(0), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            records = b"".join(bytes([label] + [20 * label] * 3072) for label in made.choices(range(10), k=60))
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            member.size = len(records)
            archive.addfile(member, io.BytesIO(records))
    return packed.getvalue()


@pytest.fixture
def publisher(training_cluster: Cluster) -> Iterator[None]:
    """The master resolves the publishers' names to itself, trusts a certificate for them, and has this test's checksums
    instead of the publishers': only root of a machine can do that. Nothing answers yet."""
    cluster, files = training_cluster, {"www/~kriz/cifar-10-binary.tar.gz": cifar10()}
    pins = [f"s/30_730_000/{60 * 3073}/"]
    for name, content in (digits("train", 600) | digits("t10k", 100)).items():
        files[f"www/mnist/{name}.gz"] = gzip.compress(content, mtime=0)
        pins.append(f's/"{name}": [0-9_]*/"{name}": {len(content)}/')
    for path, content in files.items():
        pins.append(f"s/{DIGESTS[Path(path).name]}/{hashlib.sha256(content).hexdigest()}/")
    cluster.says(MASTER, f"sudo cp {PINNED} {PINNED}.kept")
    folders = " ".join(f"/run/publisher/{Path(path).parent}" for path in files)
    cluster.says(MASTER, f"sudo mkdir -p {folders} && sudo chmod -R 777 /run/publisher")
    for name, content in {"publisher.py": SERVER.encode(), **files}.items():
        words = cluster.ssh_words(MASTER)
        subprocess.run([*words, f"cat > '/run/publisher/{name}'"], input=content, check=True, timeout=60)
    cluster.says(
        MASTER,
        "cd /run/publisher && sudo openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-keyout publisher.key -out publisher.crt -subj /CN=publishers "
        f"-addext subjectAltName=DNS:{',DNS:'.join(PUBLISHERS)} 2>/dev/null && "
        f"sudo cp {TRUSTED} {TRUSTED}.kept && cat publisher.crt | sudo tee -a {TRUSTED} >/dev/null && "
        f"echo '127.0.0.1 {' '.join(PUBLISHERS)}' | sudo tee -a /etc/hosts && sudo sed -i '{'; '.join(pins)}' {PINNED}",
    )
    yield
    cluster.says(
        MASTER,
        f"sudo systemctl stop publisher; sudo mv {PINNED}.kept {PINNED} && sudo mv {TRUSTED}.kept {TRUSTED} && "
        f"sudo rm -rf /run/publisher && sudo sed -i '/{PUBLISHERS[0]}/d' /etc/hosts",
    )
    # Other tests share the cluster, and these are not the publishers'.
    for node in NODES:
        folders = "/opt/deeplearning/data/cifar10 /efs/data/cifar10 /efs/data/mnist /efs/cifar10_data"
        cluster.says(node, f"sudo rm -rf {folders}")


def test_the_customers_own_line_works_as_typed(training_cluster: Cluster, publisher: None) -> None:
    cluster = training_cluster
    runs = f"ls /efs/runs/{cluster.name} 2>/dev/null | wc -l"
    before = cluster.says(MASTER, runs)
    cut_off = cluster.play("train.yml", framework="tensorflow")
    sentence = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz cannot be fetched"
    assert cut_off.code == 2 and sentence in " ".join(cut_off.output.split()), cut_off.output[-6000:]
    assert "or train on dataset=generated" in " ".join(cut_off.output.split())
    assert "Install the framework" not in cut_off.output and cluster.says(MASTER, runs) == before
    cluster.says(
        MASTER, "sudo systemd-run -q --unit publisher -p WorkingDirectory=/run/publisher/www python3 ../publisher.py"
    )
    trained = cluster.play("train.yml", framework="tensorflow")
    assert trained.code == 0 and re.search(r"run tensorflow-\S+ has finished", trained.output), trained.output[-6000:]
    assert cluster.says(MASTER, "ls /efs/cifar10_data/cifar-10-batches-bin/data_batch_*.bin | wc -l") == "5"
    quick = ["--epochs", "1", "--batch-size", "50"]
    small = cluster.play("train.yml", framework="mxnet", dataset="mnist", run_id="mnist", nodes=1, script_args=quick)
    assert small.code == 0 and "run mnist has finished" in small.output, small.output[-6000:]
    assert "600 + 100 samples" in cluster.says(MASTER, f"cat /efs/runs/{cluster.name}/mnist/logs/*.worker0.log")
    # From now on the publishers are not needed.
    cluster.says(MASTER, "sudo systemctl stop publisher")
    again = cluster.play(
        "train.yml", framework="pytorch", data_on="node", run_id="own-disk", script_args=["--epochs", "1"]
    )
    assert again.code == 0 and "run own-disk has finished" in again.output, again.output[-6000:]
    for node in NODES:
        assert cluster.says(node, "cat /opt/deeplearning/data/cifar10/*.bin | wc -c") == str(6 * 60 * 3073)
    mirror = f"s3://{data_bucket(cluster)}/mirror/"
    s3 = cluster.cloud.client("s3")
    for name, content in (digits("train", 600) | digits("t10k", 100)).items():
        packed = gzip.compress(content, mtime=0)
        s3.put_object(Bucket=data_bucket(cluster), Key=f"mirror/{name}.gz", Body=packed)
    cluster.says(MASTER, "sudo rm -r /efs/data/mnist")
    more: dict[str, Any] = {"data_source": mirror, "run_id": "mirror", "nodes": 1, "script_args": quick}
    mirrored = cluster.play("train.yml", framework="mxnet", dataset="mnist", **more)
    assert mirrored.code == 0 and "run mirror has finished" in mirrored.output, mirrored.output[-6000:]


def test_objects_of_a_bucket_are_trained_on_by_their_address(training_cluster: Cluster, tmp_path: Path) -> None:
    cluster, bucket = training_cluster, data_bucket(training_cluster)
    for key in ("pictures/1.jpg", "pictures/more/2.jpg", "others/3.jpg"):
        cluster.cloud.client("s3").put_object(Bucket=bucket, Key=key, Body=key.encode())
    (tmp_path / "shows.py").write_text(SHOWS)
    script: dict[str, Any] = {"script": str(tmp_path / "shows.py"), "python": "/usr/bin/python3", "run_id": "pictures"}
    ran = cluster.play(
        "train.yml", framework="pytorch", dataset=f"s3://{bucket}/pictures", script_args=["{data}"], **script
    )
    assert ran.code == 0, ran.output[-6000:]
    (seen,) = set(cluster.says(MASTER, f"cat /efs/runs/{cluster.name}/pictures/seen*").splitlines())
    folder, count = seen.split()
    # The third file is the set's own record.
    assert folder.startswith("/efs/data/") and count == "3"
    assert cluster.says(MASTER, f"cat {folder}/more/2.jpg") == "pictures/more/2.jpg"


@pytest.mark.long
def test_a_staged_set_is_on_each_nodes_own_disk_and_a_missing_one_is_refused(
    training_cluster: Cluster, tmp_path: Path
) -> None:
    cluster, before = training_cluster, datetime.now(UTC)
    missing = cluster.play("train.yml", framework="pytorch", dataset="nothing", data_on="node", run_id="missing")
    sentence = (
        f"data is nothing, and this node has no folder /efs/data/nothing, and s3://{data_bucket(cluster)}/nothing is"
    )
    assert missing.code == 2 and sentence in " ".join(missing.output.split()), missing.output[-6000:]
    assert cluster.ssh(MASTER, f"ls -d /efs/runs/{cluster.name}/missing").returncode == 2
    photos = tmp_path / "photos"
    photos.mkdir()
    with tarfile.open(photos / "photos.tar", "w") as archive:
        for number in range(40):
            member = tarfile.TarInfo(f"{number}.jpg")
            member.size = 1000
            archive.addfile(member, io.BytesIO(bytes([number]) * 1000))
    staged = stage(cluster, "photos", photos)
    assert staged.code == 0, staged.output[-6000:]
    (tmp_path / "shows.py").write_text(SHOWS)
    script: dict[str, Any] = {
        "script": str(tmp_path / "shows.py"),
        "script_args": ["{data}"],
        "python": "/usr/bin/python3",
    }
    ran = cluster.play("train.yml", framework="pytorch", dataset="photos", data_on="node", run_id="photos", **script)
    assert ran.code == 0, ran.output[-6000:]
    seen = cluster.says(MASTER, f"cat /efs/runs/{cluster.name}/photos/seen*").splitlines()
    (folder,) = {line.split()[0] for line in seen}
    assert folder.startswith("/opt/deeplearning/data/photos-") and [line.split()[1] for line in seen] == ["41"] * 3
    assert cluster.ssh(MASTER, "ls -d /efs/data/photos").returncode == 2
    # Each node has read the archive once: three objects are its whole content, and their manifests are not counted.
    assert transfers(cluster, "photos", before).count("GetObject") == 3
