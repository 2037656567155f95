"""Control groups: each machine has a tree of its own, so that all its processes can be limited, frozen and killed.

Works with version 1 and mixed hierarchies (a folder for each controller below /sys/fs/cgroup) and with version 2 alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
NAME = "localcloud"

_CPU_PERIOD_US = 100_000


def _hierarchies() -> dict[str, Path]:
    """Return the root of each hierarchy: systemd's, the unified one, and version 1's cpu and memory."""
    if (ROOT / "cgroup.controllers").exists():
        return {"unified": ROOT}
    kinds = ("systemd", "unified", "cpu", "memory")
    return {kind: ROOT / kind for kind in kinds if (ROOT / kind / "cgroup.procs").exists()}


def are_writable() -> bool:
    hierarchies = _hierarchies()
    return bool(hierarchies) and all(os.access(folder, os.W_OK) for folder in hierarchies.values())


class Cgroup:
    """The control groups of one machine (or of one helper process)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._folders = {kind: root / NAME / name for kind, root in _hierarchies().items()}

    def create(self, cpus: float | None = None, memory: int | None = None) -> None:
        """Create the folders, and limit processors and bytes of memory if requested."""
        controllers = {"systemd", "unified"} | ({"cpu"} if cpus else set()) | ({"memory"} if memory else set())
        self._folders = {kind: folder for kind, folder in self._folders.items() if kind in controllers}
        for folder in self._folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        if cpus:
            quota = int(cpus * _CPU_PERIOD_US)
            self._limit("cpu", ("cpu.cfs_quota_us", f"{quota}"), ("cpu.max", f"{quota} {_CPU_PERIOD_US}"))
        if memory:
            self._limit("memory", ("memory.limit_in_bytes", f"{memory}"), ("memory.max", f"{memory}"))

    def _limit(self, controller: str, first: tuple[str, str], second: tuple[str, str]) -> None:
        """Write a value to a file: the first in a folder of the controller's own, the second with version 2 alone."""
        if controller in self._folders:
            folder, (name, value) = self._folders[controller], first
        else:
            for parent in (ROOT, ROOT / NAME):
                (parent / "cgroup.subtree_control").write_text("+cpu +memory", encoding="ascii")
            folder, (name, value) = self._folders["unified"], second
        (folder / name).write_text(value, encoding="ascii")

    def procs_files(self) -> list[str]:
        """Return the files to which a process writes its id to join."""
        return [str(folder / "cgroup.procs") for folder in self._folders.values()]

    def command(self, *argv: str) -> list[str]:
        """Return a command that joins the group first, so that none of its processes is outside."""
        join = f'for group in {" ".join(self.procs_files())}; do echo $$ > $group; done; exec "$@"'
        return ["/bin/sh", "-c", join, "sh", *argv]

    def freeze(self, frozen: bool) -> None:
        (self._folders["unified"] / "cgroup.freeze").write_text("1" if frozen else "0", encoding="ascii")

    def pids(self) -> set[int]:
        pids: set[int] = set()
        # Groups may disappear meanwhile: unlike rglob, os.walk passes over these.
        for root in self._folders.values():
            for folder, _folders, _files in os.walk(root):
                with contextlib.suppress(OSError):
                    pids.update(map(int, Path(folder, "cgroup.procs").read_text(encoding="ascii").split()))
        return pids

    def kill(self) -> None:
        """Kill every process in it."""
        switch = self._folders.get("unified", Path("/nonexistent")) / "cgroup.kill"
        if switch.exists():
            switch.write_text("1", encoding="ascii")
            return
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def remove(self, deadline: float = 60.0) -> None:
        """Kill its processes, and remove the folders."""
        # A killed process that waits for a busy disk ends only when the disk answers.
        end = time.monotonic() + deadline
        while any(folder.exists() for folder in self._folders.values()):
            self.kill()
            if all(_remove_tree(folder) for folder in self._folders.values()):
                return
            if time.monotonic() > end:
                raise TimeoutError(
                    f"the control group of {self.name} cannot be removed: processes {sorted(self.pids())}"
                )
            time.sleep(0.02)  # version 1 has no event for the end of the last process


def _remove_tree(folder: Path) -> bool:
    """Remove a tree of groups from its leaves up. Return False while it still has processes."""
    if not folder.exists():
        return True
    for path, _folders, _files in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _existing() -> Iterator[str]:
    """Yield the names of existing groups: after a crash, those of the previous service."""
    names: set[str] = set()
    for root in _hierarchies().values():
        folder = root / NAME
        if folder.is_dir():
            names.update(entry.name for entry in folder.iterdir() if entry.is_dir())
    yield from sorted(names)


def remove_all() -> None:
    for name in _existing():
        Cgroup(name).remove()
    for root in _hierarchies().values():
        _remove_tree(root / NAME)
