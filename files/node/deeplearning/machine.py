"""This machine: its instance id, its host keys, its GPUs, whether the shared file system is mounted."""

from __future__ import annotations

import contextlib
import glob
from http.client import HTTPConnection, HTTPException

from deeplearning import programs
from deeplearning.contract import atomic_file, paths
from deeplearning.contract.errors import UserError
from deeplearning.gpus import nvml

METADATA = "169.254.169.254"
HOST_KEYS = "/etc/ssh/ssh_host_*_key.pub"
MOUNTS = "/proc/self/mounts"
MEMINFO = "/proc/meminfo"


def instance_id() -> str:
    """Return the instance id. It is cached until the next boot: an image of a configured machine must not keep it."""
    cache = f"{paths.RUNTIME}/instance-id"
    value = atomic_file.read_or_none(cache)
    if value is None:
        try:
            token = _request("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
            value = _request("GET", "meta-data/instance-id", {"X-aws-ec2-metadata-token": token})
        except (OSError, HTTPException) as error:
            raise UserError(
                f"the metadata service does not return the instance-id ({error}): is this an instance of EC2?"
            ) from None
        with contextlib.suppress(PermissionError):
            atomic_file.write_if_changed(cache, value)
    return value


def _request(method: str, path: str, headers: dict[str, str]) -> str:
    with contextlib.closing(HTTPConnection(METADATA, timeout=5)) as connection:
        connection.request(method, f"/latest/{path}", headers=headers)
        response = connection.getresponse()
        body = response.read().decode("ascii")
    if response.status != 200:
        raise HTTPException(f"HTTP {response.status}")
    return body


def memory() -> tuple[int, int]:
    """Return the KiB of memory that are available, and all."""
    lines = (line.split() for line in (atomic_file.read_or_none(MEMINFO) or "").splitlines())
    kib = {fields[0]: int(fields[1]) for fields in lines}
    return kib["MemAvailable:"], kib["MemTotal:"]


def host_keys() -> list[str]:
    """Return the public host keys without their comments."""
    keys = [(atomic_file.read_or_none(path) or "").split()[:2] for path in sorted(glob.glob(HOST_KEYS))]
    return [" ".join(key) for key in keys if len(key) == 2]


def gpus(seconds: float = nvml.SECONDS) -> int:
    """Return the number of GPUs that answer in time; 0 if there is none, or no driver."""
    return nvml.read(seconds).answering


def mount(path: str) -> None:
    """Start the mount without waiting for it, as it may take minutes. By itself systemd tries once a boot."""
    programs.run("systemctl", "start", "--no-block", path)


def is_mounted(path: str) -> bool:
    """Look into the kernel's table, because `stat` waits for a file system that does not answer."""
    return any(line.split()[1] == path for line in (atomic_file.read_or_none(MOUNTS) or "").splitlines())
