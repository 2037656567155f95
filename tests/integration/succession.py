"""A cluster that default destroy.yml removes, and the next one of its name, which finds what the first has left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.integration.machines import Cluster
from tests.integration.runs import MASTER, Runs
from tests.integration.unkind import Unkind


@dataclass
class Succession:
    first: dict[str, Any]
    """the member list of the first cluster: a master"""
    run_id: str
    """a run of the first cluster, which counted to 4"""
    kept: str
    """what destroy.yml printed"""
    unkind: Unkind
    """what the image of the first cluster's machine had"""

    @classmethod
    def of(cls, cluster: Cluster) -> Succession:
        """Make the first cluster and train on it, remove it, and make the next: a master and a worker, watched."""
        unkind = Unkind(locked=20, mirror=25)
        image = unkind.make_image(cluster.cloud, cluster.settings["cluster_image"], f"{cluster.name}-debian-12")
        made = cluster.play("site.yml", cluster_worker_count=0, cluster_image=image)
        assert made.code == 0, made.output[-6000:]
        unkind.assert_met(cluster, MASTER)
        first, runs = cluster.members(), Runs(cluster)
        run_id = runs.start("counts.py", "4")
        assert runs.wait(run_id) == 0, runs.show(run_id)
        assert cluster.says(MASTER, f"ls {runs.root}/{run_id}/checkpoints").split() == ["1", "2", "3", "4"]
        removed = cluster.play("destroy.yml", destroy=cluster.name)
        assert removed.code == 0, removed.output[-6000:]
        assert not cluster.machines()
        again = cluster.play("site.yml", cluster_worker_count=1, cluster_monitoring=True)
        assert again.code == 0, again.output[-6000:]
        return cls(first, run_id, removed.output, unkind)
