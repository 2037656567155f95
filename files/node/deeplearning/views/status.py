"""`deeplearning status`: what the master knows about members, load and runs, as JSON, for status.yml.

It always ends in time: what waits for the shared file system is abandoned, and named instead.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from deeplearning.config import Config, read_config
from deeplearning.contract.run_request import ENDED_STATES
from deeplearning.members.member_list import differing_gpus
from deeplearning.runs import costs, views
from deeplearning.runs.folder import newest_runs, skip_unreadable
from deeplearning.views import snapshot

NEWEST_RUNS = 50
"""Older runs are not read: there may be thousands."""
ENDED_RUNS = 5
"""The most runs that have ended to describe."""


def main(argv: list[str]) -> None:
    argparse.ArgumentParser("deeplearning status", description="Describe members and runs; prints JSON.").parse_args(
        argv
    )
    print(json.dumps(status(read_config())))


def status(config: Config) -> dict[str, Any]:
    facts = snapshot.read(config, lambda: _runs(config))
    members = facts.members.members if facts.members else ()
    return {
        "schema": 1,
        "members": [
            {"instance_id": member.instance_id, "rank": member.rank, "state": member.state} for member in members
        ],
        "loads": facts.loads,
        "runs": facts.runs,
        "problems": [*facts.problems, *(differing_gpus(facts.members) if facts.members else ())],
    }


def _runs(config: Config) -> snapshot.Part:
    """Return the runs that have not ended, and the last of those that have; and why others cannot be read."""
    runs: list[dict[str, Any]] = []
    problems: list[str] = []
    folders = {folder.id: folder for folder in newest_runs(config, NEWEST_RUNS) if folder.exists()}
    for folder in folders.values():
        with skip_unreadable(folder, lambda reason: problems.append(f"runs: {reason}")):
            runs.append(views.overview(folder))
    runs.sort(key=lambda run: (run["requested_at"], run["run_id"]))
    ended = [run["run_id"] for run in runs if run["state"] in ENDED_STATES]
    shown = [run for run in runs if run["run_id"] not in ended[:-ENDED_RUNS]]
    return [{**run, "cost": costs.of_run(folders[run["run_id"]])} for run in shown], problems
