"""One attempt of a run: starts mpirun, follows it to its end, and judges why it ended."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from deeplearning.concurrency import Stopped
from deeplearning.config import Config
from deeplearning.contract import hosts, run_cost
from deeplearning.contract.run_request import stop_seconds
from deeplearning.runs import blame, costs, efa, mpirun, script, units
from deeplearning.runs import plan as plans
from deeplearning.runs.allocation import Allocation
from deeplearning.runs.folder import Folder
from deeplearning.runs.mastership import Superseded, is_superseded
from deeplearning.runs.progress import MetricsReader
from deeplearning.runs.run_log import ProcessLog, RunLog
from deeplearning.runs.stall import StallDetector
from deeplearning.runs.survey import stop_leftovers

POLL_SECONDS = 0.2
TICK_SECONDS = 3.0
SERVERS_GRACE = 3.0
"""Seconds that servers have to exit by themselves after the workers."""
FINISHED, FAILED, LOST, STOPPED = "finished", "failed", "lost", "stopped"
HELD = "held"
"""A node is held, since a GPU of it was at fault."""
_HARMLESS = "plm:ssh: Warning: setpgid("
"""Open MPI 5 prints it at each start: mpirun and the agent it starts both set the agent's process group."""


class AttemptState(Enum):
    """The life of an attempt.

    STARTING ──all processes started──> RUNNING
    STARTING, RUNNING ──leader succeeded──> DRAINING ──all processes ended or SERVERS_GRACE over──> STOPPING
    RUNNING ──first failure or request to stop──> SAVING ──all processes ended or stop_seconds over──> STOPPING
    any other ──first failure or request to stop──> STOPPING
    any ──new master──> STOPPING
    """

    STARTING = "mpirun is starting the processes"
    RUNNING = "all processes have been started"
    DRAINING = "the leading processes have succeeded, and servers may exit by themselves"
    SAVING = "all processes were asked to end, and may save first"
    STOPPING = "the attempt's unit is being stopped, and mpirun stops the processes on the other nodes"


@dataclass(frozen=True)
class AttemptOutcome:
    cause: str
    exit_code: int
    first_failure: dict[str, Any] | None = None
    lost: Mapping[str, str] = field(default_factory=dict)
    """Lost nodes, each with the reason."""
    progress: dict[str, Any] | None = None
    reason: str = ""
    """Of a failure, if a sentence says more than an exit code."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Nodes that are held for the end of this attempt, each with the reason."""


def write_start_files(folder: Folder, run: dict[str, Any], attempt: int, plan: plans.Plan, efs_mount: str) -> str:
    """Write mpirun's hostfile, and plan.json for the wrappers. Return their folder.

    It is a new one each time, so that no node has old files in its cache.
    """
    name = f"attempts/{attempt}"
    path = folder.file(name)
    os.makedirs(path, exist_ok=True)
    with open(f"{path}/hostfile", "w", encoding="utf-8") as file:
        file.write(mpirun.hostfile(plan))
    start = {
        "run_id": folder.id,
        "run_dir": folder.path,
        "data": run["data"],
        "efs_mount": efs_mount,
        "attempt": attempt,
        "max_restarts": run["max_restarts"],
        "stop_seconds": stop_seconds(run),
        "processor": run.get("processor", False),
        "python": run["python"],
        "packages": bool(run.get("requirements")),
        "command": script.command(run),
        "arguments": script.arguments(run),
        "folder": script.working_folder(run["script"]),
        "environment_file": folder.file("environment.json"),
        "plan": plans.as_json(plan),
    }
    folder.write(f"{name}/plan.json", start)
    return path


