"""`deeplearning status`: what the master knows about members, load and runs, as JSON, for status.yml.

It always ends in time: what waits for the shared file system is abandoned, and named instead.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from deeplearning.config import Config, read_config
from deeplearning.contract.errors import UserError
from deeplearning.contract.run_request import ENDED_STATES
from deeplearning.deadline import DeadlineExceeded, within
from deeplearning.members import load
from deeplearning.members.member_list import read_applied
from deeplearning.runs import views
from deeplearning.runs.folder import Folder, newest_runs, skip_unreadable

EFS_SECONDS = 8.0
"""For each of the two parts that read the shared file system."""
NEWEST_RUNS = 50
"""Older runs are not read: there may be thousands."""
ENDED_RUNS = 5
"""The most runs that have ended to describe."""

Part = tuple[list[dict[str, Any]], list[str]]
"""Records, and the problems of those that are missing."""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deeplearning status", description="Describe members and runs; prints JSON.")
    parser.parse_args(argv)
    print(json.dumps(status(read_config())))
    return 0


def status(config: Config) -> dict[str, Any]:
    members, loads, runs = (
        _part("members", lambda: (_members(), [])),
        _part("the loads of nodes", lambda: (load.read_all(config.efs_mount, config.cluster), [])),
        _part("runs", lambda: _runs(config)),
    )
    return {
        "schema": 1,
        "members": members[0],
        "loads": loads[0],
        "runs": runs[0],
        "problems": [*members[1], *loads[1], *runs[1]],
    }


def _part(what: str, read: Callable[[], Part]) -> Part:
    """Return what `read` returns, or why it fails."""

    def attempt() -> Part:
        try:
            return read()
        except (UserError, OSError) as error:
            return [], [f"{what}: {error}"]

    try:
        records, problems = within(EFS_SECONDS, attempt)
    except DeadlineExceeded:
        return [], [f"{what}: no answer within {EFS_SECONDS:g} s"]
    return records, problems


def _members() -> list[dict[str, Any]]:
    return [
        {"instance_id": member.instance_id, "rank": member.rank, "state": member.state}
        for member in read_applied().members
    ]


def _runs(config: Config) -> Part:
    """Return the runs that have not ended, and the last of those that have; and why others cannot be read."""
    runs: list[dict[str, Any]] = []
    problems: list[str] = []
    for folder in filter(Folder.exists, newest_runs(config, NEWEST_RUNS)):
        with skip_unreadable(folder, lambda reason: problems.append(f"runs: {reason}")):
            runs.append(views.overview(folder))
    runs.sort(key=lambda run: (run["asked_at"], run["run_id"]))
    ended = [run["run_id"] for run in runs if run["state"] in ENDED_STATES]
    return [run for run in runs if run["run_id"] not in ended[:-ENDED_RUNS]], problems
