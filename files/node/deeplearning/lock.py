"""Let one process of a node at a time do what timers and people start."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Generator

from deeplearning.contract import paths
from deeplearning.contract.errors import UserError

SECONDS = 20


@contextlib.contextmanager
def exclusive_lock(action: str) -> Generator[None, None, None]:
    """Lock an action of `deeplearning members`. Raise UserError if another process holds the lock for too long."""
    os.makedirs(paths.RUNTIME, exist_ok=True)
    with open(f"{paths.RUNTIME}/{action}.lock", "w", encoding="ascii") as file:
        end = time.monotonic() + SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise UserError(
                        f"another `deeplearning members {action}` has been at work for {SECONDS} s: does the shared "
                        "file system answer?"
                    ) from None
                time.sleep(0.1)
        yield
