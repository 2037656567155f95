"""EMR on booted machines: emr.yml makes a cluster whose nodes are members and train as hadoop, and follows its size."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localcloud.testing.booted import wait_for
from tests.account.census import WHOLE_EMR, census
from tests.changed_lines import changed
from tests.digits import digits
from tests.integration.emr import SETTINGS, end_of_bootstrap, logs_of, readable_bucket, run_job_flow
from tests.integration.kills import Moment, kill_at, kill_when, marked
from tests.integration.machines import Cloud, Cluster, Played, localcloud
from tests.integration.old_scripts import EMR_SCRIPTS

MASTER = "deeplearning-master"
NODES = (MASTER, "deeplearning-worker2")
THREE_NODES = {**SETTINGS, "worker_count": 2}
FILE = "/home/hadoop/worker_ip_file"

# It reads S3 in place, as old scripts did with the MXNet of Deep Learning AMIs.
SCRIPT = """
import getpass
import os
import sys

import mxnet as mx

batch_size = 50
train_dataiter = mx.io.MNISTIter(
    image="s3://bucket-name/training-data/train-images-idx3-ubyte",
    label="s3://bucket-name/training-data/train-labels-idx1-ubyte",
    data_shape=(1, 28, 28),
    label_name="sm_label",
    batch_size=batch_size,
)
digits = mx.sym.FullyConnected(mx.sym.flatten(mx.sym.var("data")), num_hidden=10)
module = mx.mod.Module(mx.sym.SoftmaxOutput(digits, name="sm"), label_names=["sm_label"])
store = mx.kv.create("dist_sync")
module.fit(train_dataiter, num_epoch=1, kvstore=store)
train_dataiter.reset()
count = batch_size * sum(1 for batch in train_dataiter)
print(f"rank {store.rank} of {store.num_workers} runs as {getpass.getuser()} and has read {count} digits", flush=True)
sys.exit(any(name.startswith("AWS_ACCESS_KEY") for name in os.environ))
"""


def message(played: Played) -> str:
    return " ".join(played.output.split())


def addresses(cluster: Cluster) -> list[str]:
    addresses = [str(machine["PrivateIpAddress"]) for machine in cluster.machines().values()]
    return sorted(addresses, key=lambda address: [int(part) for part in address.split(".")])


def check_nodes(cluster: Cluster, names: Sequence[str]) -> None:
    """Check the user, the variables, in a shell that is no login shell, and the files on every node."""
    for name in names:
        line = "whoami; printenv DEEPLEARNING_WORKERS_PATH DEEPLEARNING_WORKERS_COUNT EFS_MOUNT"
        expected = ["hadoop", "/opt/deeplearning/workers", str(len(names)), "/efs"]
        assert cluster.says(name, line).split() == expected, name
        assert cluster.says(name, "printenv DEEPLEARNING_WORKER_GPU_COUNT") == "0"
        assert cluster.says(name, f"cat {FILE}").split() == addresses(cluster), name


@pytest.fixture
def bucket(emr_cluster: Cluster) -> str:
    """Return a bucket of the user with digits, which the cluster may read."""
    s3, name = emr_cluster.cloud.client("s3"), readable_bucket(emr_cluster.name)
    s3.create_bucket(Bucket=name)
    for file, content in digits("train", 600).items():
        s3.put_object(Bucket=name, Key=f"training-data/{file}", Body=content)
    return name


def test_the_nodes_are_members_and_train_as_hadoop(emr_cluster: Cluster, bucket: str, tmp_path: Path) -> None:
    """MXNet reads on each node its own copy of what is in S3, by the lines that docs/emr.md changes."""
    check_nodes(emr_cluster, NODES)
    script = tmp_path / "train.py"
    script.write_text(changed(SCRIPT))
    data = f"s3://{bucket}/training-data"
    arguments = {"framework": "mxnet", "script": str(script), "dataset": data, "data_on": "node", "run_id": "who"}
    trained = emr_cluster.play("train.yml", **arguments)
    assert trained.code == 0, trained.output[-6000:]
    logs = emr_cluster.says(MASTER, f"cat /efs/runs/{emr_cluster.name}/who/logs/*.worker*.log")
    printed = [line.partition(" ")[2] for line in logs.splitlines()]
    users = sorted(line for line in printed if " runs as " in line)
    assert users == [f"rank {rank} of 2 runs as hadoop and has read 600 digits" for rank in range(2)]
    # Nothing of the data is on the file system.
    assert emr_cluster.says(MASTER, "find /efs -name '*idx3*'") == ""

    unchanged = emr_cluster.ssh(MASTER, "/opt/deeplearning/env/mxnet/bin/python -", input=SCRIPT)
    assert "Please compile with DMLC_USE_S3=1 to use S3" in unchanged.stderr, unchanged.stdout + unchanged.stderr


@pytest.mark.long
@pytest.mark.parametrize("framework", ["mxnet", "tensorflow"])
def test_a_framework_trains_on_emr(emr_cluster: Cluster, framework: str) -> None:
    trained = emr_cluster.play("train.yml", framework=framework, dataset="generated", script_args=["--epochs", "1"])
    assert trained.code == 0, trained.output[-6000:]
    assert "has finished" in trained.output


@pytest.mark.long
def test_a_metadata_script_for_emr_works(emr_cluster: Cluster) -> None:
    printed = emr_cluster.says(MASTER, EMR_SCRIPTS["metadata_setup.sh"])
    expected = [word for _host in NODES for word in ("hadoop", *addresses(emr_cluster))]
    assert printed.splitlines() == [*expected, "2 workers with 0 GPUs"]


@pytest.mark.long
def test_a_second_run_changes_nothing_and_a_new_size_is_followed(emr_cluster: Cluster) -> None:
    again = emr_cluster.play("emr.yml")
    assert (again.code, again.changed) == (0, 0), again.output[-6000:]
    for count, consent in ((2, {}), (1, {"remove_workers": 1})):
        resized = emr_cluster.play("emr.yml", cluster_worker_count=count, **consent)
        assert resized.code == 0, resized.output[-6000:]
        check_nodes(emr_cluster, [MASTER, *(f"deeplearning-worker{rank}" for rank in range(2, count + 2))])


@pytest.mark.long
def test_an_old_bootstrap_action_mounts_the_file_system(emr_cluster: Cluster) -> None:
    system = emr_cluster.says(MASTER, "findmnt -no SOURCE /efs").partition(".")[0]
    flow = run_job_flow(emr_cluster, "mount.sh", EMR_SCRIPTS["emr_efs_bootstrap.sh"], system, "us-east-1")
    try:
        status = end_of_bootstrap(emr_cluster, flow, 180)
        assert status["State"] == "WAITING", (status, logs_of(emr_cluster, flow, "stderr"))
        assert len(emr_cluster.says(MASTER, "ls -d /efs/mounted-by-*").split()) == 3
    finally:
        emr_cluster.cloud.client("emr").terminate_job_flows(JobFlowIds=[flow])


def fill_disk_of_a_core_node(cluster: Cluster) -> str:
    """Leave the first core node that boots no room for the collection's files. Return its id."""

    def core_nodes() -> list[str]:
        tags = {
            name: {tag["Key"]: tag["Value"] for tag in one["Tags"]}["aws:elasticmapreduce:instance-group-role"]
            for name, one in cluster.machines().items()
        }
        return [name for name, role in tags.items() if role == "CORE"]

    node = wait_for(core_nodes, 500, "a core node runs")[0]
    fill = "mkdir -p /opt/deeplearning && mount -t tmpfs -o size=64k full /opt/deeplearning"
    wait_for(
        lambda: localcloud("exec", node, "--", "sh", "-c", fill).returncode == 0, 120, f"the disk of {node} is full"
    )
    return node


