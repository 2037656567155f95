"""A cluster of a GPU type: its GPUs are made up, but what reads, counts and judges them is what runs on AWS."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

import pytest

from localcloud.testing.booted import wait_for
from localcloud.testing.gpus import DRIVER, STATE
from tests.debian import installed_program
from tests.integration.machines import Cloud, Cluster
from tests.integration.runs import MASTER, Runs

TYPE, GPUS = "g5.12xlarge", 4
MASTER_ALIAS, WORKER = "deeplearning-worker1", "deeplearning-worker2"
NODES = [MASTER, WORKER]


@pytest.fixture(scope="module")
def cluster(cloud_with_machines: Cloud, image: str) -> Iterator[Cluster]:
    """Yield a master and a worker."""
    installed_program("cc", "gcc", "libc6-dev")
    name = f"g-{secrets.token_hex(3)}"
    with cloud_with_machines.cluster(name, worker_count=1, image=image, instance_type=TYPE) as cluster:
        made = cluster.play("site.yml")
        assert made.code == 0, made.output[-6000:]
        yield cluster


def report(cluster: Cluster, node: str, *lines: str) -> None:
    """Let a node's library report something else, and the node report it as its timer does every minute. What its timer
    has begun before is begun again."""
    cluster.says(node, f"printf '%s\\n' {' '.join(map(repr, lines))} | sudo tee -a {STATE}")
    cluster.says(node, "sudo systemctl restart deeplearning-report.service")


def test_a_run_on_the_processors_has_a_process_for_each_gpu(cluster: Cluster) -> None:
    assert [cluster.says(node, "printenv DEEPLEARNING_WORKER_GPU_COUNT") for node in NODES] == [str(GPUS)] * 2
    hostfile = cluster.says(MASTER, "cat /opt/deeplearning/hostfile").splitlines()
    assert [line.split()[-1] for line in hostfile if "slots" in line] == [f"slots={GPUS}"] * 2
    assert [(member["gpus"], member["slots"]) for member in cluster.members()["members"]] == [(GPUS, GPUS)] * 2

    trained = cluster.play(
        "train.yml", framework="pytorch", processor=True, dataset="generated", run_id="one", script_args=["--epochs=1"]
    )
    assert trained.code == 0, trained.output[-6000:]
    assert f"{WORKER}: {GPUS} workers" in trained.output and "preflight" not in trained.output
    runs = Runs(cluster)
    shown = runs.show("one")
    assert shown["run"]["processor"] and shown["run"]["versions"]["torch"].endswith("+cpu")
    assert [process["node"] for process in shown["processes"]] == [MASTER_ALIAS] * GPUS + [WORKER] * GPUS

    run_id = runs.start("environment.py", processor=True)
    assert runs.wait(run_id) == 0
    for rank in range(2 * GPUS):
        variables = json.loads(runs.log(run_id, f"worker{rank}").partition(" ")[2])
        expected = {"RANK": str(rank), "LOCAL_RANK": str(rank % GPUS), "LOCAL_WORLD_SIZE": str(GPUS)}
        assert {name: variables[name] for name in (*expected, "CUDA_VISIBLE_DEVICES")} == {
            **expected,
            "CUDA_VISIBLE_DEVICES": "",
        }


def test_a_run_waits_for_gpu_memory_and_then_names_node_gpu_and_process(cluster: Cluster) -> None:
    """With a Python that has no framework, so that no proof is needed."""
    runs, pid = Runs(cluster), 2**22 + 1
    held = f"{WORKER}: its GPU 1 holds memory of process {pid}"
    report(cluster, WORKER, f"1.processes {pid}:1024")
    refused = runs.start("sleeps.py")
    wait_for(lambda: held in runs.show(refused)["reason"], 120, "it waits")
    assert runs.wait(refused) == 1
    assert held in runs.show(refused)["result"]["sentence"]

    waiting = runs.start("sleeps.py")
    wait_for(lambda: held in runs.show(waiting)["reason"], 120, "it waits")
    report(cluster, WORKER, "1.processes ")
    runs.running(waiting)
    assert runs.ask("stop", waiting).returncode == 0


def test_a_run_on_the_gpus_ends_before_training_with_what_its_framework_lacks(cluster: Cluster) -> None:
    """The nodes have the packages for processors, as for the runs above."""
    runs = Runs(cluster)
    run_id = runs.start("environment.py", python=None)
    assert runs.wait(run_id) == 1
    shown = runs.show(run_id)
    version = shown["run"]["versions"]["torch"]
    assert shown["result"]["attempts"] == [] and version.endswith("+cpu")
    sentence = shown["result"]["sentence"]
    assert f"torch {version} sees 0 of {GPUS} GPUs (driver {DRIVER}, CUDA of torch: none): its environment" in sentence
    assert sentence.endswith("when no other run uses it. To train without GPUs: -e processor=true"), sentence


def test_status_and_health_show_what_nvidias_library_reports(cluster: Cluster) -> None:
    for node in NODES:
        assert cluster.says(node, "systemctl is-enabled nvidia-persistenced") == "enabled"
        query = "nvidia-smi --query-gpu=persistence_mode --format=csv,noheader"
        assert cluster.says(node, query).splitlines() == ["Enabled"] * GPUS
    report(cluster, WORKER, "busy 88", f"memory_used {12 * 2**30}")
    status = cluster.play("status.yml")
    assert status.code == 0 and f"{GPUS}: 88 % busy, 54 % memory" in status.output, status.output

    report(cluster, WORKER, "2.lost 1")
    lost = cluster.play("health.yml")
    assert lost.code == 2, lost.output
    file = cluster.cloud.folder / ".deeplearning" / f"{cluster.name}.health.json"
    details = {(check["node"], check["name"]): check["detail"] for check in json.loads(file.read_text())["checks"]}
    # The master may have read the worker's report meanwhile, and then says that their numbers differ.
    assert (details[MASTER, "gpus"].partition(",")[0], details[MASTER, "driver"]) == (str(GPUS), DRIVER)
    assert f"{GPUS - 1} answer, the type has {GPUS} (GPU 2: GPU is lost)" in " ".join(lost.output.split()), lost.output
    faulty = cluster.play("status.yml")
    assert f"Problem: {WORKER}: GPU 2: GPU is lost" in faulty.output, faulty.output
