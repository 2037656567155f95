"""Views of runs for people and programs: list, show, follow, wait; and stop, which also waits for the end."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from deeplearning import safe_files
from deeplearning.config import Config
from deeplearning.contract import run_cost, run_stall
from deeplearning.contract.errors import UserError
from deeplearning.contract.run_request import STATES
from deeplearning.contract.run_stall import STALLED
from deeplearning.contract.schema import format_time
from deeplearning.contract.tables import text_table
from deeplearning.runs import costs, units
from deeplearning.runs.folder import Folder, all_runs, find_run, skip_unreadable

POLL_SECONDS = 0.5
VANISHED_SECONDS = 3.0
"""Seconds without a unit and without a result after which a run is lost. A new run may be about to start."""
LOST_CODE = 1
UNKNOWN = {"reason": "", "attempt": 0, "processes": [], "progress": None, "stalled_seconds": 0}
"""The details of a run whose state does not have them."""
MOST_PROCESSES = 64
"""The output of so many processes is followed: each poll opens all of their logs."""
EVALUATION_BYTES = 64 * 1024 * 1024
"""More than the lines of hundreds of thousands of evaluations."""
CHUNK_BYTES = 1024 * 1024
"""Logs are read in parts of this size. Lines of ours are shorter."""


def state_of(folder: Folder) -> str:
    result = folder.result()
    if result:
        return str(result["state"])
    state = folder.state()
    if units.may_continue(folder.id):
        return str(state.get("state", "waiting"))
    # It may have ended since the first check.
    result = folder.result()
    return str(result["state"]) if result else "lost" if state else "created"


def overview(folder: Folder) -> dict[str, Any]:
    """Return what lists show of a run. Raise an error if that has another form: training code can write its files."""
    run, state, result = folder.run(), folder.state(), folder.result() or {}
    name, nodes, progress = state_of(folder), state.get("nodes"), state.get("progress")
    if name not in STATES:
        raise UserError(f"the state in {folder.path} is {name}, which is none")
    return {
        "run_id": folder.id,
        "state": name,
        **{key: run[key] for key in ("framework", "distribution", "script", "requested_by", "requested_at")},
        "nodes": list(nodes) if nodes else sorted({process["node"] for process in state.get("processes", [])}),
        "progress": dict(progress) if progress else None,
        "exit_code": result.get("exit_code"),
        "sentence": result.get("sentence", ""),
        "reason": str(state.get("reason", "")) if name == STALLED else "",
        "stall": run_stall.find(state) if name == STALLED else None,
        "stalled_seconds": state.get("stalled_seconds", 0),
    }


def overviews(config: Config) -> list[dict[str, Any]]:
    """Return what lists show of all runs that can be read."""
    runs = []
    for folder in all_runs(config):
        with skip_unreadable(folder):
            runs.append(overview(folder))
    return runs


def overview_table(runs: list[dict[str, Any]]) -> str:
    rows = [["run", "state", "code", "framework", "distribution", "nodes", "epoch", "requested at"]]
    for run in runs:
        epoch = (run["progress"] or {}).get("epoch")
        values = [
            run["exit_code"],
            run["framework"],
            run["distribution"],
            len(run["nodes"]),
            epoch,
            run["requested_at"],
        ]
        rows.append([run["run_id"], run["state"], *map(_cell, values)])
    return "\n".join(text_table(rows)) if len(rows) > 1 else "There is no run yet."


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


def detail(folder: Folder) -> dict[str, Any]:
    state = folder.state()
    return {
        "schema": 1,
        "run": folder.run(),
        "state": state_of(folder),
        **{key: state.get(key, default) for key, default in UNKNOWN.items()},
        "stall": run_stall.find(state),
        "checkpoints": folder.checkpoints(),
        "result": folder.result(),
    }


def detail_text(folder: Folder) -> str:
    details = detail(folder)
    keys = ("node", "role", "rank", "pid", "state", "exit_code")
    rows = [["node", "role", "rank", "pid", "state", "code"]]
    rows += [[_cell(process[key]) for key in keys] for process in details["processes"]]
    run, result = details["run"], details["result"]
    reason = f", {details['reason']}" if details["reason"] else ""
    what = f"{run['framework']} {run['distribution']}, {run['script']}"
    lines = [
        f"run {folder.id}: {details['state']}{reason}",
        f"{what}, requested by {run['requested_by']} at {run['requested_at']}",
        f"start {details['attempt'] + 1}, {folder.path}",
    ]
    if details["progress"]:
        known = {key: value for key, value in details["progress"].items() if value is not None}
        lines.append(", ".join(f"{key} {value:.6g}" for key, value in known.items()))
    if cost := costs.of_run(folder):
        lines.append(run_cost.in_all(cost))
    if result:
        lines.append(result["sentence"])
    return "\n".join([*lines, "", *text_table(rows)])


def evaluation(folder: Folder) -> Any:
    """Return what the last evaluation of a run has written, or None. The script may write anything."""
    try:
        last = deque(safe_files.lines(folder.file("metrics/evaluation.jsonl"), EVALUATION_BYTES), maxlen=1)
        return json.loads(last[0]) if last else None
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise UserError(f"The last line of {folder.path}/metrics/evaluation.jsonl is not JSON ({error}).") from None


def follow(folder: Folder, after: int, with_output: bool) -> Iterator[dict[str, Any]]:
    """Yield events until the last, and between them, on request, what the processes print.

    With `after`, what they printed before is left out as well.
    """
    output = ProcessOutput(folder) if with_output else None
    if output and after:
        for event in folder.events():
            if event["n"] <= after:
                output.handle_event(event)
        deque(output.new_lines(), maxlen=0)
    missing_since = time.monotonic()
    while True:
        for event in folder.events(after):
            after = event["n"]
            if output:
                output.handle_event(event)
                if event["event"] == "end":
                    yield from output.new_lines()
            yield event
            if event["event"] == "end":
                return
        if output:
            yield from output.new_lines()
        if units.may_continue(folder.id):
            missing_since = time.monotonic()
        elif time.monotonic() - missing_since > VANISHED_SECONDS and not list(folder.events(after)):
            yield _missing_end(folder)
            return
        time.sleep(POLL_SECONDS)


def _missing_end(folder: Folder) -> dict[str, Any]:
    """Return the end event of a run whose unit has not written one."""
    end = folder.result() or {
        "state": "lost",
        "exit_code": LOST_CODE,
        "first_failure": None,
        "sentence": _missing_sentence(folder),
    }
    return {"event": "end", **{key: end[key] for key in ("state", "exit_code", "first_failure", "sentence")}}


def _missing_sentence(folder: Folder) -> str:
    if state_of(folder) == "created":
        return f"run {folder.id} has not been started"
    return f"run {folder.id} has vanished without a result: see journalctl -u {units.supervisor_unit(folder.id)}"


class ProcessOutput:
    """What the processes of a run have printed since the last call of `new_lines`."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._processes: list[dict[str, Any]] = []
        self._offsets: dict[str, int] = {}

    def handle_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "plan":
            processes = event["processes"][:MOST_PROCESSES]
            self._processes = [{key: process[key] for key in ("node", "role", "rank")} for process in processes]

    def new_lines(self) -> Iterator[dict[str, Any]]:
        for process in self._processes:
            for line in self._read(self._folder.file("logs/{node}.{role}{rank}.log".format(**process))):
                yield {"event": "output", **process, "line": line.partition(" ")[2]}

    def _read(self, path: str) -> Iterator[str]:
        """Yield the new complete lines of a log, up to the size that it has now."""
        with contextlib.suppress(FileNotFoundError), safe_files.open_file(path) as file:
            end, offset = os.fstat(file.fileno()).st_size, self._offsets.get(path, 0)
            while offset < end:
                file.seek(offset)
                data = file.read(CHUNK_BYTES)
                complete = data[: data.rfind(b"\n") + 1] or (data if len(data) == CHUNK_BYTES else b"")
                if not complete:
                    return
                offset = self._offsets[path] = offset + len(complete)
                yield from complete.decode(errors="replace").splitlines()


