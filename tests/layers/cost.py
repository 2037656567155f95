"""The CPU time of a layer, with that of the machines and servers that its commands start in the background.

Each layer runs in a control group of its own. A booted machine stays in that group with version 1 of control groups,
as the local cloud moves its machines only between groups of other controllers. With version 2 alone, the local cloud
moves them below its own group, which is measured as well. Without root there are no groups: only the commands count.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MACHINES = "localcloud"
"""The control group of the local cloud's machines with version 2."""
SAMPLE_SECONDS = 2.0
REMOVAL_SECONDS = 10.0

GROUP: ContextVar[Path | None] = ContextVar("GROUP", default=None)
"""The control group that the commands of the present layer join."""


def _hierarchy() -> Path | None:
    """Return the hierarchy that accounts for CPU time, or None if this user cannot create groups in it."""
    for candidate in (ROOT / "cpuacct", ROOT / "cpu,cpuacct", ROOT):
        is_hierarchy = (candidate / "cpuacct.usage").exists() or (candidate / "cgroup.controllers").exists()
        if is_hierarchy and os.access(candidate, os.W_OK):
            return candidate
    return None


def usage(group: Path) -> float:
    """Return the CPU seconds of a group and of all groups below it, those that were removed included."""
    with contextlib.suppress(OSError):
        return int((group / "cpuacct.usage").read_text(encoding="ascii")) / 1e9
    with contextlib.suppress(OSError):
        fields = dict(line.split() for line in (group / "cpu.stat").read_text(encoding="ascii").splitlines())
        return int(fields["usage_usec"]) / 1e6
    return 0.0


class Sampler(threading.Thread):
    """Add up the CPU time of a group that others create and remove meanwhile."""

    def __init__(self, group: Path) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.seconds = 0.0
        self._last = usage(group)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.sample()

    def sample(self) -> None:
        now = usage(self.group)
        # The group is a new one if it has used less than before.
        self.seconds += now - self._last if now >= self._last else now
        self._last = now

    def end(self) -> float:
        self._ended.set()
        self.join()
        self.sample()
        return self.seconds


class Meter:
    """The CPU time of one layer."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """0 until the layer has ended, and always 0 where control groups cannot be used"""


@contextlib.contextmanager
def measured(layer: str) -> Iterator[Meter]:
    """Run commands of a layer in a control group, and remove the group at the end."""
    meter = Meter()
    hierarchy = _hierarchy()
    if hierarchy is None:
        yield meter
        return
    group = hierarchy / f"deeplearning-tests-{os.getpid()}-{layer}"
    group.mkdir(exist_ok=True)
    has_version_1 = (group / "cpuacct.usage").exists()
    sampler = None if has_version_1 else Sampler(hierarchy / MACHINES)
    if sampler:
        sampler.start()
    token = GROUP.set(group)
    try:
        yield meter
    finally:
        GROUP.reset(token)
        background = sampler.end() if sampler else 0.0
        meter.seconds = usage(group) + background
        _remove(group)


def joining(command: tuple[str | Path, ...]) -> tuple[str | Path, ...]:
    """Return a command that joins the layer's control group first, so that all that it starts is in it."""
    group = GROUP.get()
    if group is None:
        return command
    return ("/bin/sh", "-c", 'echo $$ > "$0" || true; exec "$@"', group / "cgroup.procs", *command)


def _remove(group: Path) -> None:
    """Remove a group. Processes that outlive their layer are moved to the group above it."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    while True:
        for pid in (group / "cgroup.procs").read_text(encoding="ascii").split():
            with contextlib.suppress(OSError):
                (group.parent / "cgroup.procs").write_text(pid, encoding="ascii")
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)  # between two attempts: the kernel does not report when a group is free
