"""Commands of a layer: their output is passed on as it comes, and one that hangs is ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from tests.deprecations import our_deprecations
from tests.layers.cost import joining

ROOT = Path(__file__).resolve().parents[2]

HANG_SECONDS = 10 * 60
"""A test that takes longer is ended, with its stack."""
LONG_HANG_SECONDS = 40 * 60
"""The same for tests with the marker `long`."""
GRACE_SECONDS = 2 * 60
"""A hanging test is to be ended by itself, before its command is."""
SILENCE_SECONDS = HANG_SECONDS + GRACE_SECONDS
"""A command that prints nothing for this long is ended. Slowness alone never fails a layer."""
DRAIN_SECONDS = 5
"""The output of a command that has ended is read for so long, if what it has left running holds it open."""

OUTPUT: ContextVar[TextIO | None] = ContextVar("OUTPUT", default=None)
"""Where a lane prints; by default on standard output."""
NICENESS: ContextVar[int] = ContextVar("NICENESS", default=0)


@dataclass
class Ended:
    """A command that has ended."""

    code: int
    deprecations: list[str] = field(default_factory=list)
    """warnings in its output that our own code or content causes"""
    cpu_seconds: float = 0
    """of the command and its children"""

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.deprecations


class Relay(threading.Thread):
    """Pass on a command's output as it comes, and remember when the last of it came."""

    def __init__(self, source: int, target: TextIO) -> None:
        super().__init__(daemon=True)
        self.source = source
        self.target = target
        self.last_output = time.monotonic()
        self.output = bytearray()

    def run(self) -> None:
        # A terminal answers with an error when the last process has closed it.
        with contextlib.suppress(OSError):
            while part := os.read(self.source, 65536):
                self.last_output = time.monotonic()
                self.output += part
                self.target.buffer.write(part)
                self.target.flush()


class Commands:
    """The commands that run, of all lanes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    @contextlib.contextmanager
    def start(self, words: tuple[str | Path, ...], venv: Path, output: int) -> Iterator[subprocess.Popen[bytes]]:
        niceness = NICENESS.get()
        # From its first instruction on, as what it starts inherits the value.
        more = niceness - os.getpriority(os.PRIO_PROCESS, 0)
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            nice = ("nice", "-n", str(more), *words) if niceness else words
            child = subprocess.Popen(
                joining(nice),
                cwd=ROOT,
                env=environment(venv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            self._running.add(child)
        if niceness:
            # Where the kernel groups processes by session, only the group's own value counts: sched(7).
            with contextlib.suppress(OSError):
                Path(f"/proc/{child.pid}/autogroup").write_text(str(niceness), encoding="ascii")
        try:
            yield child
        finally:
            self._running.discard(child)

    def stop(self) -> None:
        """End all commands, and start no other."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for child in running:
            end(child)


COMMANDS = Commands()


def report(line: str) -> None:
    print(line, file=OUTPUT.get(), flush=True)


def command(*words: str | Path, venv: Path, silence: float = SILENCE_SECONDS) -> Ended:
    """Run a command and show its output. After `silence` seconds without output it may clean up, and is then killed."""
    report(f"$ {shlex.join(map(str, words))}")
    target = OUTPUT.get() or sys.stdout
    with contextlib.ExitStack() as stack:
        with _output_channel(target) as (reading, writing):
            child = stack.enter_context(COMMANDS.start(words, venv, writing))
        relay, watch = Relay(reading, target), Watch(child)
        relay.start()
        watch.start()
        code = _wait(child, watch, relay, silence)
        if code is None:
            report(f"{words[0]} has printed nothing for {silence / 60:g} minutes: ended")
            end(child)
    relay.join(timeout=DRAIN_SECONDS)
    deprecations = our_deprecations(relay.output.decode(errors="replace"))
    for warning in deprecations:
        report(f"caused by our own code or content: {warning}")
    return Ended(124 if code is None else code, deprecations, watch.cpu_seconds)


@contextlib.contextmanager
def _output_channel(target: TextIO) -> Iterator[tuple[int, int]]:
    """A terminal like ours, so that colours stay, or a pipe; the writing end is closed here when the child has it."""
    if target.isatty():
        reading, writing = pty.openpty()
        size = fcntl.ioctl(target.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(writing, termios.TIOCSWINSZ, size)
        # Our own terminal turns ends of lines into what it needs; twice would be too often.
        modes = termios.tcgetattr(writing)
        modes[1] &= ~termios.OPOST
        termios.tcsetattr(writing, termios.TCSANOW, modes)
    else:
        reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(writing)


class Watch(threading.Thread):
    """Notice that a child has ended, and read its CPU time before anybody waits for it."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self.child = child
        self.ended = threading.Event()
        self.cpu_seconds = 0.0
        """of the child, and of its descendants that were waited for"""

    def run(self) -> None:
        # Nothing is left of a child that was waited for already.
        with contextlib.suppress(OSError):
            os.waitid(os.P_PID, self.child.pid, os.WEXITED | os.WNOWAIT)
            # After the command's name, in parentheses: utime, stime, cutime and cstime are the fields 14 to 17.
            fields = Path(f"/proc/{self.child.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            self.cpu_seconds = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        self.ended.set()


def _wait(child: subprocess.Popen[bytes], watch: Watch, relay: Relay, silence: float) -> int | None:
    """Return the exit code, or None once there was no output for this long."""
    try:
        while (rest := relay.last_output + silence - time.monotonic()) > 0:
            if watch.ended.wait(timeout=rest):
                return child.wait()
    except KeyboardInterrupt:
        end(child)
        raise
    return None


def end(child: subprocess.Popen[bytes]) -> None:
    for sign, grace in ((signal.SIGINT, 60), (signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=grace)
            return


def environment(venv: Path) -> dict[str, str]:
    """Ours, with the tools of the virtual environment first, and no way to the operator's AWS account."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_") or name == "AWS_CA_BUNDLE"}
    if not (OUTPUT.get() or sys.stdout).isatty():
        kept["NO_COLOR"] = "1"
    return kept | {
        "PATH": f"{venv / 'bin'}:{kept.get('PATH', os.defpath)}:/usr/sbin:/sbin",
        "VIRTUAL_ENV": str(venv),
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
