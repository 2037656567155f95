"""Shared file systems: a folder for each, seen through FUSE, put into machines that reach a mount target's port 2049.

The folder goes through `bindfs`, so that it bears the file system's name in a machine's list of mounts and so that it
can be made to stall as NFS does when its server is gone: every access waits, and goes on when it is back.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from localcloud.accepting import Accepting
from localcloud.machines.cgroups import Cgroup

log = logging.getLogger(__name__)


class FileSystems:
    """The folders of the file systems, mounted when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    def open(self, name: str, region: str) -> Path:
        """Where a file system can be seen on the host."""
        with self._lock:
            mounted = self._folder / name / "mounted"
            server = self._servers.get(name)
            if server is None or server.poll() is not None:
                self._servers[name] = self._start(name, region, mounted)
            return mounted

    def _start(self, name: str, region: str, mounted: Path) -> subprocess.Popen[bytes]:
        data = self._folder / name / "data"
        data.mkdir(parents=True, exist_ok=True)
        mounted.mkdir(exist_ok=True)
        data.chmod(0o755)
        group = Cgroup(_group(name))
        group.create()
        source = f"{name}.efs.{region}.amazonaws.com:/"
        command = ["bindfs", "-f", "--multithreaded", "-o", f"fsname={source},subtype=nfs4", str(data), str(mounted)]
        server = subprocess.Popen(
            group.command(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 10
        while not os.path.ismount(mounted):
            if server.poll() is not None or time.monotonic() > deadline:
                raise OSError(f"bindfs did not mount {name}")
            time.sleep(0.01)  # a mount raises no event that could be waited for without polling
        return server

    def stall(self, name: str, stalled: bool) -> None:
        """Let every access wait, or go on."""
        if name in self._servers:
            Cgroup(_group(name)).freeze(stalled)

    def keep(self, existing: set[str]) -> None:
        """Throw away what belongs to file systems that are no more."""
        with self._lock:
            for name in [name for name in self._servers if name not in existing]:
                del self._servers[name]
                self._end(name)

    def close(self) -> None:
        with self._lock:
            for name in list(self._servers):
                self._end(name)
            self._servers.clear()

    def _end(self, name: str) -> None:
        sweep_one(self._folder / name)


def _group(name: str) -> str:
    return f"efs-{name}"


def sweep_one(folder: Path) -> None:
    """End a file system's server, take its mount away, throw its data away."""
    Cgroup(_group(folder.name)).remove()
    subprocess.run(["umount", "--lazy", str(folder / "mounted")], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def put_into(machine_pid: int, source: Path, target: str, readonly: bool) -> None:
    """Mount a folder of the host at a place inside a machine."""
    helper = Path(__file__).with_name("put_into.py")
    command = [sys.executable, "-ISE", str(helper), str(machine_pid), str(source), target, "ro" if readonly else "rw"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "mount failed")


class MountServer:
    """Port 2049 of a VPC's mount targets: speaks with `mount.nfs4` in the image, a line of JSON for a word."""

    def __init__(self, listening: socket.socket, mount: Callable[[str, str, str, str, bool], str]) -> None:
        """`mount(client address, server address, path, target, readonly)` says `mounted` or what the matter is."""
        self._mount = mount
        self._accepting = Accepting(listening, self._answer, "nfs")

    def close(self) -> None:
        self._accepting.close()

    def _answer(self, client: socket.socket) -> None:
        client.settimeout(30)
        try:
            with client.makefile() as stream:
                wish = json.loads(stream.readline(65536))
            word = self._mount(
                client.getpeername()[0],
                client.getsockname()[0],
                str(PurePosixPath("/", str(wish["path"]))),
                str(wish["target"]),
                bool(wish["readonly"]),
            )
            client.sendall(word.encode() + b"\n")
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.info("a mount request failed: %r", error)
