"""What an environment, provisioning, configuring and training take in another checkout and in this one, in turn.

bench/pairs.py BEFORE [--pairs 5], where BEFORE is a checkout of another commit after `make setup`. Counts processor
seconds: those of the operator's side with ssh, and those of all machines together. A figure is the median of the
pairs' ratios, as both sides of a pair meet about the same load. Needs root, a local cloud of its
own, and the images of both checkouts (localcloud image build …).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from operator import truediv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [os.getcwd(), str(Path(__file__).parent)]

from report import Row, write  # noqa: E402
from training import IMAGE  # noqa: E402

from tests.integration.machines import Cluster, cloud_in  # noqa: E402

MACHINES = Path("/sys/fs/cgroup/unified/localcloud")
ENVIRONMENT = Path("/opt/deeplearning/env/pytorch")
SCRIPT = "import os\nprint('rank', os.environ.get('RANK'), flush=True)\n"
SIDES = ("operator", "machines")
WORSE = 1.1
"""After over before that a change may cost which adds nothing."""


def spent() -> tuple[float, float]:
    """Return the processor seconds of children that have ended, and of the machines that run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    machines = sum(int(file.read_text().split()[1]) for file in MACHINES.glob("i-*/cpu.stat"))
    return used.ru_utime + used.ru_stime, machines / 1e6


class Costs(dict[str, float]):
    """Seconds by step and side."""

    def add(self, step: str, before: tuple[float, float]) -> None:
        for side, earlier, later in zip(SIDES, before, spent(), strict=True):
            self[f"{step}: {side}"] = later - earlier


def measure() -> Costs:
    """Measure the checkout that is the current folder."""
    costs = Costs()
    with tempfile.TemporaryDirectory() as folder, cloud_in(Path(folder)) as cloud:
        before = spent()
        install_environment(Path(folder))
        costs.add("an environment of PyTorch", before)
        script = Path(folder) / "hello.py"
        script.write_text(SCRIPT)
        image = cloud.image(IMAGE)
        assert image, f"there is no image {IMAGE}"
        with cloud.cluster("pair", worker_count=3, image=image) as cluster:
            add_playbook(costs, cluster, "playbooks/provision.yml")
            add_playbook(costs, cluster, "playbooks/configure.yml")
            add_playbook(costs, cluster, "train.yml", framework="pytorch", script=str(script))
    return costs


def install_environment(folder: Path) -> None:
    """Install the packages for processors on this machine, and remove them."""
    role = {"role": "deeplearning.aws.framework", "framework_name": "pytorch", "framework_processor": True}
    host = {"hosts": "localhost", "connection": "local", "vars": {"ansible_python_interpreter": sys.executable}}
    playbook = folder / "environment.yml"
    playbook.write_text(json.dumps([host | {"roles": [role]}]))
    assert not ENVIRONMENT.exists(), f"{ENVIRONMENT} exists"
    try:
        subprocess.run(["ansible-playbook", "-i", "localhost,", playbook], check=True, stdout=sys.stderr)
    finally:
        # There is none if the playbook failed early, whose error is the one to show.
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)


def add_playbook(costs: Costs, cluster: Cluster, playbook: str, **options: Any) -> None:
    before = spent()
    played = cluster.play(playbook, **options)
    assert played.code == 0, played.output[-6000:]
    costs.add(f"`{Path(playbook).name}`", before)


def measured(checkout: Path) -> dict[str, float]:
    """Measure a checkout by its own Python and its own tests."""
    binaries = checkout / ".venv/bin"
    environment = os.environ | {"PATH": f"{binaries}:{os.environ['PATH']}"}
    command = [str(binaries / "python"), __file__, "--once"]
    ran = subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    costs: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", nargs="?", type=Path, metavar="BEFORE", help="a checkout of another commit")
    parser.add_argument("--pairs", type=int, default=5, help="how many times both are measured")
    parser.add_argument("--once", action="store_true", help="print what the current folder's checkout takes (JSON)")
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(measure()))
        return
    if arguments.before is None:
        parser.error("name a checkout of another commit")
    pairs = [(measured(arguments.before), measured(ROOT)) for _ in range(arguments.pairs)]
    columns: dict[str, tuple[list[float], list[float]]] = {}
    for what in pairs[0][0]:
        before, after = ([costs[what] for costs in side] for side in zip(*pairs, strict=True))
        # No other machine takes part where the operator's machine installs an environment.
        if any(before):
            columns[what] = before, after
    rows = [
        Row(f"{what}, after over before", statistics.median(map(truediv, after, before)), "×", WORSE)
        for what, (before, after) in columns.items()
    ]
    commit = ["git", "-C", str(arguments.before), "rev-parse", "--short", "HEAD"]
    name = subprocess.run(commit, capture_output=True, text=True, check=True).stdout.strip()
    title = f"Processor time before and after: {len(pairs)} pairs with {name}"
    write("pairs", title, rows, table(columns))


def table(columns: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    lines = ["", "Seconds of processor, the median and the single values:", "", "| what | before | after |"]
    lines.append("| --- | --- | --- |")
    for what, sides in columns.items():
        cells = (f"{statistics.median(side):.3g} ({', '.join(f'{value:.3g}' for value in side)})" for side in sides)
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
