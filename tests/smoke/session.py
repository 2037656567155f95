"""What the stages share: the account, its clusters, and playbooks that are played as a person plays them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils.aws.client import Aws
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resource_reader import ResourceReader
from ansible_collections.deeplearning.aws.plugins.plugin_utils.resources.resources import count_by_kind

from tests.processes import kill_marked
from tests.smoke import recording
from tests.smoke.spending import FREE, Price
from tests.steps import Failed, reason

ROOT = Path(__file__).resolve().parents[2]
HOOK = Path(__file__).resolve().parent / "hook"
PROGRAM: Sequence[str | Path] = (Path(sys.executable).parent / "ansible-playbook",)
TAG = "aws-smoke"
"""On all resources of the command's clusters: when their time to live ends. Nothing else sets it."""
TTL_HOURS = 1
"""After so many hours AWS ends the machines."""
LIFE_SECONDS = 2 * 3600
"""After so many seconds the next start of the command destroys what is left of a cluster."""
RUN = "SMOKE_RUN"
"""In the environment of each process of a playbook: which one it belongs to."""
GRACE_SECONDS = 30.0
DESTROY_ATTEMPTS = 3
OF_DESTROY = ("cluster_region", "destroy_stuck_seconds")
"""Settings that destroy.yml takes."""


@dataclass
class Cluster:
    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    created_at: float = 0.0
    price: Price = FREE


@dataclass
class Session:
    folder: Path
    """The playbooks run here, and leave what they print."""
    aws: Aws
    environment: Mapping[str, str]
    settings: Mapping[str, Any]
    """Of every cluster."""
    stamp: str
    """The name of a cluster is `smoke-<stamp>-<what>`."""
    program: Sequence[str | Path] = PROGRAM
    clock: Callable[[], float] = time.time
    clusters: list[Cluster] = field(default_factory=list)
    """Those that may exist."""
    ended_usd: float = 0.0
    """What the clusters that are destroyed have cost."""
    stage: str = ""

    @property
    def record(self) -> Path:
        return Path(os.environ[recording.RECORD])

    @property
    def prefix(self) -> str:
        return f"smoke-{self.stamp}"

    def begin(self, stage: str) -> None:
        self.stage = os.environ[recording.STAGE] = stage

    def cluster(self, what: str, price: Price, **settings: Any) -> Cluster:
        """Name a cluster that playbooks are about to create. It is destroyed at the end at the latest."""
        end = datetime.fromtimestamp(self.clock() + LIFE_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = f"{self.prefix}-{what}"
        own = {"cluster_name": name, "cluster_tags": {TAG: end}, "cluster_ttl_hours": TTL_HOURS}
        cluster = Cluster(name, {**self.settings, **own, **settings}, self.clock(), price)
        self.clusters.append(cluster)
        return cluster

    def play(self, playbook: str, variables: Mapping[str, Any], *arguments: str) -> str:
        """Play a playbook, and return what it printed. Its end by an exception is that of all its processes."""
        log = self.folder / f"{self.stage}-{len(list(self.folder.glob('*.log'))):02}-{Path(playbook).stem}.log"
        mark = uuid.uuid4().hex
        child: subprocess.Popen[bytes] | None = None
        code = 0
        try:
            with log.open("wb") as output:
                child = subprocess.Popen(
                    [*self.program, str(ROOT / playbook), *arguments, "-e", json.dumps(dict(variables))],
                    cwd=self.folder,
                    env=self._variables(mark),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            code = child.wait()
        finally:
            _end(child, mark)
        text = log.read_text(encoding="utf-8", errors="replace")
        if code:
            raise Failed(f"{Path(playbook).name} ended with {code}: {reason(text)} (all of it: {log})")
        return text

    def _variables(self, mark: str) -> dict[str, str]:
        paths = [str(HOOK), *filter(None, [self.environment.get("PYTHONPATH")])]
        return {
            **self.environment,
            **{name: os.environ[name] for name in (recording.RECORD, recording.NAMES, recording.STAGE)},
            RUN: mark,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_FORCE_COLOR": "0",
            "PYTHONPATH": os.pathsep.join(paths),
        }

    def spent(self) -> float:
        """Return what the clusters have cost at most: by the hour, and what their machines may have fetched."""
        return self.ended_usd + sum(self._cost(cluster) for cluster in self.clusters)

    def _cost(self, cluster: Cluster) -> float:
        return cluster.price.setup + cluster.price.hourly * (self.clock() - cluster.created_at) / 3600

    def leftovers(self, name: str) -> list[str]:
        """Return what of a cluster exists, such as `1 VPC`."""
        return count_by_kind(ResourceReader(self.aws, name).read().current)

    def destroy(self, cluster: Cluster) -> None:
        """Remove a cluster with its file system, and ask AWS whether anything is left."""
        which = {key: value for key, value in cluster.settings.items() if key in OF_DESTROY}
        consent = {**which, "cluster_name": cluster.name, "destroy": cluster.name, "cluster_keep_efs": False}
        problem = ""
        for _attempt in range(DESTROY_ATTEMPTS):
            try:
                self.play("destroy.yml", consent)
            except Failed as failure:
                problem = str(failure)
                continue
            left = self.leftovers(cluster.name)
            if not left:
                self.play("playbooks/audit.yml", {**which, "cluster_name": cluster.name, "audit": cluster.name})
                self.ended_usd += self._cost(cluster)
                self.clusters.remove(cluster)
                return
            problem = f"{cluster.name} still has {', '.join(left)}"
        raise Failed(problem)


def _end(child: subprocess.Popen[bytes] | None, mark: str) -> None:
    """End a playbook: as Ctrl-C does, and what is left of it by force."""
    if child and child.poll() is None:
        os.killpg(child.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
    kill_marked(f"{RUN}={mark}")
    if child:
        child.wait()
