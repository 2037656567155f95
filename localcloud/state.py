"""The running service as its files show it: where it writes, whether it lives, and how to talk to it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localcloud.errors import Refusal
from localcloud.settings import HOME

RUN = HOME / "run"
IMAGES = HOME / "images"
LOG = RUN / "log"
CALLS = RUN / "calls.jsonl"
SOCKET = RUN / "control.sock"
_PID = RUN / "pid"

_ANSWER_SECONDS = 120


@contextmanager
def only_one() -> Iterator[None]:
    """One `up` or `down` at a time."""
    HOME.mkdir(parents=True, exist_ok=True)
    HOME.chmod(0o700)  # images hold setuid programs, as old as the image: nobody but root may run them
    with (HOME / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refusal("another localcloud up, down or image build is at work: wait until it has ended.") from error
        yield


def remember_service() -> None:
    _PID.write_text(json.dumps({"pid": os.getpid(), "started": _start_time(os.getpid())}), encoding="ascii")


def service_pid() -> int | None:
    """The service's process, if it lives: a number that the kernel has given to another one does not count."""
    try:
        known = json.loads(_PID.read_text(encoding="ascii"))
        return int(known["pid"]) if _start_time(known["pid"]) == known["started"] else None
    except (OSError, ValueError, KeyError):
        return None


def _start_time(pid: int) -> str:
    """When a process was started; a dead one that nobody has buried yet was not."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ProcessLookupError(pid)
    return fields[19]


def ask(command: str, **arguments: Any) -> Any:
    """Ask the running service; what it refuses is refused here."""
    if os.geteuid() != 0:
        raise Refusal("only root may speak with the local cloud. Example: sudo localcloud status")
    if service_pid() is None:
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
