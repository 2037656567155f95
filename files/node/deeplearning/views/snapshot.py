"""The facts that the master knows: members, their load, runs. The status page and `deeplearning status` show them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deeplearning.config import Config
from deeplearning.contract import problems, run_cost, run_stall
from deeplearning.contract.errors import UserError
from deeplearning.contract.frameworks import FRAMEWORKS
from deeplearning.contract.report import READY
from deeplearning.deadline import DeadlineExceeded, within
from deeplearning.members import load
from deeplearning.members.member_list import Members, read_applied, unsettled
from deeplearning.runs import units
from deeplearning.runs.folder import Folder, newest_runs, runs_root
from deeplearning.runs.views import state_of
from deeplearning.views import curves

EFS_SECONDS = 8.0
"""For each of the two parts that read the shared file system."""
SHOWN_RUNS = 10
UNKNOWN = "–"

Part = tuple[list[dict[str, Any]], list[str]]
"""Records, and the problems of those that are missing."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the master knows."""

    members: Members | None
    loads: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    problems: list[str]
    """Why any of the others are missing."""


def active_runs(config: Config) -> list[dict[str, Any]]:
    """Return the runs that this master supervises, with their newest points."""
    return [run for run_id in units.active_runs() for run in _described(Folder(f"{runs_root(config)}/{run_id}"))]


def read(config: Config, runs: Callable[[], Part]) -> Facts:
    """Read members, loads and runs. It ends in time: what cannot be read is missing, and named instead."""
    members, reasons = None, []
    try:
        members = read_applied()
    except (UserError, OSError) as error:
        reasons.append(f"members: {error}")
    loads = _part("the loads of nodes", lambda: (load.read_all(config.efs_mount, config.cluster), []))
    described = _part("runs", runs)
    return Facts(members, loads[0], described[0], [*reasons, *loads[1], *described[1]])


def _part(what: str, read_part: Callable[[], Part]) -> Part:
    """Return what `read_part` returns, or why it fails."""

    def attempt() -> Part:
        try:
            return read_part()
        except (UserError, OSError) as error:
            return [], [f"{what}: {error}"]

    try:
        records, reasons = within(EFS_SECONDS, attempt)
    except DeadlineExceeded:
        return [], [f"{what}: no answer within {EFS_SECONDS:g} s"]
    return records, reasons


def take(config: Config) -> dict[str, Any]:
    """Return everything that the page shows."""
    facts = read(config, lambda: (_shown_runs(config), []))
    members = facts.members.members if facts.members else ()
    loads = {record["instance_id"]: record for record in facts.loads}
    rows = [{**dataclasses.asdict(member), "load": loads.get(member.instance_id)} for member in members]
    return {
        "cluster": config.cluster,
        "region": config.region,
        "at": time.time(),
        "generation": facts.members.generation if facts.members else UNKNOWN,
        "desired": facts.members.desired if facts.members else UNKNOWN,
        "members": rows,
        "runs": facts.runs,
        "problems": [*facts.problems, *_problems(config, facts.members, loads, facts.runs)],
    }


def _shown_runs(config: Config) -> list[dict[str, Any]]:
    return [run for folder in reversed(newest_runs(config, SHOWN_RUNS)) for run in _described(folder, whole=True)]


def _described(folder: Folder, whole: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the run if it can be read: training code can write in its folder."""
    with contextlib.suppress(UserError, OSError, KeyError, TypeError, AttributeError):
        run, state = folder.run(), folder.state()
        points = []
        with contextlib.suppress(OSError, UserError):
            points = (curves.curve if whole else curves.newest)(folder.file("events.jsonl"))
        yield {
            "run_id": folder.id,
            "framework": run["framework"] if run["framework"] in FRAMEWORKS else "",
            "distribution": str(run["distribution"]),
            "state": state_of(folder),
            "reason": str((folder.result() or {}).get("sentence") or state.get("reason") or ""),
            "nodes": len(state.get("nodes") or ()),
            "stall": run_stall.find(state),
            "requested_at": str(run["requested_at"]),
            "points": points,
        }


def _problems(
    config: Config, members: Members | None, loads: Mapping[str, Mapping[str, Any]], runs: list[dict[str, Any]]
) -> list[str]:
    stalled = [
        problems.of_stalled_run(run["run_id"], run["reason"], run_cost.phrase((run["stall"] or {}).get("hourly")))
        for run in runs
        if run["state"] == run_stall.STALLED
    ]
    if members is None:
        return stalled
    rows = [
        {
            "name": member.alias,
            "instance_id": member.instance_id,
            "health": problems.SILENT if member.state == READY and member.instance_id not in loads else member.state,
            "held": "",
            "load": loads.get(member.instance_id),
        }
        for member in members.members
    ]
    # Both name members that are faulty.
    return list(dict.fromkeys([*unsettled(members), *problems.of_members(rows, bool(config.job_flow)), *stalled]))
