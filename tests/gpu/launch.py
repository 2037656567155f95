"""Start a script as a run's attempt does on one node: plan, variables, wrappers, messages and the judgement of ends.

Only systemd's units are left out, as the machine with the GPU may have no systemd.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest import mock

from deeplearning.config import Config
from deeplearning.contract import open_mpi
from deeplearning.contract.errors import UserError
from deeplearning.runs import mpirun
from deeplearning.runs import plan as plans
from deeplearning.runs.attempt import ProcessTable, write_start_files
from deeplearning.runs.folder import Folder
from deeplearning.runs.run_log import RunLog
from deeplearning.runs.stall import StallDetector
from deeplearning.runs.wrapper import ended_with_parent

from tests.gpu.session import ROOT, Session, parsed
from tests.steps import Failed, last_line

NODE, ADDRESS, NETWORK, INTERFACE = "localhost", "127.0.0.1", "127.0.0.0/8", "lo"
WRAPPER = (sys.executable, "-I", str(ROOT / "files/node/deeplearning/__main__.py"), "run", "exec")
MPIRUN, MPIRUN_ERRORS = -1, -2
"""Sources of output in addition to the wrappers, which have the numbers of their ranks."""
GRACE_SECONDS = 5.0


class Launch:
    """One attempt. Use it in a `with` statement, at whose end nothing of it runs, however that comes."""

    def __init__(
        self,
        session: Session,
        name: str,
        script: Path,
        arguments: Sequence[object] = (),
        *,
        ranks: int = 1,
        environment: Mapping[str, str] | None = None,
        through_mpirun: bool = False,
    ) -> None:
        self.session, self.script = session, script
        path = session.work(name)
        (path / "logs").mkdir()
        self.folder = Folder(str(path))
        own = {**session.environment, **(environment or {})}
        self.folder.write("environment.json", {"environment": own})
        run = {
            "framework": "pytorch",
            "distribution": "ddp",
            "processes_per_node": ranks,
            "servers": None,
            "max_restarts": 0,
            "python": session.python,
            "script": str(script),
            "script_args": [str(word) for word in arguments],
            "data": "",
        }
        node = plans.Node(NODE, ADDRESS, 0 if session.on_processor else 1, INTERFACE, free_ports(ranks + 1))
        self.plan = plans.make(run, [node])
        self.files = write_start_files(self.folder, run, 0, self.plan, str(path))
        run_log = RunLog(self.folder)
        self.state = run_log.state
        self.table = ProcessTable(self.plan, self.folder, 0, run_log)
        self._stall = StallDetector(self.plan.processes, run_log, self._request_stacks)
        self.lines: dict[int, list[str]] = defaultdict(list)
        """What each rank has printed."""
        self._through_mpirun = through_mpirun
        self._children: list[subprocess.Popen[bytes]] = []
        self._selector = selectors.DefaultSelector()
        self._sorter = mpirun.Sorter()

    def __enter__(self) -> Launch:
        try:
            self._start_all()
        except BaseException:
            self._end()
            raise
        return self

    def _start_all(self) -> None:
        if self._through_mpirun:
            child = self._start(self._mpirun_words(), self._mpirun_environment(), MPIRUN, subprocess.PIPE)
            self._selector.register(child.stderr, selectors.EVENT_READ, MPIRUN_ERRORS)  # type: ignore[arg-type]
        else:
            for rank in range(len(self.plan.processes)):
                words = [*WRAPPER, f"{self.files}/plan.json"]
                self._start(words, {**os.environ, "OMPI_COMM_WORLD_RANK": str(rank)}, rank)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        deadline = time.monotonic() + GRACE_SECONDS
        # A frozen script would not see another signal. One that has just begun is in no message yet.
        while (pids := descendants([child.pid for child in self._children])) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        while any(child.poll() is None for child in self._children):
            for child in self._children:
                # A wrapper that has reported its script's end waits for another signal.
                child.terminate() if time.monotonic() < deadline else child.kill()
            time.sleep(0.1)
        self._selector.close()
        for log in self.table.logs:
            log.close()

    def _start(
        self, words: Sequence[str], environment: Mapping[str, str], rank: int, errors: int = subprocess.STDOUT
    ) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            # If this process is killed, a wrapper's script ends with the wrapper, and mpirun ends its wrappers itself.
            preexec_fn=ended_with_parent(signal.SIGTERM if rank == MPIRUN else signal.SIGKILL),
        )
        self._children.append(child)
        self._selector.register(child.stdout, selectors.EVENT_READ, rank)  # type: ignore[arg-type]
        return child

    def _mpirun_words(self) -> list[str]:
        """Return mpirun's command of a run without its unit, and with the program of this checkout."""
        config = Config("gpu", "", "", "", (NETWORK,), "root", "master", "", True, self.folder.path, "", None, 1, "")
        folders = (str(self._linked_mpi(self.session.mpi)),) if self.session.mpi else open_mpi.FOLDERS
        with mock.patch.object(open_mpi, "FOLDERS", folders):
            program = shutil.which("mpirun", path=os.pathsep.join(folders))
            try:
                words = list(mpirun.command(self.plan, self.folder.id, 0, config, self.files))
            except UserError as error:
                raise Failed(f"{error} Or unpack its packages, and name the folder: --mpi FOLDER") from None
        start = words.index("--hostfile")
        return [str(program), *words[start : words.index("exec") - 2], str(self._program()), *words[-3:]]

    def _linked_mpi(self, tree: Path) -> Path:
        """Debian's `mpirun` is a link out of the tree."""
        folder = self.session.work("mpi")
        (folder / "mpirun").symlink_to(tree / "usr/bin/orterun")
        return folder

    def _program(self) -> Path:
        """Write the command `deeplearning`. An unpacked Open MPI's libraries are for Open MPI alone."""
        program = Path(self.folder.path) / "deeplearning"
        libraries = os.environ.get("LD_LIBRARY_PATH")
        own = f"LD_LIBRARY_PATH={libraries}" if libraries else "-uLD_LIBRARY_PATH"
        words = shlex.join(["env", "-uOPAL_PREFIX", own, *WRAPPER[:-2]])
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        return program

    def _mpirun_environment(self) -> dict[str, str]:
        own = {"HWLOC_COMPONENTS": open_mpi.HWLOC_COMPONENTS}
        if os.geteuid() == 0:
            own |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if tree := self.session.mpi:
            libraries = sorted({str(path.parent) for path in (tree / "usr/lib").glob("*-linux-gnu/lib*.so*")})
            own |= {"OPAL_PREFIX": str(tree / "usr"), "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
        return {**os.environ, **own}

    def pid(self, rank: int) -> int:
        """Return the process id of a rank's script, or 0 before it has started."""
        return int(self.table.statuses[rank]["pid"] or 0)

    def exit_code(self, rank: int) -> int | None:
        code = self.table.statuses[rank]["exit_code"]
        return None if code is None else int(code)

    def result(self, rank: int) -> Any:
        """Return the JSON that a rank has printed last."""
        return parsed("\n".join(self.lines[rank]), self.script)

    def wait(self, seconds: float) -> None:
        """Wait until all ranks have succeeded."""
        self.until(lambda: self.table.leader_succeeded, seconds, "to end")

    def until(self, condition: Callable[[], bool], seconds: float, what: str, failing: bool = False) -> None:
        """Read messages until the condition is true. A rank that fails ends this, unless that is what is expected."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self.table.failure and not failing:
                failure = self.table.failure
                raise Failed(f"rank {failure['rank']} ended with {failure['exit_code']}: {self._reason(failure)}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.script.name} needs more than {seconds:g} s {what}: {self._last_lines()}")
            if not self._selector.get_map() and not condition():
                raise Failed(f"{self.script.name} is not there any more, and waited {what}: {self._last_lines()}")
            self._read()
            self._stall.tick(can_answer=self.table.all_started)

    def _request_stacks(self) -> None:
        """As systemd does in an attempt's unit: mpirun passes the signal on to the wrappers."""
        for child in self._children:
            child.send_signal(signal.SIGUSR1)

    def _read(self) -> None:
        for key, _unused in self._selector.select(0.1):
            data = os.read(key.fd, 65536)
            if not data:
                self._selector.unregister(key.fileobj)
            if key.data == MPIRUN_ERRORS:
                self.table.handle_mpirun_output(data)
                continue
            if key.data != MPIRUN:
                # As Open MPI 4 passes on what it reads of a process.
                tag = b"[1,%d]<stdout>:" % key.data
                data = tag + data.replace(b"\n", b"\n" + tag) if data else b""
            for number, message in self._sorter.feed(data, last=not self._selector.get_map()):
                self.table.handle_message(number, message)
                self._stall.handle_message(number, message)
                if "line" in message:
                    self.lines[number].append(message["line"])

    def _reason(self, failure: Mapping[str, Any]) -> str:
        return self.table.failure_reason or last_line("\n".join(failure["tail"]))

    def _last_lines(self) -> str:
        lines = {rank: last_line("\n".join(lines)) for rank, lines in sorted(self.lines.items())}
        return json.dumps(lines, ensure_ascii=False)[:300]


def descendants(parents: Iterable[int]) -> list[int]:
    """Return the processes that live and were started by these, or by others that were."""
    children: dict[int, list[int]] = defaultdict(list)
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            state, parent = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                children[int(parent)].append(int(name))
    pids = [pid for parent in parents for pid in children[parent]]
    for pid in pids:
        pids += children[pid]
    return pids


def free_ports(count: int) -> tuple[int, ...]:
    """Return ports that nothing listens at."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _unused in range(count)]
        for each in sockets:
            each.bind((ADDRESS, 0))
        return tuple(each.getsockname()[1] for each in sockets)
