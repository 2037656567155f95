"""What people and programs are shown of runs: list, show, follow, wait; and stop, which waits for the end as well."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from deeplearning import Refusal
from deeplearning.config import Config
from deeplearning.run import units
from deeplearning.run.folder import Folder, all_runs, existing, moment
from deeplearning.run.plan import aligned

POLL = 0.5
VANISHED = 3.0
"""Seconds without unit and without result, after which a run is lost. It may be about to start."""
LOST_CODE = 1


def state_of(folder: Folder) -> str:
    result = folder.result()
    if result:
        return str(result["state"])
    state = folder.state()
    if units.may_go_on(folder.id):
        return str(state.get("state", "waiting"))
    # It may have ended between the two looks.
    result = folder.result()
    return str(result["state"]) if result else "lost" if state else "created"


def overview(config: Config) -> list[dict[str, Any]]:
    found = []
    for folder in all_runs(config):
        run, state, result = folder.run(), folder.state(), folder.result() or {}
        found.append(
            {
                "run_id": folder.id,
                "state": state_of(folder),
                **{key: run[key] for key in ("framework", "distribution", "script", "asked_by", "asked_at")},
                "nodes": state.get("nodes") or sorted({one["node"] for one in state.get("processes", [])}),
                "progress": state.get("progress"),
                "exit_code": result.get("exit_code"),
                "sentence": result.get("sentence", ""),
            }
        )
    return found


def listed(config: Config) -> str:
    rows = [["run", "state", "code", "framework", "distribution", "nodes", "epoch", "asked at"]]
    for run in overview(config):
        epoch = (run["progress"] or {}).get("epoch")
        shown = [run["exit_code"], run["framework"], run["distribution"], len(run["nodes"]), epoch, run["asked_at"]]
        rows.append([run["run_id"], run["state"], *("-" if one is None else str(one) for one in shown)])
    return aligned(rows) if len(rows) > 1 else "There is no run yet."


def detail(folder: Folder) -> dict[str, Any]:
    state = folder.state()
    return {
        "schema": 1,
        "run": folder.run(),
        "state": state_of(folder),
        "reason": state.get("reason", ""),
        "attempt": state.get("attempt", 0),
        "processes": state.get("processes", []),
        "progress": state.get("progress"),
        "result": folder.result(),
    }


def shown(folder: Folder) -> str:
    all_of_it = detail(folder)
    rows = [["node", "role", "rank", "pid", "state", "code"]]
    for one in all_of_it["processes"]:
        values = [one[key] for key in ("node", "role", "rank", "pid", "state", "exit_code")]
        rows.append(["-" if value is None else str(value) for value in values])
    run, result = all_of_it["run"], all_of_it["result"]
    reason = f", {all_of_it['reason']}" if all_of_it["reason"] else ""
    lines = [
        f"run {folder.id}: {all_of_it['state']}{reason}",
        f"{run['framework']} {run['distribution']}, {run['script']}, asked by {run['asked_by']} at {run['asked_at']}",
        f"start {all_of_it['attempt'] + 1}, {folder.path}",
    ]
    if all_of_it["progress"]:
        known = {key: value for key, value in all_of_it["progress"].items() if value is not None}
        lines.append(", ".join(f"{key} {value:.6g}" for key, value in known.items()))
    if result:
        lines.append(result["sentence"])
    return "\n".join([*lines, "", aligned(rows)])


def followed(folder: Folder, after: int, output: bool) -> Iterator[dict[str, Any]]:
    """Events until the last. What the leading process prints comes between them, if asked for."""
    printed = Printed(folder) if output else None
    missing_since = time.monotonic()
    while True:
        for event in folder.events(after):
            after = event["n"]
            if printed:
                printed.take(event)
                if event["event"] == "end":
                    yield from printed.lines()
            yield event
            if event["event"] == "end":
                return
        if printed:
            yield from printed.lines()
        if units.may_go_on(folder.id):
            missing_since = time.monotonic()
        elif time.monotonic() - missing_since > VANISHED and not list(folder.events(after)):
            yield made_up(folder)
            return
        time.sleep(POLL)


def made_up(folder: Folder) -> dict[str, Any]:
    """Nobody wrote an end."""
    result = folder.result()
    if result:
        return {"event": "end", **{key: result[key] for key in ("state", "exit_code", "first_failure", "sentence")}}
    return {
        "event": "end",
        "state": "lost",
        "exit_code": LOST_CODE,
        "first_failure": None,
        "sentence": gone(folder),
    }


def gone(folder: Folder) -> str:
    if state_of(folder) == "created":
        return f"run {folder.id} has not been started"
    return f"run {folder.id} has vanished without a result: journalctl -u {units.watching(folder.id)} may know why"


class Printed:
    """What the first worker, or the chief, has printed since the last look."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._leading: dict[str, Any] | None = None
        self._read = 0

    def take(self, event: dict[str, Any]) -> None:
        if event["event"] == "plan":
            rank0 = [one for one in event["processes"] if one["role"] in ("chief", "worker") and one["rank"] == 0]
            leading = min(rank0, key=lambda one: str(one["role"]))
            if self._leading != leading:
                self._leading, self._read = leading, 0

    def lines(self) -> Iterator[dict[str, Any]]:
        if self._leading is None:
            return
        which = {key: self._leading[key] for key in ("node", "role", "rank")}
        try:
            with open(self._folder.file(f"logs/{which['node']}.{which['role']}{which['rank']}.log"), "rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            yield {"event": "output", **which, "line": line.partition(" ")[2]}


def waited(folder: Folder) -> int:
    missing_since = time.monotonic()
    while True:
        result = folder.result()
        if result and not units.is_active(folder.id):
            print(result["sentence"])
            return int(result["exit_code"])
        if units.may_go_on(folder.id):
            missing_since = time.monotonic()
        elif time.monotonic() - missing_since > VANISHED:
            print(gone(folder), file=sys.stderr)
            return LOST_CODE
        time.sleep(POLL)


def stopped(config: Config, which: str, by: str) -> int:
    if which == "all":
        folders = [existing(config, run_id) for run_id in units.active_runs()]
    else:
        folders = [existing(config, which)]
    code = 0
    for folder in folders:
        if folder.result() is not None:
            print(f"run {folder.id} has ended already: {state_of(folder)}")
            continue
        try:
            folder.write("stop.json", {"asked_by": by, "asked_at": moment()})
        except OSError as error:
            print(
                f"{folder.path} cannot be written ({error.strerror}): it may begin again after a boot", file=sys.stderr
            )
        units.stop(folder.id)
        result = folder.result() or {}
        print(result.get("sentence") or gone(folder))
        if result.get("unanswered"):
            code = 1
            names = ", ".join(result["unanswered"])
            print(f"{names} did not answer: what runs there ends when it has lost its master.", file=sys.stderr)
    if not folders:
        print("no run is going on")
    return code


def as_lines(events: Iterator[dict[str, Any]]) -> None:
    for event in events:
        print(json.dumps(event), flush=True)


def startable(folder: Folder) -> None:
    if folder.result() is not None:
        raise Refusal(f"Run {folder.id} has ended: go on with it. Example: -e resume={folder.id}")
