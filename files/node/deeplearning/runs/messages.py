"""How wrappers send messages through mpirun: as lines of JSON, the long ones in parts.

mpirun's daemon reads a few KiB of a process at a time, and mpirun mixes what it has read of all processes. Open MPI 5
tags only the beginnings of lines, so a line that is read in two pieces could not be put together again. That is why no
line is longer than one read, and a pipe returns each line by itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from typing import Any

CONTINUED = "\\"
"""The end of each part but the last. A message itself ends with a brace."""
PART_SIZE = 4000
"""With its ends, a part is shorter than a read of 4 KiB."""


def lines(message: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that a message is sent as. They have no `<` (see mpirun.py)."""
    text = json.dumps(message, separators=(",", ":")).replace("<", "\\u003c")
    while len(text) > PART_SIZE:
        yield f"{text[:PART_SIZE]}{CONTINUED}\n"
        text = text[PART_SIZE:]
    yield f"{text}\n"


def keep_writes_apart(output: int) -> None:
    """Have each read of a pipe return one write."""
    # Files and terminals have no such mode.
    with contextlib.suppress(OSError):
        fcntl.fcntl(output, fcntl.F_SETFL, fcntl.fcntl(output, fcntl.F_GETFL) | os.O_DIRECT)
