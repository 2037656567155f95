"""What the operator's side of site.yml takes with 1 to 255 workers, until all are in service. Needs a quiet machine.

No machine boots: a stand-in reports for each, and answers its launch hook, as a booted node would.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "files" / "node"), str(Path(__file__).parent)]

from ansible.plugins.loader import init_plugin_loader  # noqa: E402
from provision import Cost, measure, prepared  # noqa: E402
from report import Row, write  # noqa: E402

init_plugin_loader([str(ROOT / "collections")])

from tests.account.booting import nodes_of  # noqa: E402
from tests.account.kit import CLOUD_HALF, Account, account_in  # noqa: E402

SIZES = (1, 64, 255)
VCPUS = "L-1216C47A"
MASTER = 1


def prepared_for_boot(account: Account, workers: int) -> Account:
    """Set up a cluster whose machines configure themselves, and a quota with room for them."""
    prepared(account).settings.update(cluster_worker_count=workers)
    account.cloud.faults.add("quota", {"code": VCPUS}, value=4 * (workers + MASTER))
    return account


def stand_in(account: Account) -> Account:
    """Return the account as another user sees it, whose calls do not count."""
    iam, name = account.client("iam"), "stand-in"
    iam.create_user(UserName=name)
    iam.attach_user_policy(UserName=name, PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess")
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return account.as_user(key["AccessKeyId"], key["SecretAccessKey"])


def grown(account: Account) -> tuple[Cost, Cost]:
    """Return what a new cluster takes, and what site.yml takes when there is nothing to be done."""
    with nodes_of(stand_in(account), account.settings["cluster_name"]).boot():
        first = measure(account, CLOUD_HALF)
    return first, measure(account, CLOUD_HALF)


def rows_of(costs: dict[int, tuple[Cost, Cost]]) -> list[Row]:
    smallest, largest = min(costs), max(costs)
    rows = []
    for number, what in enumerate(("first run", "second run")):
        least, most = costs[smallest][number], costs[largest][number]
        further = (most.processor - least.processor) / (largest - smallest)
        rows += [
            Row(f"{what}: processor time for a further node", further, "s", 0.05),
            Row(
                f"{what}: processor time with {largest:,} to that with {smallest}",
                most.processor / least.processor,
                "×",
                2,
            ),
        ]
    return rows


def table(costs: dict[int, tuple[Cost, Cost]]) -> str:
    lines = [
        "| workers | processor | wall | API calls | reads of reports | again: processor | wall | API calls |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for workers, (first, second) in costs.items():
        reads = first.calls["s3:GetObject"]
        cells = [
            *(f"{first.processor:.1f} s", f"{first.wall:.0f} s", first.calls.total() - reads, reads),
            *(f"{second.processor:.1f} s", f"{second.wall:.0f} s", second.calls.total()),
        ]
        lines.append(f"| {workers:,} | {' | '.join(map(str, cells))} |")
    return "\n".join(["", "Wall time holds the stand-in, which is a process with the local cloud.", "", *lines])


def main() -> None:
    costs = {}
    for workers in SIZES:
        with tempfile.TemporaryDirectory() as folder, account_in(Path(folder)) as account:
            costs[workers] = grown(prepared_for_boot(account, workers))
            print(workers, costs[workers], flush=True)
    write("growth", f"Clusters of 1 to {max(SIZES)} workers: the operator's side", rows_of(costs), table(costs))


if __name__ == "__main__":
    main()
