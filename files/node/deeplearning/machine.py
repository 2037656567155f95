"""What this machine is: its instance id, its host keys, its GPUs, whether the shared file system is mounted."""

from __future__ import annotations

import contextlib
import glob
import subprocess
from http.client import HTTPConnection, HTTPException

from deeplearning import Refusal, files, paths
from deeplearning.bounded import Late, within

METADATA = "169.254.169.254"
HOST_KEYS = "/etc/ssh/ssh_host_*_key.pub"
OS_RELEASE = "/etc/os-release"
MOUNTS = "/proc/self/mounts"
DRIVER_SECONDS = 60.0


def instance_id() -> str:
    """Asked once a boot: an image made of a configured machine must not bring that one's."""
    kept = f"{paths.RUNTIME}/instance-id"
    found = files.text_of(kept)
    if found is None:
        found = _metadata("instance-id")
        with contextlib.suppress(PermissionError):
            files.put(kept, found)
    return found


def _metadata(key: str) -> str:
    try:
        token = _ask("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        return _ask("GET", f"meta-data/{key}", {"X-aws-ec2-metadata-token": token})
    except (OSError, HTTPException) as error:
        raise Refusal(f"the metadata service does not say the {key} ({error}): is this an instance of EC2?") from None


def _ask(method: str, path: str, headers: dict[str, str]) -> str:
    connection = HTTPConnection(METADATA, timeout=5)
    try:
        connection.request(method, f"/latest/{path}", headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode("ascii")
    finally:
        connection.close()
    if answer.status != 200:
        raise HTTPException(f"HTTP {answer.status}")
    return body


def host_keys() -> list[str]:
    """Without the comments, which say who made them."""
    keys = [(files.text_of(path) or "").split()[:2] for path in sorted(glob.glob(HOST_KEYS))]
    return [" ".join(key) for key in keys if len(key) == 2]


def gpus() -> int:
    """As the driver counts them; 0 where there is none."""
    try:
        _code, said, _errors = ask_driver("-L")
    except (OSError, Late):
        return 0
    return sum(line.startswith("GPU ") for line in said.splitlines())


def ask_driver(*arguments: str) -> tuple[int, str, str]:
    """How nvidia-smi ended and what it said. About a GPU that fell off the bus it never ends, nor can it be killed."""

    def ask() -> tuple[int, str, str]:
        command = ["nvidia-smi", *arguments]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    code, said, errors = within(DRIVER_SECONDS, ask)
    return code, said, errors


def system() -> str:
    """Example: debian 12"""
    known = dict(line.partition("=")[::2] for line in (files.text_of(OS_RELEASE) or "").splitlines())
    return " ".join(known.get(key, "").strip('"') for key in ("ID", "VERSION_ID")).strip()


def mount(place: str) -> None:
    """By systemd, which tries by itself once a boot. Nobody waits for it: it may take minutes."""
    subprocess.run(["systemctl", "start", "--no-block", place], check=False, capture_output=True)


def is_mounted(place: str) -> bool:
    """Asks the kernel's table: to look at the place itself would wait for a file system that does not answer."""
    return any(line.split()[1] == place for line in (files.text_of(MOUNTS) or "").splitlines())
