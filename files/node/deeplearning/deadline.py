"""Run something that may hang for ever, such as a shared file system or a GPU that does not answer, with a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Callable


class DeadlineExceeded(Exception):
    """There was no result in time."""


def within(seconds: float, action: Callable[[], Any]) -> Any:
    """Return what `action` returns in a child process, which must be fit for JSON; raise its OSError.

    A process that waits for a device cannot be killed. It is left alone, and not waited for. A thread could not be
    abandoned like that.
    """
    reading, writing = Pipe(duplex=False)
    child = os.fork()
    if not child:
        reading.close()
        _run_in_child(action, writing)
    writing.close()
    output = b""
    # A child that ends without an answer has none in time.
    with reading, contextlib.suppress(EOFError):
        if reading.poll(seconds):
            output = reading.recv_bytes()
    if not output:
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


def _run_in_child(action: Callable[[], Any], writing: Connection) -> None:
    """Send the result, and exit."""
    with contextlib.suppress(BaseException):
        try:
            result = {"value": action()}
        except OSError as error:
            result = {"errno": error.errno, "strerror": error.strerror, "filename": str(error.filename or "")}
        writing.send_bytes(json.dumps(result).encode())
    os._exit(0)