class ProcessTable:
    """The processes of an attempt as their wrappers report them: states, logs and the first failure."""

    def __init__(self, plan: plans.Plan, folder: Folder, attempt: int, run_log: RunLog) -> None:
        self._run_log = run_log
        leading = set(plan.leading)
        self._leading = [number for number, process in enumerate(plan.processes) if process in leading]
        environment = folder.environment()
        self._expects_efa = efa.is_expected(plan, environment)
        self.network_note = efa.unwatched(plan, environment)
        """A sentence, if nothing checks which network is used."""
        names = [*(process.name for process in plan.processes), "mpirun"]
        self.logs = [ProcessLog(run_log, folder, name, attempt) for name in names]
        """By the numbers of the processes in the plan. The last one is mpirun's."""
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
            self.logs[number].line(message.get("time", time.time()), message["line"])
            self._check_network(number, message["line"])
        elif "stacks" in message:
            self.logs[number].note(message.get("time", time.time()), message["stacks"])
        elif "note" in message:
            self.logs[number].note(message.get("time", time.time()), [message["note"]])
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
                self.logs[-1].line(time.time(), line)

    def failure_from_mpirun(self) -> dict[str, Any]:
        """Return the failure if only mpirun noticed it: a process ended without a message, or did not start."""
        tail = list(self.logs[-1].tail)
        return {"node": hosts.MASTER, "role": "mpirun", "rank": 0, "exit_code": 1, "signal": None, "tail": tail}

    def _update(self, number: int, **changes: Any) -> None:
        self.statuses[number].update(changes)
        self._planned.discard(number)
        self._run_log.event("process", **_event_of(self.statuses[number]))
        self._run_log.save_soon()

    def _fail(self, number: int, **changes: Any) -> None:
        failure = {**_event_of(self.statuses[number]), **changes, "tail": list(self.logs[number].tail)}
        self.failure = {key: value for key, value in failure.items() if key not in ("pid", "state")}

    def _check_network(self, number: int, line: str) -> None:
        """End a run without EFA in its first minute: it would be slow for days."""
        network = efa.fallback(line) if self._expects_efa and self.failure is None else ""
        if network:
            self._fail(number, exit_code=1)
            self.failure_reason = efa.sentence(network)


def _event_of(status: dict[str, Any]) -> dict[str, Any]:
    keys, code = ("node", "role", "rank", "pid", "state", "exit_code"), status["exit_code"]
    name = next((each.name for each in signal.Signals if code == 128 + each), None)
    return {**{key: status[key] for key in keys}, "signal": name}


