"""The kernel's log of this boot, as root reads it: /dev/kmsg.

Each message has a number that only grows within a boot. So "since an attempt began" needs no clock: the kernel stamps
its messages with another one than programs can read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

KERNEL_LOG = "/dev/kmsg"
NONE = -1
"""The number before the first message."""
_RECORD_BYTES = 8192
"""A read of less than a whole message fails. The kernel's own limit is lower."""
_MESSAGE = re.compile(r"\d+,(\d+),\d+,[^;]*;(.*)")


def messages(after: int = NONE) -> list[tuple[int, str]]:
    """Return the messages with a higher number, each with its number; none where no log can be read."""
    lines = b"".join(_read(KERNEL_LOG)).decode(errors="replace").splitlines()
    numbered = (match for line in lines if (match := _MESSAGE.match(line)))
    return [(int(match[1]), match[2]) for match in numbered if int(match[1]) > after]


def _read(path: str) -> Iterator[bytes]:
    """Yield what a file has, or what the device has now: one message with each read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # a container has no log of the kernel
    with os.fdopen(handle, "rb", buffering=0) as log:
        while True:
            # EPIPE: the kernel has overwritten the message. The next read continues with the oldest one.
            with contextlib.suppress(BrokenPipeError):
                part = log.read(_RECORD_BYTES)
                if not part:
                    return  # there is nothing now
                yield part
