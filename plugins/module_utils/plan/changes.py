# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What changes for a cluster that exists. What would be taken away needs a consent that names it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..contract.hosts import host_name
from ..contract.names import RUN_TAG, tags_of
from ..contract.scheduled_end import IDLE, TTL, earliest
from ..contract.tables import join_names
from ..resources.emr_cluster import ranks_of, surplus
from . import network
from .facts import AccountFacts, Cluster
from .findings import Finding, setting_problem

ENDS = {TTL: "ttl_hours", IDLE: "idle_minutes"}
"""The settings of the scheduled ends."""
_TYPES = {"instance_type": "type", "master_instance_type": "master's type"}
Options = Mapping[str, Any]
"""The options of the module `plan`, as it documents them."""


def check(facts: AccountFacts, cluster: Cluster, options: Options) -> Iterator[Finding]:
    yield from _check_workers(facts, cluster, options)
    yield from _check_ends(facts, cluster, options)
    yield from _check_idle_end_of_emr(facts, cluster, options)


def _check_workers(facts: AccountFacts, cluster: Cluster, options: Options) -> Iterator[Finding]:
    count, actual = cluster["worker_count"], facts.worker_count or 0
    removed = actual - count
    if removed > options["remove_workers"]:
        problem = (
            f"the cluster has {actual}, so {removed} would be terminated, those with the highest ranks. To consent: "
            f"-e remove_workers={removed}. To keep them, give their number"
        )
        yield setting_problem("worker_count", count, problem, actual)
    used = _used(facts, count, () if facts.emr else options["remove_in_use"])
    if used:
        runs = join_names([f"{host_name(rank)} ({run})" for rank, run in used.values()])
        problem = (
            f"runs use workers that would be terminated: {runs}. `ansible-playbook deeplearning.aws.status -e "
            "run_id=all` lists the runs. Wait for their end, or stop them (ansible-playbook deeplearning.aws.stop -e "
            "run_id=all)"
        )
        if facts.emr:
            problem += ": core nodes of EMR are removed only while no run is active"
        else:
            problem += (
                "; the master writes some seconds later that the machines are free. If what it writes is not true, "
                f"-e remove_in_use={','.join(used)} removes them all the same"
            )
        yield setting_problem("worker_count", count, problem)


def _used(facts: AccountFacts, count: int, allowed: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return the ranks and runs of the workers that runs use and that would be terminated."""
    runs = {str(machine["InstanceId"]): tags_of(machine.get("Tags")).get(RUN_TAG) for machine in facts.leaving_workers}
    ranks = ranks_of(facts.leaving_workers)
    leaving = surplus(ranks, count)
    return {machine: (ranks[machine], run) for machine in leaving if (run := runs[machine]) and machine not in allowed}


def _check_ends(facts: AccountFacts, cluster: Cluster, options: Options) -> Iterator[Finding]:
    scheduled = {kind: setting for kind, setting in ENDS.items() if facts.ends.get(kind)}
    for kind, setting in scheduled.items():
        at = _time(earliest(facts.ends, kind))
        if not cluster[setting] and setting in options["specified"] and not options["remove_end"]:
            problem = (
                f"the machines are scheduled to end at {at}. To consent to remove this end: -e remove_end=true. To "
                "keep it, leave the setting out"
            )
            yield setting_problem(setting, 0, problem)
        elif cluster[setting] and options["remove_end"] and all(cluster[other] for other in scheduled.values()):
            problem = f"the end at {at} would be scheduled again. To remove it as well: -e cluster_{setting}=never"
            yield setting_problem(setting, cluster[setting], problem)


def _check_idle_end_of_emr(facts: AccountFacts, cluster: Cluster, options: Options) -> Iterator[Finding]:
    """Ask for a consent to remove what ends an EMR cluster that lives."""
    setting = "emr_idle_minutes"
    if not facts.emr or not facts.emr_clusters or cluster[setting] or options["remove_end"]:
        return
    minutes = options["before"].get(setting)
    if setting in options["specified"] and minutes:
        problem = (
            f"EMR ends the cluster after {minutes} minutes without work. To consent to remove this "
            "end: -e remove_end=true. To keep it, leave the setting out"
        )
        yield setting_problem(setting, 0, problem)


def lines(facts: AccountFacts, cluster: Cluster, options: Options) -> list[str]:
    """Return a line for each change."""
    count, actual, before = cluster["worker_count"], facts.worker_count, options["before"]
    changes = []
    if actual is not None and actual != count:
        removed = f": {actual - count} to be terminated" if actual > count else ""
        changes.append(f"workers {actual} → {count}{removed}")
    for kind, setting in ENDS.items():
        changes += _end(facts, cluster, kind, setting, options)
    for setting, what in _TYPES.items():
        if setting in before:
            changes.append(f"{what} {before[setting]} → {cluster[setting]} (new machines)")
    now = {**cluster, "key_name": cluster["key_name"] or cluster["name"]}
    listed = ("worker_count", "efs_throughput", *ENDS.values(), *_TYPES)
    for setting, value in before.items():
        if setting not in listed:
            changes.append(f"cluster_{setting} {_shown(value)} → {_shown(now[setting])}")
    return changes + network.throughput_change(facts, cluster)


def _end(facts: AccountFacts, cluster: Cluster, kind: str, setting: str, options: Options) -> Iterator[str]:
    at, now = earliest(facts.ends, kind) if facts.ends.get(kind) else None, cluster[setting]
    before = options["before"]
    if at and not now and options["remove_end"]:
        yield f"end {_time(at)} → never"
    elif setting in before and kind == IDLE and now:
        yield f"end without work after {before[setting] or 'never'} → {now} minutes"
    elif setting in before and now:
        yield f"end {_time(at)} stays: deeplearning.aws.extend postpones it" if at else f"end never → in {now:g} hours"


def _time(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)
