"""`run unit`: what deeplearning-run@ID.service on the master does, from waiting for nodes to writing the result.

It ends with 0 whenever there is a result: that a training failed is no fault of the service.
"""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType
from typing import Any

from deeplearning import Refusal, files
from deeplearning.config import Config
from deeplearning.run import units
from deeplearning.run.attempt import FAILED, FINISHED, LOST, STOPPED, Attempt, Outcome
from deeplearning.run.folder import Folder, check_place, existing, moment, runs_root, seconds
from deeplearning.run.placing import Placing, Superseded, superseded
from deeplearning.run.record import Record

RESULT_TRIES = 30
"""Times, a second apart: a full file system may get room."""


class Unit:
    def __init__(self, config: Config, folder: Folder) -> None:
        self.config, self.folder = config, folder
        self.run = folder.run()
        self.record = Record(folder)
        self._told = False
        self._placed = False
        """Whether this machine has started it, not only one before it."""
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        self._told = True

    def told(self) -> bool:
        return self._told

    def go(self) -> None:
        self._close_what_broke_off()
        restarts = 0
        while True:
            try:
                outcome = self._attempt(first=not self.attempts)
            except (Superseded, Refusal, OSError) as trouble:
                self.fail(trouble)
                return
            if outcome.cause == STOPPED and not self._asked_to_stop():
                self._break_off()
                return
            if outcome.cause != LOST:
                self._end(outcome.cause, outcome.exit_code, outcome.first_failure, outcome.reason, outcome)
                return
            lost = "; ".join(f"{node}: {why}" for node, why in outcome.lost.items())
            restarts = sum(each["cause"] == LOST for each in self.attempts)
            if restarts > self.run["max_restarts"]:
                sentence = f"{lost}. It was started again {self.run['max_restarts']} times, which is max_restarts"
                self._end(FAILED, outcome.exit_code, outcome.first_failure, sentence, outcome)
                return
            self.record.enter("recovering", f"lost {lost}")

    def fail(self, trouble: Exception) -> None:
        # What went wrong may be what one meets that has stood still.
        if isinstance(trouble, Superseded) or superseded(self.config):
            print("another machine is the master now: the run is its own", file=sys.stderr)
        else:
            self._end(FAILED, 1, None, str(trouble))

    @property
    def attempts(self) -> list[dict[str, Any]]:
        attempts: list[dict[str, Any]] = self.record.state["attempts"]
        return attempts

    def _asked_to_stop(self) -> bool:
        return self.folder.read("stop.json") is not None

    def _break_off(self) -> None:
        """Nobody asked for the end of the run: this machine goes down, and after its boot the run is gone on with."""
        if self.attempts:
            self.attempts[-1]["cause"] = LOST
        self.record.enter("recovering", "the master goes down")

    def _close_what_broke_off(self) -> None:
        """A start without an end: this master went down under it, or is in another's place."""
        for attempt in self.attempts:
            if attempt["ended"] is None:
                attempt.update(ended=moment(), exit_code=1, cause=LOST)

    def _attempt(self, first: bool) -> Outcome:
        waiting = "waiting" if first else "recovering"
        if first:
            self.record.enter(waiting)
        placing = Placing(
            self.config,
            self.folder,
            self.run,
            first,
            reserve=self._reserve,
            said=lambda reason: self.record.enter(waiting, reason),
            told=self.told,
            trained=sum(lasted(attempt) for attempt in self.attempts),
            published=self._placed,
        )
        place = placing.wait()
        if place is None:
            return Outcome(STOPPED, 0, progress=self.record.state["progress"])
        self._placed = True
        number = self.folder.attempts()
        attempt: dict[str, Any] = {
            "started": moment(),
            "ended": None,
            "generation": place.generation,
            "exit_code": None,
            "cause": None,
        }
        self.attempts.append(attempt)
        outcome = Attempt(number, self.config, self.folder, self.run, place, self.record, self.told).go()
        attempt.update(ended=moment(), exit_code=outcome.exit_code, cause=outcome.cause)
        self.record.save()
        return outcome

    def _reserve(self, nodes: list[str]) -> None:
        self.record.state["nodes"] = nodes
        self.record.save()

    def _end(
        self,
        state: str,
        code: int,
        failure: dict[str, Any] | None,
        reason: str,
        outcome: Outcome | None = None,
    ) -> None:
        last = outcome.progress if outcome else None
        result = {
            "run_id": self.folder.id,
            "state": state,
            "exit_code": code,
            "attempts": self.attempts,
            "first_failure": failure,
            "samples_per_second": (last or {}).get("samples_per_second"),
            "final": last or self.record.state["progress"] or {},
            "unanswered": sorted(outcome.lost) if outcome else [],
            "sentence": sentence(self.folder.id, state, code, failure, reason),
        }
        if self._keep(result):
            self._remove_environment()
        self.record.state.update(nodes=[], state=state, reason=reason)
        self.record.save()
        keys = ("state", "exit_code", "first_failure", "sentence")
        self.record.event("end", **{key: result[key] for key in keys})

    def _keep(self, result: dict[str, Any]) -> bool:
        """Write the result, and return whether that was possible."""
        for _unused in range(RESULT_TRIES):
            try:
                self.folder.write("result.json", result)
                return True
            except OSError as error:
                self.record.complain(error)
                if self._told:
                    break
                time.sleep(1)
        print(f"the result could not be kept: {result['sentence']}", file=sys.stderr)
        return False

    def _remove_environment(self) -> None:
        """It may hold secrets. Only a run with a checkpoint can be resumed, and needs it for that."""
        if self.folder.checkpoints():
            return
        try:
            files.remove(self.folder.file("environment.json"))
        except OSError as error:
            self.record.complain(error)


