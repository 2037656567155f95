"""`deeplearning status`: what the master knows about members, load and runs, as JSON, for status.yml.

It always ends in time: what waits for the shared file system is abandoned, and named instead.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable
from typing import Any

from deeplearning.config import Config, read_config
from deeplearning.contract.errors import UserError
from deeplearning.contract.run_request import ENDED_STATES
from deeplearning.deadline import DeadlineExceeded, within
from deeplearning.members import load
from deeplearning.members.member_list import read_applied
from deeplearning.run import views
from deeplearning.run.folder import all_runs

EFS_SECONDS = 8.0
"""For each of the two parts that read the shared file system."""
NEWEST_RUNS = 50
"""Older runs are not read: there may be thousands."""
ENDED_RUNS = 5
"""The most runs that have ended to describe."""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="deeplearning status", description="Describe members and runs; prints JSON.")
    parser.parse_args(argv)
    print(json.dumps(status(read_config())))
    return 0


def status(config: Config) -> dict[str, Any]:
    members, loads, runs = (
        _part("members", _members),
        _part("the loads of nodes", lambda: load.read_all(config.efs_mount, config.cluster)),
        _part("runs", lambda: _runs(config)),
    )
    return {
        "schema": 1,
        "members": members["value"],
        "loads": loads["value"],
        "runs": runs["value"],
        "problems": [part["problem"] for part in (members, loads, runs) if part["problem"]],
    }


def _part(what: str, read: Callable[[], list[dict[str, Any]]]) -> dict[str, Any]:
    """Return what `read` returns, or why it fails."""

    def attempt() -> dict[str, Any]:
        try:
            return {"value": read(), "problem": ""}
        except (UserError, OSError) as error:
            return {"value": [], "problem": f"{what}: {error}"}

    try:
        return dict(within(EFS_SECONDS, attempt))
    except DeadlineExceeded:
        return {"value": [], "problem": f"{what}: no answer within {EFS_SECONDS:g} s"}


def _members() -> list[dict[str, Any]]:
    return [
        {"instance_id": member.instance_id, "rank": member.rank, "state": member.state}
        for member in read_applied().members
    ]


def _runs(config: Config) -> list[dict[str, Any]]:
    """Return the runs that have not ended, and the last of those that have. Unreadable ones are left out."""
    runs = []
    for folder in all_runs(config)[-NEWEST_RUNS:]:
        with contextlib.suppress(UserError, OSError, KeyError):
            runs.append(views.overview(folder))
    ended = [run["run_id"] for run in runs if run["state"] in ENDED_STATES]
    return [run for run in runs if run["run_id"] not in ended[:-ENDED_RUNS]]