def wait(folder: Folder) -> int:
    (end,) = deque(follow(folder, after=0, with_output=False), maxlen=1)
    # Its unit still has to stop what is left on the nodes.
    while units.is_active(folder.id):
        time.sleep(POLL_SECONDS)
    print(end["sentence"], file=sys.stderr if end["state"] == "lost" else sys.stdout)
    return int(end["exit_code"])


def stop(config: Config, run_id: str, requested_by: str) -> int:
    """Stop a run, or all that are active. Return 1 if a node did not answer."""
    folders = [find_run(config, each) for each in (units.active_runs() if run_id == "all" else [run_id])]
    if not folders:
        print("no run is going on")
    active = [folder for folder in folders if _request_stop(folder, requested_by)]
    if active:
        # At the same time: each may take its stop_seconds.
        units.control("stop", *(units.supervisor_unit(folder.id) for folder in active))
    return max(map(_report_stop, active), default=0)


def _request_stop(folder: Folder, requested_by: str) -> bool:
    """Return False if the run has ended already."""
    if folder.result() is not None:
        print(f"run {folder.id} has ended already: {state_of(folder)}")
        return False
    try:
        folder.write("stop.json", {"requested_by": requested_by, "requested_at": format_time()})
    except OSError as error:
        print(f"{folder.path} cannot be written ({error.strerror}): the run may resume after a boot", file=sys.stderr)
    return True


def _report_stop(folder: Folder) -> int:
    """Return 1 if a node did not answer."""
    result = folder.result() or {}
    print(result.get("sentence") or _missing_sentence(folder))
    if not result.get("unanswered"):
        return 0
    names = ", ".join(result["unanswered"])
    print(f"{names} did not answer: what runs there ends when it has lost its master.", file=sys.stderr)
    return 1
