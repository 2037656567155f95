# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Poll until done or until a deadline, and report progress."""

from __future__ import annotations

import random
import time
from typing import Callable, TypeVar

T = TypeVar("T")

FIRST = 0.5
LONGEST = 5.0
CHANGES_EVERY = 5.0
FIRST_REPEAT = 10.0
LONGEST_REPEAT = 60.0

sleep = time.sleep
"""Tests replace it."""


def until(
    poll: Callable[[], T | None],
    seconds: float,
    state: Callable[[], object] = lambda: None,
    after_change: float = FIRST,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] | None = None,
) -> T | None:
    """Return the first result of `poll` that is not None, or None if a poll that began after `seconds` has none.

    The pauses grow while a poll leaves `state` as it is. After a change the pause is `after_change`.
    """
    end = now() + seconds
    length = FIRST
    while True:
        is_last = now() >= end
        before = state()
        result = poll()
        if result is not None or is_last:
            return result
        changed = state() != before
        length = FIRST if changed else length
        left = max(0.0, end - now())
        (pause or sleep)(min(left, (after_change if changed else length) * random.uniform(0.8, 1.2)))
        length = min(LONGEST, length * 1.5)


class ProgressPrinter:
    """Print a line when it changes, and while it does not, again after ever longer pauses."""

    def __init__(self, display: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._display = display
        self._now = now
        self._key = ""
        self._time = float("-inf")
        self._repeat_after = FIRST_REPEAT

    @property
    def has_reported(self) -> bool:
        return bool(self._key)

    def report(self, line: str, rest: str = "", key: str = "") -> None:
        """Print the line and the rest, which may change with each poll. `key`: what of the line does not wait."""
        elapsed, key = self._now() - self._time, key or line
        is_new = key != self._key
        if elapsed < (CHANGES_EVERY if is_new else self._repeat_after):
            return
        self._repeat_after = FIRST_REPEAT if is_new else min(LONGEST_REPEAT, 2 * self._repeat_after)
        self._key, self._time = key, self._now()
        self._display(line + rest)
