"""Shared file systems: a folder of the host that each machine sees through a FUSE server of its own.

The servers (`bindfs`) let the kernel cache per machine, as an NFS client does: sizes and times of open files for 3 s,
missing names for 30 s. Opening a name always reaches the current file. All servers of a file system are in one control
group, so that it can stall as NFS does when its server is gone: every access waits, and continues when it is back.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from localcloud.core.accepting import Accepting
from localcloud.machines.cgroups import Cgroup
from localcloud.machines.host import unmount

log = logging.getLogger(__name__)

_BINDFS = ["bindfs", "-f", "--multithreaded"]
_CACHING = ",".join(
    [
        "attr_timeout=3",
        "negative_timeout=30",
        "entry_timeout=0",
        # Otherwise a file that is replaced between lookup and open is read up to its old size.
        "direct_io",
        # Only `flock` excludes other machines: bindfs would take all `fcntl` locks in its own name, and so give the
        # same lock to two processes of one machine.
        "no_remote_posix_lock",
        # Lets a process that waits for a lock be killed.
        "intr",
    ]
)

# bindfs puts its source folder in the place of `fsname`, unless the folder's name has a comma.
_DATA = "data,"

_MOUNT_SECONDS = 20


@dataclass
class _Server:
    """The process that serves one mount of a file system in one machine."""

    file_system: str
    machine: str
    process: subprocess.Popen[bytes]


@cache
def can_cache() -> bool:
    """Return whether bindfs is built with FUSE 2: with FUSE 3 it lacks some options, and sets the timeouts to 0."""
    result = subprocess.run(["bindfs", "--fuse-version"], capture_output=True, text=True, check=False)
    return "version 2." in result.stdout


def _bindfs(source: str, data: Path, mount_point: Path) -> list[str]:
    options = f"fsname={source},subtype=nfs4"
    if not can_cache():
        return [*_BINDFS, "-o", options, str(data), str(mount_point)]
    return [*_BINDFS, "--enable-lock-forwarding", "-o", f"{options},{_CACHING}", str(data), str(mount_point)]


class FileSystems:
    """The folders of the file systems, and the servers through which machines see them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._stalled: set[str] = set()
        self._servers: list[_Server] = []

    @contextmanager
    def mounted(self, name: str, region: str, machine: str) -> Iterator[Path]:
        """Mount a file system on the host for a machine, which takes the mount over.

        Its server ends with the last mount in the machine, or if the machine did not take it over.
        """
        source = f"{name}.efs.{region}.amazonaws.com:/"
        with self._lock:
            self._servers = [server for server in self._servers if server.process.poll() is None]
            group = self._open(name)
            mount_point = Path(tempfile.mkdtemp(prefix=f"{machine}-", dir=self._folder / name))
            process = subprocess.Popen(
                group.command(*_bindfs(source, self._folder / name / _DATA, mount_point)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._servers.append(_Server(name, machine, process))
        try:
            self._wait_for_mount(name, process, mount_point)
            yield mount_point
        except BaseException:
            process.kill()
            raise
        finally:
            unmount(mount_point)
            mount_point.rmdir()

    def _open(self, name: str) -> Cgroup:
        """Create a file system's folder and control group unless they exist."""
        data = self._folder / name / _DATA
        if name not in self._names:
            data.mkdir(parents=True)
            data.chmod(0o755)
            self._names.add(name)
        group = Cgroup(_group(name))
        group.create()
        return group

    def _wait_for_mount(self, name: str, process: subprocess.Popen[bytes], mount_point: Path) -> None:
        deadline = time.monotonic() + _MOUNT_SECONDS
        while not os.path.ismount(mount_point):
            if name in self._stalled:
                deadline = time.monotonic() + _MOUNT_SECONDS
            if process.poll() is not None or time.monotonic() > deadline:
                raise OSError(f"bindfs did not mount {name}")
            time.sleep(0.01)  # the kernel reports no event for a new mount

    def stall(self, name: str, stalled: bool) -> None:
        """Make every access wait, also those of machines that mount it later; or let all continue."""
        with self._lock:
            if stalled:
                self._stalled.add(name)
                self._open(name).freeze(True)
            elif name in self._stalled:
                self._stalled.discard(name)
                Cgroup(_group(name)).freeze(False)

    def unmount_all(self, machine: str) -> None:
        """Kill a machine's servers: accesses that still wait for them fail, so that the machine can end."""
        with self._lock:
            for server in self._servers:
                if server.machine == machine:
                    server.process.kill()
                    server.process.wait()
            self._servers = [server for server in self._servers if server.machine != machine]

    def retain(self, existing: set[str]) -> None:
        """Remove the file systems that do not exist any more."""
        with self._lock:
            for name in self._names - existing:
                self._remove(name)

    def close(self) -> None:
        self.retain(set())

    def _remove(self, name: str) -> None:
        remove(self._folder / name)
        for server in self._servers:
            if server.file_system == name:
                server.process.wait()
        self._servers = [server for server in self._servers if server.file_system != name]
        self._names.discard(name)
        self._stalled.discard(name)


def _group(name: str) -> str:
    return f"efs-{name}"


def remove(folder: Path) -> None:
    """End a file system's servers, and remove its mounts and its data."""
    Cgroup(_group(folder.name)).remove()
    for mount_point in folder.glob("i-*"):
        unmount(mount_point)
    shutil.rmtree(folder, ignore_errors=True)


def put_into(machine_pid: int, source: Path, target: str, readonly: bool) -> None:
    """Mount a folder of the host at a path inside a machine."""
    helper = Path(__file__).with_name("put_into.py")
    command = [sys.executable, "-ISE", str(helper), str(machine_pid), str(source), target, "ro" if readonly else "rw"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise OSError(result.stderr.strip().splitlines()[-1] if result.stderr.strip() else "mount failed")


class MountServer:
    """Port 2049 of a VPC's mount targets. `mount.nfs4` in the image sends a line of JSON and prints the answer."""

    def __init__(self, listening: socket.socket, mount: Callable[[str, str, str, str, bool], str]) -> None:
        """`mount(client address, server address, path, target, readonly)` returns `mounted` or the problem."""
        self._mount = mount
        self._accepting = Accepting(listening, self._answer, "nfs")

    def close(self) -> None:
        self._accepting.close()

    def _answer(self, client: socket.socket) -> None:
        client.settimeout(30)
        try:
            with client.makefile() as stream:
                request = json.loads(stream.readline(65536))
            answer = self._mount(
                client.getpeername()[0],
                client.getsockname()[0],
                str(PurePosixPath("/", str(request["path"]))),
                str(request["target"]),
                bool(request["readonly"]),
            )
            client.sendall(answer.encode() + b"\n")
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.info("a mount request failed: %r", error)
