"""Before a run, train.yml tests the connections of its nodes, and names the one that is slower than the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from localcloud.testing.booted import run_in_network_of
from tests.integration.machines import Cluster, Played

SLOW = "deeplearning-worker2"
LIMIT = ("tbf", "rate", "50mbit", "burst", "64kb", "latency", "50ms")


def test_a_node_with_a_slow_connection_is_named_before_the_run(training_cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "short.py"
    script.write_text("print('trained')\n")
    interface = training_cluster.says(SLOW, "ip -o route get 169.254.169.254").partition(" dev ")[2].split()[0]
    rank = {"Key": "deeplearning:rank", "Value": "2"}
    (slow,) = (id_ for id_, machine in training_cluster.machines().items() if rank in machine["Tags"])

    def limit(action: str, *words: str) -> None:
        """Change the limit from the host, as root in a machine must not configure its network."""
        run_in_network_of(slow, "tc", "qdisc", action, "dev", interface, "root", *words)

    def train(**more: Any) -> Played:
        return training_cluster.play(
            "train.yml", framework="pytorch", python="/usr/bin/python3", script=str(script), **more
        )

    limit("add", *LIMIT)
    try:
        refused = train(preflight=True, run_id="slow")
    finally:
        limit("del")
    message = " ".join(refused.output.split())
    assert refused.code == 2 and f"The preflight fails: {SLOW} has 0.0" in message, refused.output[-4000:]
    assert "deeplearning-master has" not in message and "deeplearning-worker1 has" not in message
    assert training_cluster.ssh("deeplearning-master", "deeplearning run show slow").returncode == 2

    trained = train(preflight=True, run_id="fast")
    assert trained.code == 0, trained.output[-4000:]
