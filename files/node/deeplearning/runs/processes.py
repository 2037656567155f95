"""The processes of an attempt as their wrappers report them: states, logs and the first failure."""

from __future__ import annotations

import signal
import time
from collections import Counter
from typing import Any

from deeplearning.runs import efa
from deeplearning.runs.folder import Folder
from deeplearning.runs.plan import Plan
from deeplearning.runs.run_log import ProcessLog, RunLog

_HARMLESS = "plm:ssh: Warning: setpgid("
"""Open MPI 5 prints it at each start: mpirun and the agent it starts both set the agent's process group."""


class ProcessTable:
    def __init__(self, plan: Plan, folder: Folder, attempt: int, run_log: RunLog) -> None:
        self._run_log = run_log
        leading = set(plan.leading)
        self._leading = [number for number, process in enumerate(plan.processes) if process in leading]
        environment = folder.environment()
        self._expects_efa = efa.is_expected(plan, environment)
        self.network_note = efa.unwatched(plan, environment)
        """A sentence, if nothing checks which network is used."""
        self._logs = [ProcessLog(run_log, folder, process.name, attempt) for process in plan.processes]
        self._mpirun_log = ProcessLog(run_log, folder, "mpirun", attempt)
        self.statuses: list[dict[str, Any]] = [
            {**process.summary(), "pid": None, "state": "planned", "exit_code": None} for process in plan.processes
        ]
        self._planned = set(range(len(self.statuses)))
        """The numbers of those that have not reported yet."""
        self.failure: dict[str, Any] | None = None
        """The first failure, as in result.json."""
        self.failure_reason = ""
        """A sentence, if there is more to say than an exit code."""
        self.gpu_busy: Counter[int] = Counter()
        self.stopping = False
        """True if processes that end now are no failures."""

    @property
    def logs(self) -> list[ProcessLog]:
        return [*self._logs, self._mpirun_log]

    @property
    def all_started(self) -> bool:
        return not self._planned

    @property
    def all_ended(self) -> bool:
        return all(status["state"] == "ended" for status in self.statuses)

    @property
    def leader_succeeded(self) -> bool:
        """True if all processes that decide about the run have ended with 0."""
        return all(self.statuses[number]["exit_code"] == 0 for number in self._leading)

    def handle_message(self, number: int, message: dict[str, Any]) -> None:
        """Record a message of the process with this number in the plan."""
        if not 0 <= number < len(self.statuses):
            return
        if "line" in message:
            self._logs[number].line(message.get("time", time.time()), message["line"])
            self._check_network(number, message["line"])
        elif "stacks" in message:
            self._logs[number].note(message.get("time", time.time()), message["stacks"])
        elif "note" in message:
            self._logs[number].note(message.get("time", time.time()), [message["note"]])
        elif "gpu_busy" in message:
            self.gpu_busy[message["gpu_busy"]] += 1
        elif "pid" in message:
            self._update(number, pid=message["pid"], state="started")
        elif "end" in message:
            self._update(number, state="ended", exit_code=message["end"])
            if message["end"] and self.failure is None and not self.stopping:
                self._fail(number)

    def handle_mpirun_output(self, data: bytes) -> None:
        for line in data.decode(errors="replace").splitlines():
            if line.strip(" -\0") and _HARMLESS not in line:
                self._mpirun_log.line(time.time(), line)

    def failure_from_mpirun(self, node: str) -> dict[str, Any]:
        """Return the failure if only mpirun noticed it: a process ended without a message, or did not start."""
        tail = list(self._mpirun_log.tail)
        return {"node": node, "role": "mpirun", "rank": 0, "exit_code": 1, "signal": None, "tail": tail}

    def _update(self, number: int, **changes: Any) -> None:
        self.statuses[number].update(changes)
        self._planned.discard(number)
        self._run_log.event("process", **_event_of(self.statuses[number]))
        self._run_log.save_soon()

    def _fail(self, number: int, **changes: Any) -> None:
        failure = {**_event_of(self.statuses[number]), **changes, "tail": list(self._logs[number].tail)}
        self.failure = {key: value for key, value in failure.items() if key not in ("pid", "state")}

    def _check_network(self, number: int, line: str) -> None:
        """End a run without EFA in its first minute: it would be slow for days."""
        network = efa.fallback(line) if self._expects_efa and self.failure is None else ""
        if network:
            self._fail(number, exit_code=1)
            self.failure_reason = efa.sentence(network)


def _event_of(status: dict[str, Any]) -> dict[str, Any]:
    keys = ("node", "role", "rank", "pid", "state", "exit_code")
    return {**{key: status[key] for key in keys}, "signal": _signal_name(status["exit_code"])}


def _signal_name(exit_code: int | None) -> str | None:
    try:
        return signal.Signals(exit_code - 128).name if exit_code is not None and exit_code > 128 else None
    except ValueError:
        return None
