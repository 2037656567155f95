"""What the cloud half of site.yml takes: processor and wall time, module runs and API calls. Needs a quiet machine."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from report import Row, write  # noqa: E402

from localcloud.testing.latency import AWS  # noqa: E402
from tests.account.kit import CLOUD_HALF, Account, account_in  # noqa: E402

EMPTY_CALLS = 10
PROFILE = "aws"
CHAINS: Mapping[str, tuple[str, ...]] = {
    "NAT gateway": ("nat_gateway_available",),
    "mount target": ("file_system_available", "mount_target_available"),
    "machine": ("iam_in_effect", "autoscaling_launch", "instance_running"),
}
"""What has to be waited for, one after the other, whatever is done meanwhile."""

COUNTER = '''
import json, os
from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import action_loader

class CallbackModule(CallbackBase):
    """Counts modules that were run: each of them is a process of its own, and what an action plugin does is not."""
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "aggregate", "module_runs"
    CALLBACK_NEEDS_ENABLED = True
    runs = 0

    def _count(self, result, item=False):
        action = result.task.resolved_action or result.task.action
        looped = "results" in result.result and result.task.loop is not None
        own = action_loader.has_plugin(action) or "include" in action or "import" in action
        if not own and (item or not looped):
            self.runs += 1

    def v2_runner_on_ok(self, result):
        self._count(result)

    def v2_runner_item_on_ok(self, result):
        self._count(result, item=True)

    def v2_playbook_on_stats(self, stats):
        with open(os.environ["MODULE_RUNS"], "w") as file:
            json.dump(self.runs, file)
'''


@dataclass(frozen=True)
class Cost:
    wall: float
    processor: float
    module_runs: int
    calls: Counter[str]
    writes: int
    changed: int


def measure(account: Account, playbooks: str | Sequence[str], **extra: Any) -> Cost:
    counted = account.folder / "module_runs.json"
    account.environment |= {
        "ANSIBLE_CALLBACK_PLUGINS": str(account.folder),
        "ANSIBLE_CALLBACKS_ENABLED": "module_runs",
        "MODULE_RUNS": str(counted),
    }
    since, started, before = time.time(), time.monotonic(), _processor()
    ran = account.play(playbooks, **extra)
    wall, processor = time.monotonic() - started, _processor() - before
    assert ran.code == 0, ran.output[-6000:]
    calls = [call for call in account.cloud.calls.since(since) if call["caller"].endswith("user/operator")]
    return Cost(
        wall,
        processor,
        json.loads(counted.read_text(encoding="utf-8")),
        Counter(f"{call['service']}:{call['operation']}" for call in calls),
        sum(call["writes"] for call in calls),
        ran.changed,
    )


def _processor() -> float:
    """Of playbooks that have ended: the local cloud is in this process and does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def empty_call(account: Account) -> float:
    """Processor time of one module run of amazon.aws that does nothing: many of them, less a playbook without any."""
    costs = []
    for count in (0, EMPTY_CALLS):
        tasks: list[dict[str, Any]] = [{"ansible.builtin.debug": {}}] + [
            {"amazon.aws.aws_caller_info": {"region": "us-east-1"}}
        ] * count
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
        playbook = account.folder / "empty.yml"
        playbook.write_text(json.dumps([play]), encoding="utf-8")
        costs.append(measure(account, str(playbook)))
    none, many = costs
    return (many.processor - none.processor) / EMPTY_CALLS


def prepared(account: Account) -> Account:
    (account.folder / "module_runs.py").write_text(COUNTER, encoding="utf-8")
    account.settings.update(
        cluster_name="c-bench",
        cluster_instance_type="c5.large",
        cluster_worker_count=2,
        cluster_image="localcloud-api-only",
        cluster_login_user="ubuntu",
        cluster_ssh_allowed_cidrs=["198.51.100.1/32"],
        cluster_public_key_file=f"{account.key()}.pub",
    )
    return account


def run_rows(what: str, cost: Cost, empty: float, wall_target: float | None) -> list[Row]:
    return [
        Row(f"{what}: wall time", cost.wall, "s", wall_target),
        Row(f"{what}: processor time", cost.processor, "s", None),
        Row(f"{what}: module runs", cost.module_runs, "", None),
        Row(
            f"{what}: processor time to that of as many empty calls",
            cost.processor / (cost.module_runs * empty),
            "×",
            1.3,
        ),
        Row(f"{what}: API calls", sum(cost.calls.values()), "", None),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, account_in(Path(folder)) as account:
        prepared(account)
        # Before, between and after, as what else the machine does weighs on each.
        empties = [empty_call(account)]
        first = measure(account, CLOUD_HALF)
        empties.append(empty_call(account))
        second = measure(account, CLOUD_HALF)
        empties.append(empty_call(account))
        empty = statistics.median(empties)
        destroyed = measure(account, "destroy.yml", destroy="c-bench", cluster_keep_efs=False)
    rows = [
        Row("an empty call of amazon.aws: processor time", empty, "s", None),
        *run_rows("first run", first, empty, 60),
        *run_rows("second run", second, empty, 35),
        Row("second run: tasks that changed something", second.changed, "", 0),
        Row("second run: writing calls", second.writes, "", 0),
        Row("destroy.yml: wall time", destroyed.wall, "s", None),
        Row("destroy.yml: processor time", destroyed.processor, "s", None),
        Row("destroy.yml: API calls", sum(destroyed.calls.values()), "", None),
    ]

    waits = {name: sum(AWS[what] for what in chain) for name, chain in CHAINS.items()}
    name = max(waits, key=lambda one: waits[one])
    with tempfile.TemporaryDirectory() as folder, account_in(Path(folder), PROFILE) as account:
        slow = measure(prepared(account), CLOUD_HALF)
    own = waits[name] + first.wall
    rows += [
        Row(f"as slow as AWS: the longest chain of waits ({name})", waits[name], "s", None),
        Row("as slow as AWS: first run, wall time", slow.wall, "s", 135),
        Row("as slow as AWS: wall time to that chain and the time without waits", slow.wall / own, "×", 1.15),
    ]
    write("provision", "The cloud half: site.yml until the machines are there", rows, table(first, second, destroyed))


def table(first: Cost, second: Cost, destroyed: Cost) -> str:
    """API calls by operation."""
    operations = sorted(first.calls | second.calls | destroyed.calls)
    lines = ["| operation | first run | second run | destroy.yml |", "| --- | --- | --- | --- |"]
    for operation in operations:
        counts = [cost.calls[operation] for cost in (first, second, destroyed)]
        lines.append(f"| {operation} | " + " | ".join(str(count or "") for count in counts) + " |")
    return "\n".join(["", "## API calls", "", *lines])


if __name__ == "__main__":
    main()
