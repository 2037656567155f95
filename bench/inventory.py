"""What it costs to list a large and a small cluster: ours beside amazon.aws.aws_ec2, on the same account. Needs a quiet
machine."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from report import Row, write  # noqa: E402

from tests.account.fleet import fleet  # noqa: E402
from tests.account.kit import REGION, Account, account_in  # noqa: E402

MACHINES, FEW = 1024, 3
RUNS = 3
PLUGIN_RUNS = 10
CLUSTER = "bench"

# What anybody would ask of aws_ec2 for such a cluster: its machines, by role, zone and type, under names.
THEIRS = {
    "plugin": "amazon.aws.aws_ec2",
    "regions": [REGION],
    "filters": {"tag:deeplearning:cluster": CLUSTER, "instance-state-name": ["pending", "running"]},
    "hostnames": ["instance-id"],
    "keyed_groups": [
        {"key": "tags['deeplearning:role']", "prefix": "", "separator": ""},
        {"key": "placement.availability_zone", "prefix": "zone"},
        {"key": "instance_type", "prefix": "type"},
    ],
    "compose": {"ansible_host": "private_ip_address", "deeplearning_rank": "tags['deeplearning:rank']"},
}

# The plugin alone, with the answers of the API at hand.
ALONE = """
import json, sys, time
sys.path.insert(0, {root!r})
from ansible.plugins.loader import init_plugin_loader, inventory_loader
init_plugin_loader([{root!r} + "/collections"])
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader

with open(sys.argv[2]) as answers:
    reservations = json.load(answers)

class Stub:
    def __init__(self, *given): pass
    def pages(self, *asked, **params): return reservations

spent = []
for _ in range({runs}):
    manager = InventoryManager(DataLoader(), sources=[sys.argv[1]], parse=False)
    plugin = inventory_loader.get("deeplearning.aws.cluster")
    type(plugin).parse.__globals__["Aws"] = Stub
    started = time.process_time()
    plugin.parse(manager._inventory, manager._loader, sys.argv[1])
    spent.append(time.process_time() - started)
    assert len(manager.groups["cluster"].get_hosts()) == {machines}
print(json.dumps(spent))
"""


def processor(account: Account, file: Path) -> tuple[float, int]:
    """Seconds of `ansible-inventory --list`, and how many hosts it has found. The local cloud, in this process, does
    not count."""
    command = [str(Path(sys.executable).parent / "ansible-inventory"), "-i", str(file), "--list"]
    environment = account.environment | {"ANSIBLE_INVENTORY_ENABLED": json.loads(file.read_text())["plugin"]}
    before = os.times()
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent, len(json.loads(ran.stdout)["_meta"]["hostvars"])


def alone(account: Account, file: Path, machines: int) -> list[float]:
    answers = account.folder / "answers.json"
    filters = [{"Name": "tag:deeplearning:cluster", "Values": [CLUSTER]}]
    pages = account.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
    answers.write_text(json.dumps([reservation for page in pages for reservation in page["Reservations"]], default=str))
    script = ALONE.format(root=str(ROOT), runs=PLUGIN_RUNS, machines=machines)
    command = [sys.executable, "-c", script, str(file), str(answers)]
    ran = subprocess.run(command, env=account.environment, capture_output=True, text=True, check=True)
    spent: list[float] = json.loads(ran.stdout)
    return spent


def written(folder: Path, name: str, options: dict[str, Any]) -> Path:
    file = folder / name
    file.write_text(json.dumps(options), encoding="utf-8")
    return file


@dataclass(frozen=True)
class Listed:
    """Medians of the processor's seconds."""

    ours: float
    theirs: float
    plugin: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


def listed(folder: Path, machines: int) -> Listed:
    """List a cluster of so many machines in an account of its own."""
    folder.mkdir()
    with account_in(folder) as account:
        started = time.monotonic()
        fleet(account, CLUSTER, machines - 1).rank()
        print(f"{machines} machines stand after {time.monotonic() - started:.0f} s", flush=True)
        options = {"plugin": "deeplearning.aws.cluster", "cluster": CLUSTER, "region": REGION, "folder": str(folder)}
        ours = written(account.folder, "bench.deeplearning.yml", options)
        theirs = written(account.folder, "bench.aws_ec2.yml", THEIRS)
        # In turn, so that what else the machine does weighs on both.
        spent: dict[Path, list[float]] = {ours: [], theirs: []}
        for _ in range(RUNS):
            for file, times in spent.items():
                seconds, hosts = processor(account, file)
                assert hosts == machines, f"{file} has {hosts} hosts"
                times.append(seconds)
        plugin = alone(account, ours, machines)
    mine, other = (statistics.median(times) for times in spent.values())
    return Listed(mine, other, statistics.median(plugin))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        large, small = (listed(Path(folder, str(machines)), machines) for machines in (MACHINES, FEW))
    write(
        "inventory",
        f"The inventory of {MACHINES:,} machines, and of {FEW}",
        [
            Row("the plugin alone, the API's answers at hand: processor time", large.plugin, "s", 0.1),
            Row("ansible-inventory --list with deeplearning.aws.cluster: processor time", large.ours, "s", None),
            Row("ansible-inventory --list with amazon.aws.aws_ec2: processor time", large.theirs, "s", None),
            Row("ours to theirs", large.ratio, "×", 0.25),
            Row(f"{FEW} machines, with deeplearning.aws.cluster: processor time", small.ours, "s", None),
            Row(f"{FEW} machines, with amazon.aws.aws_ec2: processor time", small.theirs, "s", None),
            Row(f"{FEW} machines, ours to theirs", small.ratio, "×", 1),
        ],
    )


if __name__ == "__main__":
    main()
