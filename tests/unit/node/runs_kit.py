"""Members and attempts for tests of runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from deeplearning.config import Config
from deeplearning.contract.hosts import aliases
from deeplearning.members.member_list import Member, Members
from deeplearning.runs.allocation import Allocation
from deeplearning.runs.attempt import Attempt
from deeplearning.runs.folder import Folder, create_folder
from deeplearning.runs.plan import Node
from deeplearning.runs.run_log import RunLog

CONFIG = Config("c", "sg-1", "us-east-1", "b", ("10.0.0.0/16",), "me", "master", "AROA", True, "", "fs", None, 0, "")


UNREADABLE = [
    *((name, form) for name in ("run.json", "state.json") for form in ("link", "pipe", "folder", "[]", "{")),
    ("run.json", '{"schema": 1}'),
    ("result.json", "pipe"),
]
"""What training code may make of the files of its run."""


def replace_file(folder: Folder, name: str, form: str) -> None:
    """Replace a file of a run by something else, or by this text."""
    file = Path(folder.file(name))
    file.unlink(missing_ok=True)
    if form == "link":
        file.symlink_to("/dev/zero")
    elif form == "pipe":
        os.mkfifo(file)
    elif form == "folder":
        file.mkdir()
    else:
        file.write_text(form)


def record(framework: str, distribution: str, **more: Any) -> dict[str, Any]:
    """Return what a launch plan needs of a run's record."""
    optional = {"processes_per_node": None, "servers": None, "script_args": []}
    return {"framework": framework, "distribution": distribution, **optional, **more}


def member(rank: int, **changes: Any) -> Member:
    names = aliases(rank)
    values = {"gpus": 0, "slots": 1, "state": "ready", **changes}
    return Member(
        rank, names, f"i-{rank:08x}", f"10.0.0.{rank}", f"h{rank}.internal", "t3.micro", host_keys=(), **values
    )


def members(count: int) -> Members:
    ranks = range(1, count + 1)
    return Members("c", "sg-1", 3, count, "i-00000001", "2026-01-01T00:00:00Z", tuple(map(member, ranks)))


def create_run(config: Config, run_id: str = "r1", **changes: Any) -> Folder:
    folder = create_folder(run_id, None, config)
    record: dict[str, Any] = {"framework": "tensorflow", "distribution": "parameter_server", "data": "", "nodes": None}
    record |= {"script": "/efs/x/train.py", "script_args": ["{job_name}"], "python": "/p/bin/python"}
    record |= {"processes_per_node": None, "servers": 1, "max_restarts": 3, "busy": "wait"}
    record |= {"run_id": run_id, "requested_at": "2026-01-01T00:00:00Z", "requested_by": "me"}
    folder.write("run.json", {**record, **changes})
    return folder


def started(
    run: Folder, stop: bool = False, config: Config = CONFIG, machines: dict[str, int] | None = None
) -> Attempt:
    """An attempt of two nodes whose processes are sent messages by `send`."""
    nodes = [Node(f"deeplearning-worker{n}", f"10.0.0.{n}", ports=(20000, 20001, 20002, 20003)) for n in (1, 2)]
    allocation = Allocation(nodes, 3, {node.name: "boot" for node in nodes}, machines or {})
    return Attempt(0, config, run, run.run(), allocation, RunLog(run), lambda: stop)


def send(attempt: Attempt, *messages: tuple[int, dict[str, Any]]) -> None:
    """Processes: 0 ps0, 1 worker0, 2 worker1."""
    for rank, message in messages:
        attempt.handle_message(rank, message)
    attempt.advance()