@pytest.mark.long
def test_a_full_disk_on_one_of_three_nodes_ends_the_cluster_and_is_named(
    cloud_with_machines: Cloud, image: str
) -> None:
    with (
        cloud_with_machines.cluster(f"f-{secrets.token_hex(3)}", **THREE_NODES) as cluster,
        ThreadPoolExecutor(1) as pool,
    ):
        filling = pool.submit(fill_disk_of_a_core_node, cluster)
        failed = cluster.play("emr.yml", emr_poll_seconds=1)
        node = filling.result()
        assert failed.code == 2, failed.output[-6000:]
        assert f"On 1 slave instances (including {node}), bootstrap action 1 returned" in message(failed)
        assert "Nothing keeps running." in message(failed)
        details = cluster.cloud.folder / ".deeplearning" / f"{cluster.name}.json"
        assert "No space left on device" in details.read_text() and str(details) in failed.output
        assert not cluster.machines()


PLACES = random.Random(16)
WAITING, DELETING = "emr j-", "still there: "
"""Parts of the first line that emr.yml prints while it waits for EMR, and destroy.yml while it deletes resources."""


@pytest.mark.long
def test_killed_at_random_it_is_finished(cloud_with_machines: Cloud, image: str) -> None:
    name = f"k-{secrets.token_hex(3)}"
    with cloud_with_machines.cluster(name, **THREE_NODES) as cluster, marked(cloud_with_machines):
        before = census(cluster.cloud)
        moment = Moment(PLACES.randint(15, 40), PLACES.uniform(0, 3))
        assert kill_at(moment, cluster, "emr.yml", emr_poll_seconds=1)
        waited = PLACES.uniform(0, 30)
        kill_when(lambda progress: WAITING in progress.output, cluster, "emr.yml", after=waited, emr_poll_seconds=1)
        finished = cluster.play("emr.yml", emr_poll_seconds=1)
        assert finished.code == 0, finished.output[-6000:]
        check_nodes(cluster, (*NODES, "deeplearning-worker3"))
        assert census(cluster.cloud) - before == WHOLE_EMR


@pytest.mark.long
def test_it_is_destroyed_also_after_a_kill(cloud_with_machines: Cloud, image: str) -> None:
    name, kept = f"d-{secrets.token_hex(3)}", Counter({"file system": 1})
    with cloud_with_machines.cluster(name, **THREE_NODES) as cluster, marked(cloud_with_machines):
        before = census(cluster.cloud)
        made = cluster.play("playbooks/provision.yml", emr=True, emr_poll_seconds=1)
        assert made.code == 0, made.output[-6000:]
        assert census(cluster.cloud) - before == WHOLE_EMR

        waited = PLACES.uniform(0, 1)
        kill_when(lambda progress: DELETING in progress.output, cluster, "destroy.yml", after=waited, destroy=name)
        destroyed = cluster.play("destroy.yml", destroy=name)
        assert destroyed.code == 0, destroyed.output[-6000:]
        assert census(cluster.cloud) - before == kept and not cluster.machines()
        destroyed = cluster.play("destroy.yml", destroy=name, cluster_keep_efs=False)
        assert destroyed.code == 0, destroyed.output[-6000:]
        assert census(cluster.cloud) == before
