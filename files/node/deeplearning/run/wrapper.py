"""`deeplearning run exec`: what mpirun starts for each process. It prepares the process, and tells the master about it.

Messages are JSON lines over mpirun: {"pid"} at the start, {"time", "line"} for each line of output, {"time",
"end"} with the exit code. They have no `<` (see mpirun.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from types import FrameType
from typing import IO, Any

from deeplearning import Refusal
from deeplearning.run import plan as plans
from deeplearning.run.variables import Run, filled, variables

LONGEST_LINE = 64 * 1024
QUIET = 1.0
"""Seconds after which a line without an end is shown, and whoever still holds the output is not waited for."""
_PR_SET_PDEATHSIG = 1
_NOT_STARTED = 127


def main(argv: list[str]) -> int:
    with open(argv[0], encoding="utf-8") as file:
        start = json.load(file)
    plan = plans.from_json(start["plan"])
    process = plan.processes[int(os.environ["OMPI_COMM_WORLD_RANK"])]
    here_it_belongs(plan.node(process.node))
    environment, command = prepared(start, plan, process)
    try:
        code = Child(command, environment, start["folder"]).watched()
    except OSError as error:
        tell(time=time.time(), line=f"{shlex.join(command)} cannot be started: {error}")
        tell(time=time.time(), end=_NOT_STARTED)
        code = _NOT_STARTED
    if code:
        # The master ends the run when it has heard of it. Were this process to end before, mpirun would throw away
        # what it has not passed on yet.
        time.sleep(10)
    return code


def here_it_belongs(node: plans.Node) -> None:
    """mpirun placed this process; the plan said where. If they disagree, ranks would be mixed up."""
    try:
        with socket.socket() as probe:
            probe.bind((node.address, 0))
    except OSError:
        raise Refusal(f"mpirun started on {socket.gethostname()} what the plan has on {node.name}.") from None


def prepared(start: dict[str, Any], plan: plans.Plan, process: plans.Process) -> tuple[dict[str, str], list[str]]:
    run = Run(start["run_id"], start["run_dir"], start["data"], start["attempt"])
    with open(start["environment_file"], encoding="utf-8") as file:
        own = json.load(file)["environment"]
    binaries = os.path.dirname(start["python"])
    environment = {
        **os.environ,
        "PATH": f"{binaries}:{os.environ.get('PATH', os.defpath)}",
        **variables(run, plan, process),
    }
    here = len(plan.on(process.node))
    if here > 1:
        # Each would take all of the node's processors.
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // here)))
    return {**environment, **own}, [*start["command"], *filled(start["arguments"], run, plan, process)]


def tell(**message: Any) -> None:
    text = json.dumps(message, separators=(",", ":")).replace("<", "\\u003c")
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Child:
    """The process itself, in a group of its own, so that its children end with it."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: str) -> None:
        self._rest = b""
        self._output, output = os.pipe()
        with os.fdopen(output, "wb") as sink:
            self._child = self._started(command, environment, folder, sink)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        tell(pid=self._child.pid)

    def _started(
        self, command: list[str], environment: dict[str, str], folder: str, sink: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        libc = ctypes.CDLL(None)

        def end_with_the_wrapper() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        return subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            preexec_fn=end_with_the_wrapper,  # nothing else runs in this process yet
        )

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)

    def watched(self) -> int:
        """Its exit code, as a shell would say it; all that it printed has been told by then."""
        ended_at = None
        while True:
            ready, _unused, _unused = select.select([self._output], [], [], QUIET)
            if ready:
                data = os.read(self._output, 65536)
                if not data:
                    break
                self._say(data)
            else:
                self._say_rest()
            # Something that it started may hold the output for ever.
            if self._child.poll() is not None:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() - ended_at > QUIET:
                    break
        self._say_rest()
        code = self._child.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        code = code if code >= 0 else 128 - code
        tell(time=time.time(), end=code)
        return code

    def _say(self, data: bytes) -> None:
        # A progress bar goes back to the beginning of its line; each of its states is a line here.
        *lines, rest = (self._rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = rest
        now = time.time()
        for line in lines:
            for at in range(0, max(1, len(line)), LONGEST_LINE):
                tell(time=now, line=line[at : at + LONGEST_LINE].decode(errors="replace"))
        if len(self._rest) > LONGEST_LINE:
            self._say_rest()

    def _say_rest(self) -> None:
        if self._rest:
            rest, self._rest = self._rest, b""
            tell(time=time.time(), line=rest.decode(errors="replace"))
