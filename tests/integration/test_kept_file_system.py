"""A cluster on the file system that default destroy.yml has kept, with monitoring, which grows while it trains."""

from __future__ import annotations

import json
import re
import urllib.parse
from concurrent.futures import Future
from typing import Any

from localcloud.testing.booted import wait_for
from tests.integration.machines import Cluster
from tests.integration.runs import MASTER, Runs
from tests.integration.succession import Succession

WORKERS = ("deeplearning-worker1", "deeplearning-worker2", "deeplearning-worker3")
SECONDS = 120
"""Prometheus reads every 15 seconds, and so does the timer of the runs' figures."""


def asked(cluster: Cluster, query: str) -> dict[str, str]:
    """Return what Prometheus on the master answers: a value for each member or run."""
    address = "http://127.0.0.1:9090/api/v1/query?" + urllib.parse.urlencode({"query": query})
    code = f"import urllib.request as r; print(r.urlopen({address!r}).read().decode())"
    series: list[dict[str, Any]] = json.loads(cluster.says(MASTER, f'python3 -c "{code}"'))["data"]["result"]
    return {sample["metric"].get("run") or sample["metric"]["instance"]: sample["value"][1] for sample in series}


def test_the_next_cluster_finds_what_was_kept_and_grows_while_it_trains(
    kept_file_system: tuple[Cluster, Future[Succession]],
) -> None:
    cluster, made = kept_file_system
    before = made.result()
    assert re.search(r"The file system \S+.* is kept", " ".join(before.kept.split())), before.kept
    now, runs = cluster.members(), Runs(cluster)
    assert now["cluster_id"] != before.first["cluster_id"]
    assert [member["rank"] for member in now["members"]] == [1, 2]
    assert not {member["instance_id"] for member in now["members"]} & {
        member["instance_id"] for member in before.first["members"]
    }
    # The first cluster's training continues from its checkpoint.
    resumed = cluster.play("train.yml", resume=before.run_id, script_args=["8"])
    assert resumed.code == 0, resumed.output[-3000:]
    assert runs.counted(before.run_id) == [(0, 1), (4, 2)]

    run_id = runs.start("meets.py")
    runs.running(run_id)
    wait_for(lambda: asked(cluster, 'up{job="node"} == 1').keys() == set(WORKERS[:2]), SECONDS, "members are watched")
    step = wait_for(lambda: asked(cluster, f'deeplearning_run_step{{run="{run_id}"}}'), SECONDS, "the run is watched")
    grown = cluster.play("site.yml", cluster_worker_count=2)
    assert grown.code == 0, grown.output[-6000:]
    assert [member["rank"] for member in cluster.members()["members"]] == [1, 2, 3]
    # The run went on meanwhile, where it was.
    assert runs.show(run_id)["state"] == "running" and cluster.used() == set(WORKERS[:2])
    wait_for(lambda: asked(cluster, 'up{job="node"} == 1').keys() == set(WORKERS), SECONDS, "the new one is watched")
    later = asked(cluster, f'deeplearning_run_step{{run="{run_id}"}}')
    assert float(later[run_id]) > float(step[run_id])
    stopped = cluster.play("stop.yml", run_id=run_id)
    assert stopped.code == 0, stopped.output[-3000:]
    assert [attempt["cause"] for attempt in runs.show(run_id)["result"]["attempts"]] == ["stopped"]
