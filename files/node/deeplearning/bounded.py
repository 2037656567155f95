"""Something that may hang for ever, such as a shared file system or a GPU that does not answer, within a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import Any, Callable


class Late(Exception):
    """There was no answer in time."""


def within(seconds: float, action: Callable[[], Any]) -> Any:
    """What `action` gives (fit for JSON), from a process of its own; its OSError is ours.

    A process that the kernel does not let die (it waits for the device) is left to itself, and nobody waits for
    it: a thread could not be left like that.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _answer(action, writing)
    os.close(writing)
    answer = _read(reading, seconds)
    os.close(reading)
    if answer is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
        raise Late
    os.waitpid(child, 0)
    said = json.loads(answer)
    if "errno" in said:
        raise OSError(said["errno"], said["strerror"], said["filename"])
    return said["value"]


def _answer(action: Callable[[], Any], writing: int) -> None:
    """The child's whole life."""
    code = 1
    with contextlib.suppress(BaseException):
        try:
            said = {"value": action()}
        except OSError as error:
            said = {"errno": error.errno, "strerror": error.strerror, "filename": str(error.filename or "")}
        with os.fdopen(writing, "w") as pipe:
            json.dump(said, pipe)
        code = 0
    os._exit(code)


def _read(reading: int, seconds: float) -> str | None:
    """All of it, or nothing: a child that died without a word counts as one that did not answer."""
    deadline = time.monotonic() + seconds
    parts: list[bytes] = []
    while True:
        ready, *_rest = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(reading, 65536)
        if not part:
            return b"".join(parts).decode() or None
        parts.append(part)
