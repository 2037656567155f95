"""The state of the cluster as its master sees it: members, their load, runs."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping
from typing import Any

from deeplearning.config import Config
from deeplearning.contract import problems, run_cost, run_stall
from deeplearning.contract.errors import UserError
from deeplearning.contract.frameworks import FRAMEWORKS
from deeplearning.contract.report import READY
from deeplearning.members import load
from deeplearning.members.member_list import Members, read_applied, unsettled
from deeplearning.runs import units
from deeplearning.runs.folder import Folder, newest_runs, runs_root
from deeplearning.runs.views import state_of
from deeplearning.views import curves

SHOWN_RUNS = 10


def active_runs(config: Config) -> list[dict[str, Any]]:
    """Return the runs that this master supervises, with their newest points."""
    return [run for run_id in units.active_runs() for run in _described(Folder(f"{runs_root(config)}/{run_id}"))]


def take(config: Config) -> dict[str, Any]:
    """Return everything that the page shows."""
    members = read_applied()
    loads = {record["instance_id"]: record for record in load.read_all(config.efs_mount, config.cluster)}
    runs = [run for folder in reversed(newest_runs(config, SHOWN_RUNS)) for run in _described(folder, whole=True)]
    rows = [{**dataclasses.asdict(member), "load": loads.get(member.instance_id)} for member in members.members]
    now = time.time()
    return {
        "cluster": config.cluster,
        "region": config.region,
        "at": now,
        "generation": members.generation,
        "desired": members.desired,
        "members": rows,
        "runs": runs,
        "problems": _problems(config, members, loads, runs),
    }


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
            "asked_at": str(run["asked_at"]),
            "points": points,
        }


def _problems(
    config: Config, members: Members, loads: Mapping[str, Mapping[str, Any]], runs: list[dict[str, Any]]
) -> list[str]:
    rows = [
        {
            "name": member.alias,
            "instance_id": member.instance_id,
            "health": _health(member.state, member.instance_id in loads),
            "held": "",
            "load": loads.get(member.instance_id),
        }
        for member in members.members
    ]
    stalled = [
        problems.of_stalled_run(run["run_id"], run["reason"], run_cost.phrase((run["stall"] or {}).get("hourly")))
        for run in runs
        if run["state"] == run_stall.STALLED
    ]
    # Both name members that are faulty.
    return list(dict.fromkeys([*unsettled(members), *problems.of_members(rows, bool(config.job_flow)), *stalled]))


def _health(state: str, has_load: bool) -> str:
    return problems.SILENT if state == READY and not has_load else state
