"""Locks between processes of one node."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Generator

from deeplearning.contract.errors import UserError


@contextlib.contextmanager
def exclusive_lock(path: str, command: str, seconds: float = 20) -> Generator[None, None, None]:
    """Let one process work at a time. Raise UserError if another one still holds the lock after `seconds`."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise UserError(
                        f"another `{command}` has been at work for {seconds:g} s: does the shared file system answer?"
                    ) from None
                time.sleep(0.1)
        yield
