"""`run unit`: what deeplearning-run@ID.service on the master does, from waiting for nodes to writing the result.

It exits with 0 whenever there is a result: a failed training is not a failed service.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from deeplearning import safe_paths
from deeplearning.config import Config
from deeplearning.contract import atomic_file
from deeplearning.contract.errors import UserError
from deeplearning.contract.run_request import stop_seconds
from deeplearning.contract.schema import format_time, parse_time
from deeplearning.gpus import busy
from deeplearning.runs import results, stall, units
from deeplearning.runs.allocation import Allocator
from deeplearning.runs.attempt import FAILED, FINISHED, HELD, LOST, STOPPED, Attempt, AttemptOutcome
from deeplearning.runs.create import plan_of_run
from deeplearning.runs.folder import RESULT, Folder, all_runs, check_folder_safety, find_run, runs_root, skip_unreadable
from deeplearning.runs.mastership import Superseded, is_superseded
from deeplearning.runs.run_log import RunLog
from deeplearning.runs.survey import stop_leftovers

RESULT_TRIES = 30
"""Tries to write the result, a second apart: a full file system may get room."""


class Unit:
    def __init__(self, config: Config, folder: Folder) -> None:
        self.config, self.folder = config, folder
        self.run = folder.run()
        self.run_log = RunLog(folder)
        self.attempts: list[dict[str, Any]] = self.run_log.state["attempts"]
        self._stop_requested = False
        self._has_started_an_attempt = False
        """False if all attempts so far are an earlier master's."""
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._stop_requested = True
        units.extend_stop(stop_seconds(self.run))

    def stop_requested(self) -> bool:
        return self._stop_requested

    def supervise(self) -> None:
        """Start attempts until one ends in another way than by a node that is lost or held."""
        self._close_interrupted_attempt()
        while True:
            try:
                outcome = self._attempt(first=not self.attempts)
            except (Superseded, UserError, OSError) as error:
                self.fail(error)
                return
            if outcome.cause == STOPPED and self._is_going_down():
                self._interrupt()
                return
            if outcome.cause not in (LOST, HELD):
                self._end(outcome)
                return
            self.run_log.state["held"] = dict(outcome.held)
            reasons = "; ".join(f"{node}: {reason}" for node, reason in outcome.lost.items())
            lost = held_sentence(outcome.held) or f"lost {reasons}"
            restarts = sum(attempt["cause"] in (LOST, HELD) for attempt in self.attempts)
            if restarts > self.run["max_restarts"]:
                sentence = f"{lost}. It was started again {self.run['max_restarts']} times, which is max_restarts"
                self._end(replace(outcome, cause=FAILED, reason=sentence))
                return
            self.run_log.enter("recovering", lost)

    def fail(self, error: Exception) -> None:
        # A master that was suspended and replaced meets all kinds of errors.
        if isinstance(error, Superseded) or is_superseded(self.config):
            print("another machine is the master now, and the run is its own", file=sys.stderr)
        elif self._is_going_down():
            # So does one whose systemd or file system ends before the run does.
            print(error, file=sys.stderr)
            self._interrupt()
        else:
            self._end(AttemptOutcome(FAILED, 1, reason=str(error)))

    def _is_going_down(self) -> bool:
        """Return whether systemd ends the supervisor, and no operator has asked for the end of the run."""
        return self._stop_requested and self.folder.read("stop.json") is None

    def _interrupt(self) -> None:
        """Leave the run without an end: this machine goes down, or all do. The next master resumes the run."""
        # The cause of an attempt that ended before, such as HELD, decides what the next master waits for.
        if self.attempts and self.attempts[-1]["cause"] == STOPPED:
            self.attempts[-1]["cause"] = LOST
        self.run_log.enter("recovering", "the master goes down, or all machines end soon")

    def _close_interrupted_attempt(self) -> None:
        """Close an attempt without an end: the master went down meanwhile, or was replaced."""
        for attempt in self.attempts:
            if attempt["ended"] is None:
                attempt.update(ended=format_time(), exit_code=1, cause=LOST)
                stall.close(self.run_log)

    def _attempt(self, first: bool) -> AttemptOutcome:
        waiting = "waiting" if first else "recovering"
        if first:
            self.run_log.enter(waiting)
        held = held_sentence(self.run_log.state.get("held") or {})
        allocation = Allocator(
            self.config,
            self.folder,
            self.run,
            first,
            reserve=self._reserve,
            report=lambda reason: self.run_log.enter(waiting, f"{held}. {reason}" if held else reason),
            stop_requested=self.stop_requested,
            trained=sum(parse_time(attempt["ended"]) - parse_time(attempt["started"]) for attempt in self.attempts),
            most=nodes_of(self.attempts[0]) if self.attempts else None,
            held_out_of=nodes_of(self.attempts[-1]) if self.attempts and self.attempts[-1]["cause"] == HELD else 0,
            published=self._has_started_an_attempt,
        ).wait()
        if allocation is None:
            return AttemptOutcome(STOPPED, 0, progress=self.run_log.state["progress"])
        self._has_started_an_attempt = True
        self.run_log.state["held"] = {}
        number = self.folder.attempts()
        entry: dict[str, Any] = {
            "started": format_time(),
            "generation": allocation.generation,
            "machines": allocation.machines,
            **{"ended": None, "exit_code": None, "cause": None, "gpu_busy_percent": None},
        }
        self.attempts.append(entry)
        attempt = Attempt(number, self.config, self.folder, self.run, allocation, self.run_log, self.stop_requested)
        outcome = attempt.run()
        entry.update(ended=format_time(), exit_code=outcome.exit_code, cause=outcome.cause)
        entry["gpu_busy_percent"] = busy.median(attempt.processes.gpu_busy)
        self.run_log.save()
        return outcome

    def _reserve(self, nodes: Sequence[str]) -> None:
        self.run_log.state["nodes"] = list(nodes)
        self.run_log.save()

    def _end(self, outcome: AttemptOutcome) -> None:
        result = {
            "run_id": self.folder.id,
            "state": outcome.cause,
            "exit_code": outcome.exit_code,
            "attempts": self.attempts,
            "first_failure": outcome.first_failure,
            "samples_per_second": (outcome.progress or {}).get("samples_per_second"),
            "final": outcome.progress or self.run_log.state["progress"] or {},
            "unanswered": sorted(outcome.lost),
            "stalled_seconds": self.run_log.state.get("stalled_seconds", 0),
            "sentence": end_sentence(self.folder.id, outcome) + fewer_nodes(self.attempts),
        }
        # The environment may hold secrets. Only a run with a checkpoint can be resumed and needs it for that.
        if self._write_result(result) and not self.folder.checkpoints():
            with self.run_log.reported_write_errors():
                atomic_file.remove(self.folder.file("environment.json"))
        self.run_log.state.update(nodes=[], state=outcome.cause, reason=outcome.reason)
        self.run_log.save()
        keys = ("state", "exit_code", "first_failure", "sentence")
        self.run_log.event("end", **{key: result[key] for key in keys}, results=results.present(self.folder))

    def _write_result(self, result: dict[str, Any]) -> bool:
        """Return False if that is not possible."""
        for _unused in range(RESULT_TRIES):
            try:
                self.folder.write(RESULT, result)
                return True
            except OSError as error:
                self.run_log.report_write_error(error)
                if self._stop_requested:
                    break
                time.sleep(1)
        print(f"the result could not be written: {result['sentence']}", file=sys.stderr)
        return False


