"""A cluster that loses machines, as the local cloud sees it: without ssh, without playbooks and without AWS's API."""

from __future__ import annotations

import contextlib
import json
import secrets
from pathlib import Path
from typing import Any

from localcloud.testing import booted
from tests.integration.machines import Cluster, Done, localcloud
from tests.integration.runs import MASTER, Runs

DATA = "/efs/data/learned"
TRAIN, BATCH = 3000, 16


class ClusterView:
    """The machines, the shared file system and the member list of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.name = cluster.name
        (file_system,) = (
            system["id"] for system in booted.status()["file_systems"] if system["name"] == f"{cluster.name}-efs"
        )
        self.efs = booted.file_system_folder(file_system)

    def machines(self) -> dict[str, int]:
        """Return the process of each machine that runs, by instance id."""
        return {
            instance["id"]: instance["pid"]
            for instance in booted.status()["instances"]
            if instance["pid"] and instance["state"] == "running" and instance["name"].startswith(f"{self.name}-")
        }

    @property
    def published_path(self) -> Path:
        return Path(self.efs, ".deeplearning", self.name, "members.json")

    def published(self) -> dict[str, Any]:
        """Return the member list; an exception says that it is torn."""
        record: dict[str, Any] = json.loads(self.published_path.read_bytes())
        return record

    def instances(self) -> dict[str, str]:
        """Return the ids of the members' instances by their names."""
        return {member["aliases"][0]: member["instance_id"] for member in self.published()["members"]}

    def is_complete(self) -> bool:
        """Return whether as many machines as are desired are members, and all of them use the newest list."""
        published, machines = self.published(), self.machines()
        members = [member["instance_id"] for member in published["members"]]
        return (
            len(members) == published["desired"]
            and set(members) <= set(machines)
            and all(self.applied(machines[id_]) == published for id_ in members)
        )

    def applied(self, pid: int) -> dict[str, Any]:
        """Return the member list that a machine uses."""
        with contextlib.suppress(OSError):
            record: dict[str, Any] = json.loads(file_of(pid, "/var/lib/deeplearning/members.json").read_bytes())
            return record
        return {}

    def run_file(self, run_id: str, name: str) -> Path:
        return Path(self.efs, "runs", self.name, run_id, name)

    def run_record(self, run_id: str, name: str) -> dict[str, Any]:
        """Return one of the run's files; nothing as long as it does not exist."""
        with contextlib.suppress(FileNotFoundError):
            record: dict[str, Any] = json.loads(self.run_file(run_id, name).read_bytes())
            return record
        return {}

    def on_master(self, *words: str, timeout: float = 300) -> Done:
        return localcloud("exec", self.instances()["deeplearning-worker1"], "--", *words, timeout=timeout)


def file_of(pid: int, path: str) -> Path:
    """Return a file of a machine, by one of its processes."""
    return Path(f"/proc/{pid}/root{path}")


def start_training(runs: Runs, *arguments: str, **request: Any) -> str:
    """Start a run of the PyTorch trainer on all nodes. Return its id."""
    generate = f"python3 /opt/deeplearning/trainers/generate.py {DATA} --train {TRAIN} --test 600"
    runs.cluster.says(MASTER, f"test -e {DATA}/GENERATED || {generate}")
    run_id = f"learns-{secrets.token_hex(2)}"
    options = ["--batch-size", str(BATCH), *arguments]
    asked = {"framework": "pytorch", "data": DATA, "run_id": run_id, "script_args": options, **request}
    created = runs.ask("create", stdin=json.dumps(asked))
    assert created.returncode == 0, created.stderr
    started = runs.ask("start", run_id)
    assert started.returncode == 0, started.stderr
    return run_id
