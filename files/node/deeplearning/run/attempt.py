"""One start of a run: mpirun from its beginning to its end, and why it ended."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from deeplearning import Refusal
from deeplearning.config import Config
from deeplearning.run import create, efa, mpirun
from deeplearning.run import plan as plans
from deeplearning.run.folder import Folder
from deeplearning.run.identity import as_root
from deeplearning.run.placing import Place, Superseded, superseded
from deeplearning.run.progress import Progress
from deeplearning.run.record import Log, Record
from deeplearning.run.survey import still_there
from deeplearning.run.units import working

TICK = 0.2
PROGRESS_EVERY = 3.0
SERVERS_GRACE = 3.0
"""Seconds that servers have to end by themselves when the workers have."""
FINISHED, FAILED, LOST, STOPPED = "finished", "failed", "lost", "stopped"


@dataclass(frozen=True)
class Outcome:
    cause: str
    exit_code: int
    first_failure: dict[str, Any] | None = None
    lost: dict[str, str] = field(default_factory=dict)
    """Node to what is known of it."""
    progress: dict[str, Any] | None = None
    reason: str = ""
    """of a failure, if a sentence says more than an exit code"""


class Attempt:
    def __init__(
        self,
        number: int,
        config: Config,
        folder: Folder,
        run: dict[str, Any],
        place: Place,
        record: Record,
        told: Callable[[], bool],
    ) -> None:
        self.number, self.config, self.folder, self.run, self.place = number, config, folder, run, place
        self.record, self.told = record, told
        self.plan = plans.made(create.options(run), place.nodes)
        self.logs = [Log(record, folder, process.name, number) for process in self.plan.processes]
        self.own = Log(record, folder, "mpirun", number)
        """What mpirun itself says."""
        self.seen: list[dict[str, Any]] = [
            {**create.public(process), "pid": None, "state": "planned", "exit_code": None}
            for process in self.plan.processes
        ]
        self.ends: dict[int, int] = {}
        """Process to exit code."""
        self.failure: dict[str, Any] | None = None
        self.reason = ""
        environment = (folder.read("environment.json") or {}).get("environment", {})
        self.on_efa = efa.promised(self.plan, environment)
        self.progress = Progress(folder.path)
        self.ending: subprocess.Popen[bytes] | None = None
        self.done_since: float | None = None
        self.superseded = False

    def go(self) -> Outcome:
        self.write_plan()
        self.record.state.update(attempt=self.number, processes=self.seen)
        processes = [create.public(process) for process in self.plan.processes]
        self.record.event("plan", attempt=self.number, generation=self.place.generation, processes=processes)
        self.record.enter("starting")
        words = mpirun.command(self.plan, self.folder.id, self.number, self.config, self.files)
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.listen(child)
        code = child.wait()
        if self.ending:
            self.ending.wait()
        for log in (*self.logs, self.own):
            log.close()
        if superseded(self.config):
            raise Superseded
        outcome = self.outcome(code)
        # It may have stood still while it asked the nodes.
        if superseded(self.config):
            raise Superseded
        return outcome

    @property
    def files(self) -> str:
        return self.folder.file(f"attempts/{self.number}")

    def write_plan(self) -> None:
        """Under a new name each time, so that no node has an old one in its cache."""
        os.makedirs(self.files, exist_ok=True)
        with open(f"{self.files}/hostfile", "w", encoding="utf-8") as file:
            file.write(mpirun.hostfile(self.plan))
        script = self.run["script"]
        start = {
            "run_id": self.folder.id,
            "run_dir": self.folder.path,
            "data": self.run["data"],
            "attempt": self.number,
            "python": self.run["python"],
            "command": interpreted(self.run["python"], script),
            "arguments": arguments(self.run, self.folder),
            "folder": working_folder(self.folder, script),
            "environment_file": self.folder.file("environment.json"),
            "plan": plans.as_json(self.plan),
        }
        self.folder.write(f"attempts/{self.number}/plan.json", start)

    def listen(self, child: subprocess.Popen[bytes]) -> None:
        sorter = mpirun.Sorter()
        looked = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for pipe in (child.stdout, child.stderr):
                if pipe is None:
                    raise ValueError("mpirun was started without a pipe for its output")
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(TICK)
                # First: this machine may have stood still, and what it hears now may be long ago.
                if time.monotonic() - looked > PROGRESS_EVERY:
                    looked = time.monotonic()
                    self.look()
                for key, _unused in ready:
                    data = os.read(key.fd, 65536)
                    if key.fileobj is child.stdout:
                        for rank, message in sorter.feed(data, last=not data):
                            self.hear(rank, message)
                    elif data:
                        self.complain(data)
                    if not data:
                        selector.unregister(key.fileobj)
                self.decide()
        self.look()

    def hear(self, rank: int, message: dict[str, Any]) -> None:
        if self.superseded or not 0 <= rank < len(self.logs):
            return
        now, seen = message.get("time", time.time()), self.seen[rank]
        if "line" in message:
            self.logs[rank].line(now, message["line"])
            self.look_for_efa(rank, message["line"])
        elif "pid" in message:
            seen.update(pid=message["pid"], state="started")
            self.record.event("process", **seen_as_event(seen))
            if all(one["state"] != "planned" for one in self.seen):
                self.record.enter("running")
        elif "end" in message:
            code = message["end"]
            self.ends[rank] = code
            seen.update(state="ended", exit_code=code)
            self.record.event("process", **seen_as_event(seen))
            if code and self.failure is None and not self.ending:
                self.fail(rank)
            self.record.save()

    def fail(self, rank: int, **more: Any) -> None:
        told = {**seen_as_event(self.seen[rank]), **more, "tail": list(self.logs[rank].tail)}
        self.failure = {key: value for key, value in told.items() if key not in ("pid", "state")}

    def look_for_efa(self, rank: int, line: str) -> None:
        """A run that would be slow for days is better ended in its first minute."""
        taken = efa.fallback(line) if self.on_efa and self.failure is None else ""
        if taken:
            self.fail(rank, exit_code=1)
            self.reason = efa.sentence(taken)

    def complain(self, data: bytes) -> None:
        if self.superseded:
            return
        for line in data.decode(errors="replace").splitlines():
            if line.strip(" -"):
                self.own.line(time.time(), line)

    @property
    def led_well(self) -> bool:
        """Whoever decides about the run has ended, and well."""
        numbers = [self.plan.processes.index(process) for process in self.plan.leading]
        return all(self.ends.get(number) == 0 for number in numbers)

    def decide(self) -> None:
        if self.ending:
            return
        if self.told():
            self.record.enter("stopping")
            self.end()
        elif self.failure:
            self.end()
        elif self.led_well:
            # Parameter servers never exit by themselves; MXNet's do.
            self.done_since = self.done_since or time.monotonic()
            if time.monotonic() - self.done_since > SERVERS_GRACE:
                self.end()

    def end(self) -> None:
        """Of this start's processes on all nodes: mpirun passes it on."""
        words = as_root("systemctl", "stop", working(self.folder.id, self.number))
        self.ending = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def look(self) -> None:
        if superseded(self.config):
            # The run's folder and its nodes are another master's: here is an old one that had stood still.
            self.superseded = True
            for log in (*self.logs, self.own):
                log.drop()
            if not self.ending:
                self.end()
            return
        for log in (*self.logs, self.own):
            log.flush()
        news = self.progress.news()
        if news:
            self.record.state["progress"] = news
            self.record.event("progress", **news)
            self.record.save()

    def outcome(self, code: int) -> Outcome:
        progress = self.progress.summary()
        told, well = self.told(), self.led_well
        lost = {} if not code and not self.ending else self.left_behind()
        if well:
            return Outcome(FINISHED, 0, lost=lost, progress=progress)
        if told:
            return Outcome(STOPPED, 0, lost=lost, progress=progress)
        if lost:
            return Outcome(LOST, self.failure["exit_code"] if self.failure else code or 1, self.failure, lost, progress)
        if self.failure:
            return Outcome(FAILED, self.failure["exit_code"], self.failure, progress=progress, reason=self.reason)
        if not code:
            raise Refusal("mpirun ended well before all processes had told how they ended: see logs/mpirun.log.")
        return Outcome(FAILED, code, self.unheard(), progress=progress)

    def left_behind(self) -> dict[str, str]:
        """Ends what mpirun could not end; nodes that were lost, and why. Whoever hangs is not waited for."""
        ids, here = self.place.boot_ids, self.place.here
        return still_there([(node.name, ids[node.name], node.name == here) for node in self.plan.nodes], self.folder.id)

    def unheard(self) -> dict[str, Any]:
        """mpirun noticed the end of a process, or could not start one, and we heard of it from mpirun alone."""
        named = {"node": self.place.here, "role": "mpirun", "rank": 0}
        return {**named, "exit_code": 1, "signal": None, "tail": list(self.own.tail)}


def seen_as_event(seen: dict[str, Any]) -> dict[str, Any]:
    code = seen["exit_code"]
    name = None
    if code is not None and code > 128:
        try:
            name = signal.Signals(code - 128).name
        except ValueError:
            name = None
    return {**{key: seen[key] for key in ("node", "role", "rank", "pid", "state", "exit_code")}, "signal": name}


def interpreted(python: str, script: str) -> list[str]:
    if script.endswith(".py"):
        return [python, script]
    return ["/bin/bash", script] if script.endswith(".sh") else [script]


def arguments(run: dict[str, Any], folder: Folder) -> list[str]:
    """The example trainers are told where data and results are."""
    from deeplearning import paths

    ours = run["script"].startswith(f"{paths.TRAINERS}/")
    return [*(["--data-dir", "{data}", "--run-dir", "{run}"] if ours else []), *run["script_args"]]


def working_folder(folder: Folder, script: str) -> str:
    """Where its code begins."""
    code = folder.file("code")
    return code if script.startswith(f"{code}/") else os.path.dirname(script)
