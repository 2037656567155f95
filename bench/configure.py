"""What configure.yml takes on 1 to 16 booted machines, by our settings and by Ansible's own. Needs a quiet machine.

Machines share the processors with Ansible: wall time holds both, processor time is that of the operator's side alone.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from report import Row, write  # noqa: E402

from tests.integration.machines import Cluster, Played, cloud_in  # noqa: E402

SIZES = (1, 4, 8, 16)
ANSIBLES_OWN = {
    "ANSIBLE_FORKS": "5",
    "ANSIBLE_PIPELINING": "False",
    "ANSIBLE_SSH_ARGS": "-C -o ControlMaster=auto -o ControlPersist=60s",
}
RUNS = ("first run", "second run", "second run by Ansible's own settings")


@dataclass(frozen=True)
class Cost:
    wall: float
    processor: float
    changed: int


def measured(play: Played, started: float, before: float) -> Cost:
    assert play.code == 0, play.output[-6000:]
    return Cost(time.monotonic() - started, _processor() - before, play.changed)


def _processor() -> float:
    """Of playbooks that have ended, and of the ssh that they started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def costs(cluster: Cluster) -> list[Cost]:
    made = cluster.play("playbooks/provision.yml")
    assert made.code == 0, made.output[-6000:]
    measurements = []
    for settings in ({}, {}, ANSIBLES_OWN):
        cluster.cloud.variables |= settings
        started, before = time.monotonic(), _processor()
        measurements.append(measured(cluster.play("playbooks/configure.yml"), started, before))
    for name in ANSIBLES_OWN:
        del cluster.cloud.variables[name]
    return measurements


def main() -> None:
    runs_by_size: dict[int, list[Cost]] = {}
    with tempfile.TemporaryDirectory() as folder, cloud_in(Path(folder)) as cloud:
        for size in SIZES:
            with cloud.cluster(f"bench-{size}", worker_count=size - 1) as cluster:
                runs_by_size[size] = costs(cluster)
    least, most = runs_by_size[SIZES[0]], runs_by_size[SIZES[-1]]
    rows = []
    for run, one, many in zip(RUNS, least, most, strict=True):
        further = (many.processor - one.processor) / (SIZES[-1] - SIZES[0])
        target = 1.5 if run != RUNS[-1] else None
        rows.append(Row(f"{run}: processor time for each further machine", further, "s", target))
    rows += [
        Row(f"{run}, {SIZES[-1]} machines: wall time", cost.wall, "s", None)
        for run, cost in zip(RUNS, most, strict=True)
    ]
    rows.append(
        Row("second run: tasks that changed something", sum(runs[1].changed for runs in runs_by_size.values()), "", 0)
    )
    write("configure", "Members configured over ssh: configure.yml", rows, table(runs_by_size))


def table(runs_by_size: dict[int, list[Cost]]) -> str:
    lines = ["", "Seconds of wall time, and of processor time on the operator's side:", ""]
    lines += [f"| machines | {' | '.join(RUNS)} |", f"| --- | {' | '.join('---' for _ in RUNS)} |"]
    for size, runs in runs_by_size.items():
        lines.append(f"| {size} | {' | '.join(f'{cost.wall:.1f}, {cost.processor:.1f}' for cost in runs)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
