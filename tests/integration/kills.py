"""Kill playbooks that run against booted machines, as the OOM killer or a closed terminal does."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml

from tests.account.kit import ROOT, RUN
from tests.integration.machines import RUN_SECONDS, Cloud, Cluster

PROGRAM = b"ansible-playbook"


@dataclass(frozen=True)
class Moment:
    """So many seconds after the n-th task has begun: that is about the same place however busy the machine is."""

    task: int
    seconds: float


@dataclass
class Progress:
    """How far a playbook has come, by what it prints."""

    play: str = ""
    task: str = ""
    lines: list[str] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)
    tasks: list[float] = field(default_factory=list)
    """when each of its tasks began, in seconds from its own begin"""
    seconds: float = 0
    """when it ended or was killed"""

    @property
    def playbook(self) -> str:
        """The file that the play is in: site.yml imports others."""
        return PLAYS.get(self.play, "")

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def moment(self, fraction: float) -> Moment:
        """The moment when this fraction of its time had passed."""
        seconds = fraction * self.seconds
        count = sum(start <= seconds for start in self.tasks)
        return Moment(count, seconds - ([0.0, *self.tasks][count]))

    def read(self, line: str) -> None:
        self.lines.append(line)
        if line.startswith("PLAY ["):
            self.play = _name(line)
        elif line.startswith("TASK ["):
            self.task = _name(line)
            self.tasks.append(self.now())

    def now(self) -> float:
        return time.monotonic() - self.begun


def _name(line: str) -> str:
    return line.partition("[")[2].rpartition("]")[0]


def _plays() -> dict[str, str]:
    """The playbook of each play, by the play's name."""
    playbooks = {}
    for path in sorted((ROOT / "playbooks").glob("*.yml")):
        for play in yaml.safe_load(path.read_text(encoding="utf-8")):
            if "hosts" in play:
                playbooks[play["name"]] = path.name
    return playbooks


PLAYS = _plays()


def run_whole(cluster: Cluster, *words: str, **extra: Any) -> Progress:
    """Run a playbook to its end, which has to be a good one."""
    with _reading(cluster, words, extra) as (playing, progress, reader):
        code = playing.wait(RUN_SECONDS)
        reader.join()
    assert code == 0, progress.output[-6000:]
    return progress


def kill_at(moment: Moment, cluster: Cluster, *words: str, **extra: Any) -> Progress | None:
    """Run a playbook and kill it. Return how far it came, or None if it had ended by itself."""
    with _reading(cluster, words, extra, lambda progress: len(progress.tasks) >= moment.task) as (playing, progress, _):
        with contextlib.suppress(subprocess.TimeoutExpired):
            playing.wait(moment.seconds)
        if playing.poll() is not None:
            return None
        kill(playing.pid)
    return progress


def kill_when(
    reached: Callable[[Progress], bool], cluster: Cluster, *words: str, after: float = 0, **extra: Any
) -> Progress:
    """Run a playbook and kill it as soon as it has come that far, or so many seconds after that."""
    with _reading(cluster, words, extra, reached) as (playing, progress, _):
        with contextlib.suppress(subprocess.TimeoutExpired):
            playing.wait(after)
        assert playing.poll() is None, f"it has ended before: {progress.output[-6000:]}"
        kill(playing.pid)
    return progress


@contextmanager
def _reading(
    cluster: Cluster,
    words: tuple[str, ...],
    extra: dict[str, Any],
    reached: Callable[[Progress], bool] = lambda _progress: True,
) -> Iterator[tuple[subprocess.Popen[str], Progress, threading.Thread]]:
    """Start a playbook, and yield as soon as it has come so far or has ended."""
    progress, arrived = Progress(), threading.Event()

    def read(lines: IO[str]) -> None:
        # What outlives the playbook may hold its output open until this closes it.
        with contextlib.suppress(ValueError):
            for line in lines:
                progress.read(line)
                if reached(progress):
                    arrived.set()

    with cluster.playing(*words, **extra) as playing:
        assert playing.stdout
        reader = threading.Thread(target=read, args=(playing.stdout,), daemon=True)
        reader.start()
        if reached(progress):
            arrived.set()
        while not arrived.wait(0.05) and playing.poll() is None:
            pass
        try:
            yield playing, progress, reader
        finally:
            progress.seconds = progress.now()


def kill(pid: int) -> None:
    """Kill ansible-playbook and its forks by SIGKILL. The ssh clients and modules that they have started live on."""
    victims = [pid]
    for victim in victims:
        # A stopped process forks no more.
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGSTOP)
        victims += [child for child in _children(victim) if _is_playbook(child)]
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                pids.append(int(path.parent.name))
    return pids


def _is_playbook(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return any(word.endswith(PROGRAM) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2])
    return False


@contextmanager
def marked(cloud: Cloud) -> Iterator[None]:
    """End the processes that playbooks killed in here have left on the operator's machine."""
    mark = secrets.token_hex(8)
    cloud.variables[RUN] = mark
    try:
        yield
    finally:
        del cloud.variables[RUN]
        deadline = time.monotonic() + 120
        while left := _with(f"{RUN}={mark}".encode()):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < deadline, f"these do not end: {left}"


def _with(word: bytes) -> list[int]:
    """The processes with this in their environment."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if word in path.read_bytes().split(b"\0"):
                pids.append(int(path.parent.name))
    return pids