def held_sentence(held: Mapping[str, str]) -> str:
    """Return why nodes are held, and what tells an operator what to do; empty if there is none."""
    if not held:
        return ""
    reasons = "; ".join(f"{node} is held: {reason}" for node, reason in held.items())
    return f"{reasons}. ansible-playbook deeplearning.aws.status has the command that replaces it"


def nodes_of(attempt: dict[str, Any]) -> int:
    return sum(attempt["machines"].values())


def fewer_nodes(attempts: Sequence[dict[str, Any]]) -> str:
    """Return words about a run that went on with fewer nodes than it began with; empty for others."""
    first, last = (nodes_of(attempts[0]), nodes_of(attempts[-1])) if attempts else (0, 0)
    return f", on {last} of the {first} nodes that it began with" if last < first else ""


def end_sentence(run_id: str, outcome: AttemptOutcome) -> str:
    if outcome.cause == FINISHED:
        return f"run {run_id} has finished"
    if outcome.cause == STOPPED:
        return f"run {run_id} was stopped"
    failure, reason, where = outcome.first_failure, outcome.reason, ""
    if failure and failure["role"] == "mpirun":
        reason = reason or next(iter(failure["tail"]), "mpirun printed nothing")
    elif failure:
        what = "rank" if failure["role"] == "worker" else failure["role"]
        where = f" ({failure['node']}, {what} {failure['rank']})"
    return f"run {run_id} ended with {outcome.exit_code}{where}{f': {reason}' if reason else ''}"


def run_unit(run_id: str, config: Config) -> None:
    try:
        check_folder_safety(config, run_id)
    except UserError as error:
        _fail_unsafe_run(run_id, config, error)
        return
    folder = find_run(config, run_id)
    if folder.result() is None:
        Unit(config, folder).supervise()


def _fail_unsafe_run(run_id: str, config: Config, error: UserError) -> None:
    """End a run that others could exchange, with the reason as its result if its own folder is safe."""
    try:
        with safe_paths.held_folder(f"{runs_root(config)}/{run_id}") as path:
            folder = Folder(path, run_id)
            if folder.run()["run_id"] != run_id:
                raise error
            if folder.result() is None:
                Unit(config, folder).fail(error)
    except OSError:
        raise error from None


def clean(run_id: str, config: Config) -> None:
    """Stop what is left of a run's last attempt on its nodes, however its unit has ended."""
    if (attempts := find_run(config, run_id).attempts()) and not is_superseded(config):
        nodes = (node.name for node in plan_of_run(run_id, config).nodes)
        stop_leftovers(dict.fromkeys(nodes, ""), run_id, attempts - 1)


def recover(config: Config) -> None:
    """At boot, start the runs that the cluster's master has left without an end: this machine or the one before it."""
    if config.role != "master":
        return
    for folder in all_runs(config):
        with skip_unreadable(folder):
            is_interrupted = folder.state() and folder.result() is None and folder.read("stop.json") is None
            if is_interrupted and folder.run()["cluster_id"] == config.cluster_id and not units.is_active(folder.id):
                units.control("start", units.supervisor_unit(folder.id))