@dataclass(eq=False)
class Attempt:
    number: int
    config: Config
    folder: Folder
    record: dict[str, Any]
    allocation: Allocation
    run_log: RunLog
    stop_requested: Callable[[], bool]

    def __post_init__(self) -> None:
        self.plan = plans.make(self.record, self.allocation.nodes)
        self.processes = ProcessTable(self.plan, self.folder, self.number, self.run_log)
        self.progress = MetricsReader(self.folder.path, len(self.plan.of(plans.WORKER)))
        hourly = run_cost.hourly(self.record.get("prices") or {}, self.allocation.machines)
        self._earlier_attempts = costs.earlier_attempts(self.folder)
        self.stall = StallDetector(self.plan.processes, self.run_log, self._request_stacks, hourly)
        self.state = AttemptState.STARTING
        self.superseded = False
        self._wait_until = 0.0
        """How long servers may exit by themselves, or processes may save."""
        self._is_cut_off = False
        """True if processes are stopped before they have succeeded. One that saves may end with 0 then."""
        self._helpers: list[subprocess.Popen[bytes]] = []

    def run(self) -> AttemptOutcome:
        files = write_start_files(self.folder, self.record, self.number, self.plan, self.config.efs_mount)
        self._announce()
        command = mpirun.command(self.plan, self.folder.id, self.number, self.config, files)
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._follow(child)
        exit_code = child.wait()
        for helper in self._helpers:
            helper.wait()
        for log in self.processes.logs:
            log.close()
        self.progress.close()
        self._check_mastership()
        # What mpirun could not stop.
        lost = stop_leftovers(self.allocation.boot_ids, self.folder.id, self.number)
        # This machine may have been suspended while it asked the nodes.
        self._check_mastership()
        self.stall.end()
        outcome = self.outcome(exit_code, lost)
        return self.blamed(outcome) if outcome.cause == FAILED else outcome

    def blamed(self, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return the outcome of a failure with whose fault it is."""
        verdict = None
        with contextlib.suppress(Stopped):
            verdict = blame.of_attempt(self.allocation.evidence, self.stop_requested)
        # This machine may have been suspended meanwhile.
        self._check_mastership()
        if verdict is None:
            return AttemptOutcome(STOPPED, 0, progress=outcome.progress)
        for text in verdict.notes:
            self.run_log.event("note", text=text)
        if verdict.at_fault:
            return replace(outcome, cause=HELD, held=verdict.at_fault)
        return replace(outcome, reason=outcome.reason or verdict.reason)

    def _announce(self) -> None:
        self.run_log.state.update(attempt=self.number, processes=self.processes.statuses)
        processes = [process.summary() for process in self.plan.processes]
        self.run_log.event("plan", attempt=self.number, generation=self.allocation.generation, processes=processes)
        if self.processes.network_note:
            self.run_log.event("note", text=self.processes.network_note)
        self.run_log.enter("starting")

    def _check_mastership(self) -> None:
        if is_superseded(self.config):
            raise Superseded

    def _follow(self, child: subprocess.Popen[bytes]) -> None:
        """Read mpirun's output to its end."""
        sorter = mpirun.Sorter()
        last_tick = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for pipe in filter(None, (child.stdout, child.stderr)):
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(POLL_SECONDS)
                # First: this machine may have been suspended, and the output may be old.
                if time.monotonic() - last_tick > TICK_SECONDS:
                    last_tick = time.monotonic()
                    self.tick()
                for key, _unused in ready:
                    data = os.read(key.fd, 65536)
                    if key.fileobj is child.stdout:
                        for number, message in sorter.feed(data, last=not data):
                            self.handle_message(number, message)
                    elif data:
                        self.handle_mpirun_output(data)
                    if not data:
                        selector.unregister(key.fileobj)
                self.advance()
                self.save_pending()
        # NFS shows the last lines only to files that are opened now.
        self.progress.close()
        self.tick()
        self.save_pending(0)

    def handle_message(self, number: int, message: dict[str, Any]) -> None:
        if self.superseded:
            return
        self.processes.handle_message(number, message)
        self.stall.handle_message(number, message)
        if self.state is AttemptState.STARTING and self.processes.all_started:
            self.state = AttemptState.RUNNING
            self.run_log.enter("running")

    def handle_mpirun_output(self, data: bytes) -> None:
        if not self.superseded:
            self.processes.handle_mpirun_output(data)

    def advance(self) -> None:
        """Stop the attempt if the processes or a request to stop are a reason for it."""
        if self.state is AttemptState.STOPPING:
            return
        if self.state is not AttemptState.SAVING:
            if self.stop_requested():
                self.run_log.enter("stopping")
                self.end()
            elif self.processes.failure:
                self.end()
            elif self.processes.leader_succeeded and self.state is not AttemptState.DRAINING:
                # Parameter servers never exit by themselves; MXNet's do.
                self.state, self._wait_until = AttemptState.DRAINING, time.monotonic() + SERVERS_GRACE
        # Wrappers wait to be stopped.
        is_waiting = self.state in (AttemptState.DRAINING, AttemptState.SAVING)
        if is_waiting and (self.processes.all_ended or time.monotonic() > self._wait_until):
            self.stop()

    def end(self) -> None:
        """Ask the processes to end, and give them the run's time to save if all of them run."""
        self._is_cut_off = not self.processes.leader_succeeded
        if self.state is not AttemptState.RUNNING:
            self.stop()
            return
        self.state = AttemptState.SAVING
        self.processes.stopping = True
        self._wait_until = time.monotonic() + stop_seconds(self.record)
        self._helpers.append(units.request_end(self.folder.id, self.number))

    def stop(self) -> None:
        """Begin to stop the attempt's processes on all nodes."""
        self.state = AttemptState.STOPPING
        self.processes.stopping = True
        self._helpers.append(units.stop_attempt(self.folder.id, self.number))

    def tick(self) -> None:
        """Do what is due every few seconds: check mastership, flush the logs, report progress or a stall."""
        if is_superseded(self.config):
            # The run's folder and nodes are the new master's now.
            self.superseded = True
            for log in self.processes.logs:
                log.discard()
            if self.state is not AttemptState.STOPPING:
                self.stop()
            return
        self.run_log.flush(self.processes.logs)
        news = self.progress.news()
        if news:
            self.run_log.state["progress"] = news
            self.run_log.event("progress", **news, cost=self._cost(news["seconds_left"]))
            self.stall.handle_metrics(self.progress.written)
            self.run_log.save()
        if self.state in (AttemptState.STARTING, AttemptState.RUNNING):
            self.stall.tick(can_answer=self.state is AttemptState.RUNNING)

    def _cost(self, seconds_left: float | None) -> dict[str, Any] | None:
        return costs.of_attempts(self.record, self._earlier_attempts, self.run_log.state["attempts"], seconds_left)

    def _request_stacks(self) -> None:
        self._helpers.append(units.request_stacks(self.folder.id, self.number))

    def save_pending(self, *seconds: float) -> None:
        if not self.superseded:
            self.run_log.save_pending(*seconds)

    def outcome(self, exit_code: int, lost: Mapping[str, str]) -> AttemptOutcome:
        """Judge the attempt. What comes first here counts: after a lost node, other processes fail as well."""
        failure, progress = self.processes.failure, self.progress.summary()
        if self.processes.leader_succeeded and not self._is_cut_off:
            return AttemptOutcome(FINISHED, 0, lost=lost, progress=progress)
        if self.stop_requested():
            return AttemptOutcome(STOPPED, 0, lost=lost, progress=progress)
        code = failure["exit_code"] if failure else exit_code or 1
        if lost:
            return AttemptOutcome(LOST, code, failure, lost, progress)
        failure = failure or self.processes.failure_from_mpirun()
        return AttemptOutcome(FAILED, code, failure, progress=progress, reason=self.processes.failure_reason)
