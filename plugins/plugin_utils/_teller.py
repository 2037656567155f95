# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Telling how far something is: a bar that is drawn anew on a terminal, a line every few seconds elsewhere.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from ansible import constants
from ansible.utils import color
from ansible_collections.deeplearning.aws.plugins.plugin_utils._untrusted import one_line, printable

EVERY = 5.0


class Show(Protocol):
    def __call__(self, msg: str, *, newline: bool = True) -> None: ...


def on_terminal() -> bool:
    """Ansible's workers have no terminal themselves; whether the one that shows what they say has, it found out at its
    start to know about colours."""
    return bool(color.ANSIBLE_COLOR) and not constants.ANSIBLE_FORCE_COLOR


class Teller:
    """Most of what it shows comes from nodes, so nothing in it reaches the terminal that a terminal obeys."""

    def __init__(self, show: Show, terminal: bool, width: int, now: Callable[[], float] = time.monotonic) -> None:
        self._show, self._terminal, self._width, self._now = show, terminal, width, now
        self._bar = ""
        self._said, self._said_at = "", float("-inf")

    def say(self, line: str) -> None:
        self._clear()
        self._show(printable(line))

    def progress(self, text: str, done: float | None = None) -> None:
        """How far it is now; said as often as is good to read."""
        text = one_line(text)
        if self._terminal:
            line = drawn(text, done, self._width)
            # The carriage return comes first and last: it makes the terminal show what was written.
            self._show(f"\r{line.ljust(len(self._bar))}\r", newline=False)
            self._bar = line
        elif text != self._said and self._now() - self._said_at >= EVERY:
            self._said, self._said_at = text, self._now()
            self._show(f"  {text}")

    def close(self, text: str = "") -> None:
        """The last word on it, once and for all: what a bar showed is gone from the terminal, a line stays."""
        self._clear()
        if text and one_line(text) != self._said:
            self._show(f"  {one_line(text)}")

    def _clear(self) -> None:
        if self._bar:
            self._show(f"\r{' ' * len(self._bar)}\r", newline=False)
            self._bar = ""


BAR = 10


def drawn(text: str, done: float | None, width: int) -> str:
    """One line of a terminal, no wider than it."""
    if done is not None:
        full = round(min(1.0, max(0.0, done)) * BAR)
        text = f"[{'#' * full}{'.' * (BAR - full)}] {text}"
    return text[: max(0, width - 1)]
