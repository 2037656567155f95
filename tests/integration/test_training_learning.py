"""Ranks of our trainers on a master and two workers: that they work together, go on where they were, and are seen."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from localcloud.testing.booted import wait_for
from tests.browser import page_text, screenshot
from tests.integration.machines import Cluster

MASTER = "deeplearning-master"
LEARNS = ["--epochs", "2", "--batch-size", "16"]
GENERATE = "python3 /opt/deeplearning/trainers/generate.py"


@pytest.fixture(scope="module")
def cluster(training_cluster: Cluster) -> Cluster:
    return training_cluster


@pytest.fixture(scope="module")
def skewed(cluster: Cluster) -> str:
    """Three ranks each get classes that no other sees: alone, none can tell more than four of ten."""
    cluster.says(MASTER, f"{GENERATE} /efs/data/skewed --skew 3 --train 1500 --test 300")
    return "/efs/data/skewed"


@pytest.fixture(scope="module")
def trained(cluster: Cluster, skewed: str) -> str:
    train(cluster, "whole", framework="pytorch", data=skewed, script_args=LEARNS)
    return "whole"


def train(cluster: Cluster, run: str, **request: Any) -> None:
    """To its end, by the master's own command: the playbook around it is tested enough."""
    asked = request if "resume" in request else {"run_id": run, **request}
    created = cluster.ssh(MASTER, "deeplearning run create", input=json.dumps(asked))
    assert created.returncode == 0, created.stderr
    ended = cluster.ssh(MASTER, f"deeplearning run start {run} && deeplearning run wait {run}")
    assert ended.returncode == 0, cluster.says(MASTER, f"cat /efs/runs/{cluster.name}/{run}/result.json")


def curve(cluster: Cluster, run: str, rank: int = 0) -> list[dict[str, Any]]:
    """Return what a rank has reported at the end of each epoch."""
    lines = cluster.says(MASTER, f"cat /efs/runs/{cluster.name}/{run}/metrics/rank{rank}.jsonl").splitlines()
    return [metrics for line in lines if (metrics := json.loads(line))["val_accuracy"] is not None]


@pytest.mark.parametrize(
    ("framework", "distribution"),
    [("pytorch", "ddp"), pytest.param("mxnet", "dist_sync", marks=pytest.mark.long)],
)
def test_all_classes_are_learned_together_and_not_without_the_exchange(
    cluster: Cluster, skewed: str, trained: str, framework: str, distribution: str
) -> None:
    asked = {"framework": framework, "distribution": distribution, "data": skewed}
    together, alone = trained, f"{framework}-alone"
    if framework != "pytorch":
        together = f"{framework}-together"
        train(cluster, together, **asked, script_args=LEARNS)
    train(cluster, alone, **asked, script_args=[*LEARNS, "--no-exchange"])
    for rank in range(3):
        assert curve(cluster, together, rank)[-1]["val_accuracy"] > 0.8
        assert curve(cluster, alone, rank)[-1]["val_accuracy"] < 0.5


@pytest.mark.long
def test_a_run_that_goes_on_has_the_curve_of_one_that_was_not_interrupted(
    cluster: Cluster, skewed: str, trained: str
) -> None:
    train(cluster, "parted", framework="pytorch", data=skewed, script_args=[*LEARNS, "--epochs", "1"])
    train(cluster, "parted", resume="parted", script_args=LEARNS)
    for rank in range(3):
        for parted, whole in zip(curve(cluster, "parted", rank), curve(cluster, trained, rank), strict=True):
            assert (parted["epoch"], parted["step"]) == (whole["epoch"], whole["step"])
            assert parted["loss"] == pytest.approx(whole["loss"], abs=1e-3)
            # Sums in another order move a few of some 500 samples across the border.
            for what in ("accuracy", "val_accuracy"):
                assert parted[what] == pytest.approx(whole[what], abs=0.01)


@pytest.mark.long
def test_mxnets_own_files_of_records_are_read(cluster: Cluster) -> None:
    cluster.says(MASTER, f"{GENERATE} /efs/data/records --format recordio --train 600 --test 100")
    asked = {"framework": "mxnet", "distribution": "local", "nodes": 1, "data": "/efs/data/records"}
    train(cluster, "records", **asked, script_args=LEARNS)
    assert curve(cluster, "records")[-1]["val_accuracy"] > 0.5


def test_tensorboard_shows_the_curves_through_the_tunnel_that_is_printed(cluster: Cluster, trained: str) -> None:
    played = cluster.play("playbooks/tensorboard.yml", run_id=trained)
    assert played.code == 0, played.output
    (address,) = re.findall(rf"Open (http://{cluster.name}\.localhost:[0-9]+)", played.output)
    (command,) = re.findall(r"ssh -F [^\"\n]+ deeplearning-master", played.output)
    with subprocess.Popen(shlex.split(command), cwd=cluster.cloud.folder, stdin=subprocess.DEVNULL) as tunnel:
        try:
            query = f"{address}/data/plugin/scalars/scalars?run=.&tag=val_accuracy"
            points = json.loads(wait_for(lambda: page(query), 120, "TensorBoard has read the run's events"))
        finally:
            tunnel.send_signal(signal.SIGINT)
    expected = [(line["step"], pytest.approx(line["val_accuracy"])) for line in curve(cluster, trained)]
    assert [(step, value) for _time, step, value in points] == expected
    assert page(address) == ""
    # TensorBoard runs until it is stopped, so that the tunnel can be opened again.
    unit = f"deeplearning-tensorboard-{trained}.service"
    assert json.loads(cluster.says(MASTER, "deeplearning tensorboard stop all"))["stopped"] == [unit]


@pytest.mark.long
def test_the_status_page_shows_members_and_the_run_through_the_tunnel_that_is_printed(
    cluster: Cluster, trained: str, tmp_path: Path
) -> None:
    played = cluster.play("playbooks/status_page.yml")
    assert played.code == 0, played.output
    (address,) = re.findall(rf"Open (http://{cluster.name}\.localhost:[0-9]+)", played.output)
    (command,) = re.findall(r"ssh -F [^\"\n]+ deeplearning-master", played.output)
    with subprocess.Popen(shlex.split(command), cwd=cluster.cloud.folder, stdin=subprocess.DEVNULL) as tunnel:
        try:
            wait_for(lambda: page(address), 120, "the tunnel is open")
            # Nodes write their load once a minute.
            row = r"<tr><td>deeplearning-worker3</td>.* of \d+"
            wait_for(lambda: re.search(row, page(address)), 150, "all members have written their load")
            text = page_text(address)
            screenshot(address, tmp_path / "page.png")
        finally:
            tunnel.send_signal(signal.SIGINT)
    (shown,) = re.findall(rf"<h3>{trained} .*?</h3>.*?</div>", text)
    assert "finished" in shown and text.count('class="chart"') >= 3
    assert cluster.play("playbooks/status_page.yml", state="absent").code == 0
    assert json.loads(cluster.says(MASTER, "deeplearning page stop")) == {"changed": False, "stopped": []}


def page(address: str) -> str:
    """Return a page as a browser would, which takes every name below localhost for this machine."""
    host = urllib.parse.urlsplit(address).netloc
    local = address.replace(host, f"127.0.0.1:{host.rpartition(':')[2]}", 1)
    try:
        with urllib.request.urlopen(urllib.request.Request(local, headers={"Host": host}), timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""
