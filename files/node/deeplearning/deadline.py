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
    deadline, answer, is_whole = time.monotonic() + seconds, b"", False
    with open(reading, "rb", buffering=0) as pipe:
        while not is_whole and select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = pipe.read(65536)
            answer, is_whole = answer + part, not part
    try:
        result = json.loads(answer if is_whole else "")
    except ValueError:
        # A child that dies before its answer, or in the middle of it, has none in time.
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
        raise DeadlineExceeded from None
    os.waitpid(child, 0)
    if "errno" in result:
        raise OSError(result["errno"], result["strerror"], result["filename"])
    return result["value"]


def _run_in_child(action: Callable[[], Any], writing: int) -> None:
    """Write the result to the pipe, and exit."""
    with contextlib.suppress(BaseException):
        try:
            result = {"value": action()}
        except OSError as error:
            result = {"errno": error.errno, "strerror": error.strerror, "filename": str(error.filename or "")}
        with open(writing, "w", encoding="ascii") as pipe:
            json.dump(result, pipe)
    os._exit(0)
