"""What emr.yml takes until its machines are configured: API calls, and wall time next to EMR's own. Needs a quiet
machine."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from provision import PROFILE, measure, prepared  # noqa: E402
from report import Row, write  # noqa: E402

from localcloud.core.latency import AWS  # noqa: E402
from tests.account.kit import CLOUD_HALF, Account, account_in  # noqa: E402

STARTING = AWS["emr_launch"] + AWS["instance_running"]
"""EMR's own time from the request until the first bootstrap action."""
OWN = STARTING + AWS["emr_bootstrapped"] + AWS["emr_applications"]


def prepared_for_emr(account: Account) -> Account:
    prepared(account).settings.update(cluster_instance_type="m5.xlarge")
    for setting in ("cluster_image", "cluster_login_user"):
        del account.settings[setting]
    return account


def times(account: Account) -> dict[str, float]:
    """When each operation was called last."""
    return {call["operation"]: call["time"] for call in account.cloud.calls.since(0)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, account_in(Path(folder)) as account:
        prepared_for_emr(account)
        first = measure(account, CLOUD_HALF, emr=True, emr_poll_seconds=1)
        second = measure(account, CLOUD_HALF, emr=True, emr_poll_seconds=1)
        destroyed = measure(account, "destroy.yml", destroy="c-bench", cluster_keep_efs=False)
    with tempfile.TemporaryDirectory() as folder, account_in(Path(folder), PROFILE) as account:
        slow = measure(prepared_for_emr(account), CLOUD_HALF, emr=True)
        ended, called = time.time(), times(account)
    own = OWN + first.wall
    mounted = called["CreateMountTarget"] + AWS["mount_target_available"]
    rows = [
        Row("first run: wall time", first.wall, "s", None),
        Row("first run: API calls", sum(first.calls.values()), "", None),
        Row("second run: wall time", second.wall, "s", None),
        Row("second run: API calls", sum(second.calls.values()), "", None),
        Row("second run: calls to EMR", sum(of_emr(second.calls).values()), "", 12),
        Row("second run: tasks that changed something", second.changed, "", 0),
        Row("second run: writing calls", second.writes, "", 0),
        Row("destroy.yml: wall time", destroyed.wall, "s", None),
        Row("as slow as AWS: EMR's own time, from the request until it is ready", OWN, "s", None),
        Row("as slow as AWS: first run, wall time", slow.wall, "s", None),
        Row("as slow as AWS: wall time to EMR's own plus the time without waits", slow.wall / own, "×", 1.1),
        Row("as slow as AWS: wall time from the request, polled every 30 s", ended - called["RunJobFlow"], "s", None),
        Row(
            "as slow as AWS: the mount target becomes available after the first bootstrap action began by",
            mounted - called["RunJobFlow"] - STARTING,
            "s",
            0,
        ),
    ]
    write("emr", "The cloud half of emr.yml", rows, table(of_emr(first.calls), of_emr(second.calls)))


def of_emr(calls: Counter[str]) -> Counter[str]:
    return Counter({name: count for name, count in calls.items() if name.startswith(("emr:", "elasticmapreduce:"))})


def table(first: Counter[str], second: Counter[str]) -> str:
    """Calls to EMR by operation."""
    lines = ["| operation | first run | second run |", "| --- | --- | --- |"]
    lines += [
        f"| {operation} | {first[operation] or ''} | {second[operation] or ''} |"
        for operation in sorted(first | second)
    ]
    return "\n".join(["", "## Calls to EMR", "", *lines])


if __name__ == "__main__":
    main()
