"""`deeplearning run exec`: the wrapper that mpirun starts for each process, and that reports to the master.

Messages go over mpirun (see messages.py): {"pid"} at the start, {"time", "line"} for each line of output, {"time",
"note"} for what else is to be known of the process, and {"time", "end"} with the exit code. At a SIGUSR1, which mpirun
passes on, it reports the stacks of the process, as {"time", "stacks", "state"}. At a SIGUSR2, it ends the process. The
first wrapper of each node with GPUs reports how busy they are, as {"gpu_busy"}.
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
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import IO, Any

from deeplearning.contract.errors import UserError
from deeplearning.contract.run_request import stop_seconds
from deeplearning.runs import affinity, caches, messages
from deeplearning.runs import plan as plans
from deeplearning.runs.stacks import Stacks, state_of
from deeplearning.runs.variables import fill_in, variables

LONGEST_LINE = 64 * 1024
QUIET_SECONDS = 1.0
"""After this an incomplete line is reported, and other holders of the output are not waited for."""
LINGER_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
_NOT_STARTED = 127
_reporting = threading.Lock()


def main(argv: list[str]) -> int:
    messages.keep_writes_apart(output().fileno())
    with open(argv[0], encoding="utf-8") as file:
        start = json.load(file)
    plan = plans.from_json(start["plan"])
    process = plan.processes[int(os.environ["OMPI_COMM_WORLD_RANK"])]
    check_node(plan.node(process.node))
    cache, warning = caches.create()
    environment, command = prepare(start, plan, process, cache)
    notes = [warning, affinity.bind(plan, process, environment)]
    try:
        child = Child(command, environment, start["folder"])
        for note in filter(None, notes):
            report(time=time.time(), note=note)
        if plan.node(process.node).gpus and plan.on(process.node)[0] == process and not start.get("processor"):
            # Only some wrappers need it, and all of them start at once.
            from deeplearning.gpus import busy

            busy.watch(lambda percent: report(gpu_busy=percent))
        code = child.wait()
    except OSError as error:
        report(time=time.time(), line=f"{shlex.join(command)} cannot be started: {error}")
        report(time=time.time(), end=_NOT_STARTED)
        code = _NOT_STARTED
    # The master stops the attempt when it has read the reports. If this process exited now, mpirun would drop what it
    # has not passed on yet: Open MPI 4 and 5 do so, also when all processes have succeeded.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    # Meanwhile other processes may save.
    time.sleep(LINGER_SECONDS + stop_seconds(start))
    return code


def check_node(node: plans.Node) -> None:
    """Raise UserError if mpirun has started this process on another node than planned: ranks would be mixed up."""
    try:
        with socket.socket() as probe:
            probe.bind((node.address, 0))
    except OSError:
        raise UserError(
            f"mpirun has started a process of {node.name} on {socket.gethostname()}: does /etc/hosts agree with the "
            "member list?"
        ) from None


def prepare(
    start: dict[str, Any], plan: plans.Plan, process: plans.Process, cache: str
) -> tuple[dict[str, str], list[str]]:
    """Return the environment and the command of a process. `cache`: the folder for what it compiles, or empty."""
    with open(start["environment_file"], encoding="utf-8") as file:
        own = json.load(file)["environment"]
    search = [os.path.dirname(start["python"]), os.environ.get("PATH", os.defpath)]
    environment = {
        **caches.variables(cache, start, plan.node(process.node).gpus),
        **os.environ,
        **variables(start, plan, process),
    }
    # A master that was not updated yet does not write it.
    if start.get("packages"):
        # Only some runs need it, and all wrappers start at once.
        from deeplearning.runs import packages
        from deeplearning.runs.folder import Folder

        # What the run's requirements add, as installed for this node's own environment.
        folder = packages.of_run(Folder(start["run_dir"]), plan.framework, start["python"]).folder
        search.insert(0, f"{folder}/bin")
        environment["PYTHONPATH"] = folder
        own = {**own, "PYTHONPATH": f"{own['PYTHONPATH']}:{folder}"} if own.get("PYTHONPATH") else own
    environment["PATH"] = ":".join(search)
    local_processes = len(plan.on(process.node))
    if local_processes > 1:
        # By default each process would use all of the node's processors.
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // local_processes)))
    return {**environment, **own}, [*start["command"], *fill_in(start, plan, process)]


def output() -> IO[str]:
    """Return standard error under Open MPI 5, which merges both: standard output is a terminal, and joins writes."""
    is_open_mpi_5 = os.environ.get("PMIX_NAMESPACE", "").startswith("prterun")
    return sys.stderr if is_open_mpi_5 else sys.stdout


def report(**message: Any) -> None:
    with _reporting:
        for line in messages.lines(message):
            output().write(line)
            output().flush()


def ended_with_parent(number: int) -> Callable[[], None]:
    """Return what a new process has to do for the kernel to send it this signal when its parent has ended."""
    libc = ctypes.CDLL(None)

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, number)

    return ask


class Child:
    """The process itself, in a process group of its own, so that its children end with it."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: str) -> None:
        self._rest = b""
        self._stacks = Stacks()
        environment = {**environment, **self._stacks.variables(environment)}
        self._output, output = os.pipe()
        with os.fdopen(output, "wb") as sink:
            self._child = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
                preexec_fn=ended_with_parent(signal.SIGKILL),  # nothing else runs in this process yet
            )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        signal.signal(signal.SIGUSR1, lambda _number, _frame: self._stacks.request(self._child.pid))
        # mpirun passes no SIGTERM on: at its own one, it kills a second later.
        signal.signal(signal.SIGUSR2, lambda _number, frame: self._pass_on(signal.SIGTERM, frame))
        report(pid=self._child.pid)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)

    def wait(self) -> int:
        """Report all output. Return the exit code as a shell does: 128 + n for signal n."""
        ended_at = None
        while True:
            ready, _unused, _unused = select.select([self._output], [], [], QUIET_SECONDS)
            if ready:
                data = os.read(self._output, 65536)
                if not data:
                    break
                self._report_lines(data)
            else:
                self._report_rest()
            if self._stacks.is_due:
                report(time=time.time(), stacks=self._stacks.take(), state=state_of(self._child.pid))
            # A child of it may hold the output for ever.
            if self._child.poll() is not None:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() - ended_at > QUIET_SECONDS:
                    break
        self._report_rest()
        code = self._child.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        code = code if code >= 0 else 128 - code
        report(time=time.time(), end=code)
        return code

    def _report_lines(self, data: bytes) -> None:
        # A progress bar returns to the beginning of its line: report each state as a line.
        *lines, rest = (self._rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = rest
        now = time.time()
        for line in lines:
            for at in range(0, max(1, len(line)), LONGEST_LINE):
                report(time=now, line=line[at : at + LONGEST_LINE].decode(errors="replace"))
        if len(self._rest) > LONGEST_LINE:
            self._report_rest()

    def _report_rest(self) -> None:
        if self._rest:
            rest, self._rest = self._rest, b""
            report(time=time.time(), line=rest.decode(errors="replace"))
