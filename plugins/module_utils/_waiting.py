# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Waiting for AWS: look at once, then ever less often, never past a deadline.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import time
from typing import Callable, TypeVar

T = TypeVar("T")

FIRST = 0.5
LONGEST = 5.0

sleep = time.sleep
"""Tests put their own in its place."""


def until(
    look: Callable[[], T | None],
    seconds: float,
) -> T | None:
    """What `look` finds (anything that is not None); None if it has found nothing when the time is up."""
    end = time.monotonic() + seconds
    pause = FIRST
    while True:
        found = look()
        if found is not None:
            return found
        left = end - time.monotonic()
        if left <= 0:
            return None
        sleep(min(pause, left))
        pause = min(LONGEST, pause * 1.5)
