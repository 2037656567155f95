"""How busy the nodes are: each writes a file of its own to the shared file system, where the others read it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deeplearning import machine, programs, safe_files
from deeplearning.contract import atomic_file, node_load, paths, problems, schema
from deeplearning.contract.errors import UserError
from deeplearning.deadline import DeadlineExceeded, within
from deeplearning.gpus import nvml

PROCESSES = "/proc"
DRIVER_SECONDS = 15.0
EFS_SECONDS = 10.0
"""With the time that `members report` waits for the driver, both have to end before the unit's TimeoutStartSec."""
REMOVED_SECONDS = 24 * 3600
"""The files of machines that are gone are removed when they are this old."""


def measure() -> dict[str, Any]:
    """Return how busy this node is, without the id of its instance."""
    gpus, errors = _gpus()
    disk, (available, total) = shutil.disk_usage("/"), machine.memory()
    return {
        "schema": schema.VERSION,
        "at": int(time.time()),
        "load": round(os.getloadavg()[0], 2),
        "processors": os.cpu_count() or 1,
        "memory_percent": round(100 * (total - available) / total),
        "disk_percent": round(100 * (disk.total - disk.free) / disk.total),
        "gpus": gpus,
        # Sessions with a terminal. Ansible and mpirun log in without one.
        "logins": len(programs.run("who").stdout.splitlines()),
        "jobs": sum(_is_job(argv) for argv in _command_lines()),
        "errors": errors,
    }


def _command_lines() -> Iterator[list[str]]:
    """Yield the command line of each process."""
    for process in filter(str.isdecimal, os.listdir(PROCESSES)):
        with contextlib.suppress(OSError):
            argv = Path(PROCESSES, process, "cmdline").read_bytes().decode(errors="replace").split("\0")
            yield argv[:-1]


def _is_job(argv: Sequence[str]) -> bool:
    """Return whether a process stages data, receives files or installs packages, which may leave the processor idle."""
    program = f"{paths.LIBRARY}/__main__.py"
    if program in argv:
        command = argv[argv.index(program) + 1 :]
        return command[:1] in (["data"], ["unpack"]) or command[:2] == ["run", "create"]
    return "pip" in argv and paths.is_in_environment(argv[0])


def _gpus() -> tuple[list[dict[str, int]], list[str]]:
    """Return the use of each GPU, and what went wrong. Without a driver there is nothing to report."""
    if not os.path.exists(paths.NVIDIA_DRIVER):
        return [], []
    reading = nvml.read(DRIVER_SECONDS)
    used, errors = [], [reading.error] if reading.error else []
    for gpu in reading.gpus[: schema.MAX_GPUS]:
        if gpu.lost:
            errors.append(f"GPU {gpu.index}: {gpu.lost}")
        elif gpu.busy_percent is None or gpu.memory_used is None or not gpu.memory_total:
            errors.append(f"GPU {gpu.index} does not report its use{', as MIG is on' if gpu.mig else ''}")
        else:
            memory_percent = min(round(100 * gpu.memory_used / gpu.memory_total), 100)
            used.append({"busy_percent": min(gpu.busy_percent, 100), "memory_percent": memory_percent})
    return used, [_printable(error) for error in errors[: node_load.MAX_ERRORS]]


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)[: node_load.MAX_ERROR]


def publish(efs_mount: str, cluster: str, instance_id: str) -> dict[str, Any]:
    """Write this node's file, and return its content."""
    if not machine.is_mounted(efs_mount):
        raise UserError(f"nothing is mounted at {efs_mount}, where nodes write how busy they are: mount it.")
    record = {**measure(), "instance_id": instance_id}
    content = json.dumps(record, sort_keys=True).encode("ascii")

    def write() -> None:
        with safe_files.open_folder(efs_mount, paths.load(efs_mount, cluster), create=True) as folder:
            atomic_file.replace(f"/proc/self/fd/{folder}/{instance_id}.json", content)

    try:
        within(EFS_SECONDS, write)
    except FileNotFoundError:
        raise UserError(f"{efs_mount} has no folder of {cluster} yet: the master creates it.") from None
    except DeadlineExceeded:
        raise UserError(f"{efs_mount} does not answer within {EFS_SECONDS:g} s.") from None
    return record


def read_all(efs_mount: str, cluster: str) -> list[dict[str, Any]]:
    """Return the load of each node that wrote its file recently. Malformed and foreign files are left out.

    This waits for a file system that does not answer: call it by `within`.
    """
    try:
        with safe_files.open_folder(efs_mount, paths.load(efs_mount, cluster)) as folder:
            loads = [_read(folder, name) for name in sorted(os.listdir(folder))]
    except OSError:
        return []
    return [load for load in loads if load]


def _read(folder: int, name: str) -> dict[str, Any] | None:
    instance_id = name.removesuffix(".json")
    with contextlib.suppress(OSError, UserError):
        with safe_files.open_file(name, folder) as file:
            seen = os.fstat(file.fileno())
            if seen.st_uid != safe_files.OWNER:
                return None
            content = safe_files.read_opened(file, name, node_load.MAX_BYTES)
        if time.time() - seen.st_mtime > REMOVED_SECONDS:
            os.unlink(name, dir_fd=folder)
            return None
        load = node_load.parse(content, name)
        if load["instance_id"] == instance_id and abs(time.time() - load["at"]) < problems.MEMBER_SILENT.threshold:
            return load
    return None
