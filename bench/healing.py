"""How soon a lost machine's replacement is a member and the training goes on, and what a quiet cluster asks of AWS.

On booted machines, without an operator: there is no playbook and no login between a loss and its end. Needs a quiet
machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from report import Row, write  # noqa: E402

from localcloud.testing import booted  # noqa: E402
from localcloud.testing.booted import wait_for  # noqa: E402
from tests.integration.clusters import FRAMEWORKS, IMAGE_WITH_FRAMEWORKS  # noqa: E402
from tests.integration.healing import ClusterView, start_training  # noqa: E402
from tests.integration.machines import Cloud, Cluster, cloud_in, localcloud  # noqa: E402
from tests.integration.runs import Runs  # noqa: E402

HEALED_SECONDS = 240
QUIET_MINUTES = 5
SILENT_SECONDS = 25
"""Without a call, the checks that follow a change are over. The next ones come every half minute."""
MASTER, WORKER = "deeplearning-worker1", "deeplearning-worker2"
SSHD_SINCE = "systemctl show ssh --value --property=ActiveEnterTimestampMonotonic"
"""In microseconds of the clock that machines share with this process."""


@dataclass(frozen=True)
class Loss:
    view: ClusterView
    name: str
    instance: str
    began: float

    def healed(self) -> float:
        """Wait for the replacement. Return the seconds from its sshd to its membership."""
        wait_for(self._is_healed, HEALED_SECONDS, f"another {self.name}")
        now = time.monotonic()
        up = localcloud("exec", self.view.instances()[self.name], "--", *SSHD_SINCE.split()).stdout
        return now - int(up) / 1e6

    def _is_healed(self) -> bool:
        return self.view.is_complete() and self.view.instances()[self.name] != self.instance


def kill(view: ClusterView, name: str) -> Loss:
    loss = Loss(view, name, view.instances()[name], time.monotonic())
    booted.add_fault("kill", {"instance": loss.instance})
    return loss


def running_attempt(view: ClusterView, run_id: str, last: int) -> int:
    """Return the number of the attempt that runs and comes after the last, counted from 1; 0 if there is none yet."""
    run = view.run_record(run_id, "state.json")
    attempt = int(run.get("attempt") or 0) + 1
    return attempt if run.get("state") == "running" and attempt > last else 0


def resumed(cluster: Cluster) -> list[Row]:
    """Kill a worker and then the master of a training on three nodes."""
    runs, view = Runs(cluster), ClusterView(cluster)
    run_id = start_training(runs, "--max-steps", str(10**7), "--checkpoint-steps", "20", max_restarts=1000)
    attempt = wait_for(partial(running_attempt, view, run_id, 0), 60, f"{run_id} runs")
    rows = []
    for name, what, limit in ((WORKER, "worker", 90), (MASTER, "master", 120)):
        loss = kill(view, name)
        seconds = loss.healed()
        attempt = wait_for(partial(running_attempt, view, run_id, attempt), HEALED_SECONDS, f"{run_id} runs again")
        rows.append(Row(f"from a killed {what} to the resumed training", time.monotonic() - loss.began, "s", limit))
        if what == "worker":
            text = "from sshd to member, the environment in the image"
            rows.append(Row(text, seconds, "s", 25))
    assert cluster.play("status.yml").code == 0
    assert runs.ask("stop", run_id).returncode == 0
    return rows


def calls_a_minute() -> float:
    wait_for(lambda: not booted.calls(since=time.time() - SILENT_SECONDS), HEALED_SECONDS, "a quiet cluster")
    began = time.time()
    time.sleep(QUIET_MINUTES * 60)  # what happens in a time is what is measured
    return len(booted.calls(since=began)) / QUIET_MINUTES


def baked(cluster: Cluster) -> str:
    """Return the id of an image that image.yml has made."""
    made = cluster.play("playbooks/image.yml", image_frameworks=["pytorch"])
    assert made.code == 0, made.output[-6000:]
    ours = [{"Name": "tag:deeplearning:cluster", "Values": [cluster.name]}]
    (image,) = cluster.cloud.client("ec2").describe_images(Owners=["self"], Filters=ours)["Images"]
    return str(image["ImageId"])


def create(cluster: Cluster) -> None:
    created = cluster.play("site.yml")
    assert created.code == 0, created.output[-6000:]


def measure(cloud: Cloud) -> list[Row]:
    with cloud.cluster("healing", worker_count=2, image=cloud.image(IMAGE_WITH_FRAMEWORKS)) as cluster:
        create(cluster)
        rows = resumed(cluster)
        rows.append(Row("calls to AWS a minute of a quiet cluster", calls_a_minute(), "", 6))
        image = baked(cluster)
    with cloud.cluster("healing-baked", worker_count=1, image=image, default_framework="pytorch") as cluster:
        create(cluster)
        view = ClusterView(cluster)
        seconds = kill(view, WORKER).healed()
        rows.insert(2, Row("from sshd to member, an image of image.yml", seconds, "s", 12))
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, cloud_in(Path(folder)) as cloud:
        built = localcloud("image", "build", "--with", FRAMEWORKS, timeout=1500)
        assert built.returncode == 0, built.stderr
        before = os.getloadavg()[0]
        rows = measure(cloud)
    more = f"\nThe load was {before:.1f} at the beginning. A machine is a member when all members' lists have it."
    write("healing", "Machines that are replaced", rows, more)


if __name__ == "__main__":
    main()
