# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What changes for a cluster that exists. What would be taken away needs a consent that names it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..contract.hosts import host_name
from ..contract.names import RUN_TAG, tags_of
from ..contract.scheduled_end import IDLE, TTL, earliest
from ..contract.tables import join_names
from ..resources.emr_cluster import ranks_of, surplus
from .facts import AccountFacts, Cluster
from .findings import Finding, setting_problem

ENDS = {TTL: "ttl_hours", IDLE: "idle_minutes"}
"""The settings of the scheduled ends."""
_TYPES = {"instance_type": "type", "master_instance_type": "master's type"}


@dataclass(frozen=True)
class Request:
    """What is asked of a cluster, beside its settings."""

    specified: Sequence[str] = ()
    """The settings that are given now; the others are as the cluster was made."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """What the cluster was made with, of the settings that change."""
    recorded: bool = True
    """Whether the cluster's bucket has a record of its settings."""
    remove_workers: int = 0
    remove_in_use: Sequence[str] = ()
    remove_end: bool = False
    delete_actions: Sequence[str] = ()
    """Names of scheduled actions to delete that are not the collection's."""
    emr: bool = False
    """Whether the machines are to be EMR's."""
    dataset: str = ""
    """A data set to compare with the nodes' own disks."""
    data_on: str = "node"


def check(facts: AccountFacts, cluster: Cluster, request: Request) -> Iterator[Finding]:
    yield from _check_workers(facts, cluster, request)
    yield from _check_ends(facts, cluster, request)
    yield from _check_idle_end_of_emr(facts, cluster, request)


def _check_workers(facts: AccountFacts, cluster: Cluster, request: Request) -> Iterator[Finding]:
    count, actual = cluster["worker_count"], facts.worker_count or 0
    removed = actual - count
    if removed > request.remove_workers:
        problem = (
            f"the cluster has {actual}, so {removed} would be terminated, those with the highest ranks. To consent: "
            f"-e remove_workers={removed}. To keep them, give their number"
        )
        yield setting_problem("worker_count", count, problem, actual)
    used = _used(facts, count, () if facts.emr else request.remove_in_use)
    if used:
        runs = join_names([f"{host_name(rank)} ({run})" for rank, run in used.values()])
        problem = (
            f"runs use workers that would be terminated: {runs}. `ansible-playbook deeplearning.aws.status -e "
            "run_id=all` lists the "
            "runs. Wait for their end, or stop them (ansible-playbook deeplearning.aws.stop -e run_id=all)"
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


def _check_ends(facts: AccountFacts, cluster: Cluster, request: Request) -> Iterator[Finding]:
    scheduled = {kind: setting for kind, setting in ENDS.items() if facts.ends.get(kind)}
    for kind, setting in scheduled.items():
        at = _time(earliest(facts.ends, kind))
        if not cluster[setting] and setting in request.specified and not request.remove_end:
            problem = (
                f"the machines are scheduled to end at {at}. To consent to remove this end: -e remove_end=true. To "
                "keep it, leave the setting out"
            )
            yield setting_problem(setting, 0, problem)
        elif cluster[setting] and request.remove_end and all(cluster[other] for other in scheduled.values()):
            problem = f"the end at {at} would be scheduled again. To remove it as well: -e cluster_{setting}=never"
            yield setting_problem(setting, cluster[setting], problem)


def _check_idle_end_of_emr(facts: AccountFacts, cluster: Cluster, request: Request) -> Iterator[Finding]:
    """Ask for a consent to remove what ends an EMR cluster that lives."""
    setting = "emr_idle_minutes"
    if not facts.emr or not facts.emr_clusters or cluster[setting] or request.remove_end:
        return
    if setting in request.specified and request.before.get(setting):
        problem = (
            f"EMR ends the cluster after {request.before[setting]} minutes without work. To consent to remove this "
            "end: -e remove_end=true. To keep it, leave the setting out"
        )
        yield setting_problem(setting, 0, problem)


def lines(facts: AccountFacts, cluster: Cluster, request: Request) -> list[str]:
    """Return a line for each change."""
    count, actual = cluster["worker_count"], facts.worker_count
    changes = []
    if actual is not None and actual != count:
        removed = f": {actual - count} to be terminated" if actual > count else ""
        changes.append(f"workers {actual} → {count}{removed}")
    for kind, setting in ENDS.items():
        changes += _end(facts, cluster, kind, setting, request)
    for setting, what in _TYPES.items():
        if setting in request.before:
            changes.append(f"{what} {request.before[setting]} → {cluster[setting]} (new machines)")
    now = {**cluster, "key_name": cluster["key_name"] or cluster["name"]}
    listed = ("worker_count", *ENDS.values(), *_TYPES)
    for setting, before in request.before.items():
        if setting not in listed:
            changes.append(f"cluster_{setting} {_shown(before)} → {_shown(now[setting])}")
    return changes


def _end(facts: AccountFacts, cluster: Cluster, kind: str, setting: str, request: Request) -> Iterator[str]:
    at, now = earliest(facts.ends, kind) if facts.ends.get(kind) else None, cluster[setting]
    if at and not now and request.remove_end:
        yield f"end {_time(at)} → never"
    elif setting in request.before and kind == IDLE and now:
        yield f"end without work after {request.before[setting] or 'never'} → {now} minutes"
    elif setting in request.before and now:
        yield f"end {_time(at)} stays: deeplearning.aws.extend postpones it" if at else f"end never → in {now:g} hours"


def _time(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)
