"""health.yml before a long training: the real exchange between all ranks, and what a node has that others have not."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.integration.machines import Cluster

OTHER = "deeplearning-worker3"
MARKER = "/opt/deeplearning/env/mxnet/.deeplearning.json"


def verdict(cluster: Cluster, framework: str) -> tuple[int, str, dict[tuple[str, str], dict[str, Any]]]:
    """Run health.yml, and return its exit code, its output, and its checks by node and name."""
    ran = cluster.play("health.yml", framework=framework, health_scope="training")
    file = cluster.cloud.folder / ".deeplearning" / f"{cluster.name}.health.json"
    checks = json.loads(file.read_text())["checks"]
    return ran.code, ran.output, {(check["node"], check["name"]): check for check in checks}


def test_before_a_training_all_add_up_together_and_another_version_on_a_node_is_found(
    training_cluster: Cluster,
) -> None:
    code, text, checks = verdict(training_cluster, "pytorch")
    assert code == 0 and re.search(r"is healthy: 3 nodes, all \d+ checks pass\.", text), text[-6000:]
    assert {name for node, name in checks if node == OTHER} >= {"ssh", "efs", "names", "bandwidth", "versions"}
    assert checks["all", "all-reduce"]["detail"].startswith("3 ranks, ") and checks["all", "space"]["ok"]

    training_cluster.says(OTHER, f'sudo sed -i.kept \'s/"requirements_sha256": *"/&0/\' {MARKER}')
    try:
        code, text, checks = verdict(training_cluster, "mxnet")
    finally:
        training_cluster.says(OTHER, f"sudo mv {MARKER}.kept {MARKER}")
    assert code == 2 and "is not healthy: 1 check fails." in text, text[-6000:]
    assert [place for place, check in checks.items() if not check["ok"]] == [(OTHER, "versions")]
    assert "what to do: ansible-playbook deeplearning.aws.train -e framework=mxnet" in text
