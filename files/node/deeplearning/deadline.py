"""Run something that may hang for ever, such as a shared file system or a GPU that does not answer, with a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import Any, Callable


class DeadlineExceeded(Exception):
    """There was no result in time."""


def within(seconds: float, action: Callable[[], Any]) -> Any:
    """Return what `action` returns in a child process, which must be fit for JSON; raise its OSError.

    A process that waits for a device cannot be killed. It is left alone, and not waited for. A thread could not be
    abandoned like that.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _run_in_child(action, writing)
    os.close(writing)
    output = _read(reading, seconds)
    os.close(reading)
    if output is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
        raise DeadlineExceeded
    os.waitpid(child, 0)
    result = json.loads(output)
    if "errno" in result:
        raise OSError(result["errno"], result["strerror"], result["filename"])
    return result["value"]


def _run_in_child(action: Callable[[], Any], writing: int) -> None:
    """Write the result to the pipe, and exit."""
    code = 1
    with contextlib.suppress(BaseException):
        try:
            result = {"value": action()}
        except OSError as error:
            result = {"errno": error.errno, "strerror": error.strerror, "filename": str(error.filename or "")}
        with os.fdopen(writing, "w") as pipe:
            json.dump(result, pipe)
        code = 0
    os._exit(code)


def _read(reading: int, seconds: float) -> str | None:
    """Return all of it, or None if the deadline passes or the child dies without writing anything."""
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