def lasted(attempt: dict[str, Any]) -> float:
    return seconds(attempt["ended"]) - seconds(attempt["started"])


def sentence(run_id: str, state: str, code: int, failure: dict[str, Any] | None, reason: str) -> str:
    if state == FINISHED:
        return f"run {run_id} has finished"
    if state == STOPPED:
        return f"run {run_id} was stopped"
    where = ""
    if failure and failure["role"] == "mpirun":
        reason = reason or next(iter(failure["tail"]), "mpirun said nothing")
    elif failure:
        what = "rank" if failure["role"] == "worker" else failure["role"]
        where = f" ({failure['node']}, {what} {failure['rank']})"
    return f"run {run_id} ended with {code}{where}{f': {reason}' if reason else ''}"


def watch_over(run_id: str, config: Config) -> int:
    try:
        check_place(config, run_id)
    except Refusal as refusal:
        refuse(run_id, config, refusal)
        return 0
    folder = existing(config, run_id)
    if folder.result() is None:
        Unit(config, folder).go()
    return 0


def refuse(run_id: str, config: Config, refusal: Refusal) -> None:
    """End a run that others could exchange, if its own folder is sound: nobody would hear of the reason otherwise."""
    try:
        with files.held_folder(f"{runs_root(config)}/{run_id}") as path:
            folder = Folder(path, run_id)
            if folder.run()["run_id"] != run_id:
                raise refusal
            if folder.result() is None:
                Unit(config, folder).fail(refusal)
    except OSError:
        raise refusal from None


def clean(run_id: str, config: Config) -> int:
    """After the unit, however it ended: nothing of the run is left on any node."""
    from deeplearning.run.create import planned
    from deeplearning.run.survey import still_there

    folder = existing(config, run_id)
    if folder.attempts() and not superseded(config):
        nodes = planned(run_id, config).nodes
        still_there([(node.name, "", node.name == "deeplearning-worker1") for node in nodes], run_id)
    return 0


def recover(config: Config) -> int:
    """At boot: runs that this cluster's master, this machine or the one before it, has left without an end."""
    from deeplearning.run.folder import all_runs

    if config.role != "master":
        return 0
    for folder in all_runs(config):
        state = folder.state()
        left = state and folder.result() is None and folder.read("stop.json") is None
        if left and folder.run()["cluster_id"] == config.cluster_id and not units.is_active(folder.id):
            units.start(folder.id)
    return 0
