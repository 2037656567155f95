"""The files of the running service: their paths, whether it runs, and the connection to it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localcloud.core.errors import Refusal
from localcloud.core.settings import HOME

RUN = HOME / "run"
IMAGES = HOME / "images"
LOG = RUN / "log"
CALLS = RUN / "calls.jsonl"
SOCKET = RUN / "control.sock"
_ROOTS_MACHINE = Path("/run/localcloud")
_MACHINE = _ROOTS_MACHINE if os.geteuid() == 0 else HOME
"""Holds what concerns the whole machine, whatever the HOME. A service without root changes nothing outside its HOME."""

_SERVICE = "service.json"
_ANSWER_SECONDS = 120


@contextmanager
def only_one() -> Iterator[None]:
    """Let one `up` or `down` work at a time."""
    with _locked(HOME / "lock"):
        yield


@contextmanager
def only_builder(image: str) -> Iterator[None]:
    """Let one process build an image at a time; the others wait."""
    with _locked(HOME / f"{image}.lock", wait=True):
        yield


@contextmanager
def only_one_service() -> Iterator[None]:
    """Let one `up` or `down` work at a time, and refuse if the service of another HOME is up on this machine."""
    with _locked(_MACHINE / "service.lock"), only_one():
        service = _running_service(_MACHINE)
        if service is not None and service["home"] != str(HOME.resolve()):
            home = service["home"]
            raise Refusal(
                f"a local cloud with LOCALCLOUD_HOME={home} is up, and a machine can have only one: "
                f"use it, or end it with LOCALCLOUD_HOME={home} localcloud down."
            )
        yield


@contextmanager
def _locked(path: Path, wait: bool = False) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        HOME.mkdir(parents=True, exist_ok=True)
        HOME.chmod(0o700)  # Images hold setuid programs, as old as the image: only root may run them.
        handle = path.open("w")
    except OSError as error:
        problem = f"{path} cannot be written ({error.strerror})"
        raise Refusal(f"{problem}: set LOCALCLOUD_HOME to a folder of yours.") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise Refusal("another localcloud up or down is at work: wait until it has ended.") from error
        yield


def remember_service() -> None:
    service = {"pid": os.getpid(), "started": _start_time(os.getpid()), "home": str(HOME.resolve())}
    (_MACHINE / _SERVICE).write_text(json.dumps(service), encoding="utf-8")


def forget_service() -> None:
    (_MACHINE / _SERVICE).unlink(missing_ok=True)


def service_pid() -> int | None:
    """Return the process of this HOME's service, if it lives."""
    service = _running_service(_MACHINE)
    return int(service["pid"]) if service is not None and service["home"] == str(HOME.resolve()) else None


def _running_service(folder: Path) -> dict[str, Any] | None:
    """Return the service that is registered in a folder, if it lives: its number may belong to another process now."""
    try:
        service: dict[str, Any] = json.loads((folder / _SERVICE).read_text(encoding="utf-8"))
        return service if _start_time(service["pid"]) == service["started"] else None
    except (OSError, ValueError, KeyError):
        return None


def _start_time(pid: int) -> str:
    """Return when a process was started. Raise ProcessLookupError if it is a zombie."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ProcessLookupError(pid)
    return fields[19]


def ask(command: str, **arguments: Any) -> Any:
    """Ask the running service; what it refuses is refused here."""
    if service_pid() is None:
        if os.geteuid() != 0 and _running_service(_ROOTS_MACHINE):
            raise Refusal("the local cloud that is up on this machine is root's. Example: sudo localcloud status")
        raise Refusal("the local cloud is down: start it with localcloud up.")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(str(SOCKET))
            connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            with connection.makefile() as stream:
                answer: Mapping[str, Any] = json.loads(stream.readline() or "{}")
        except (OSError, ValueError) as error:
            raise Refusal(
                f"the local cloud does not answer ({error}): see {LOG}, or end it with localcloud down."
            ) from error
    if "answer" not in answer:
        raise Refusal(str(answer.get("refusal", f"the local cloud failed: see {LOG}.")))
    return answer["answer"]
