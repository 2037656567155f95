# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Progress: a bar that is redrawn on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from ansible import constants
from ansible.utils import color
from ansible.utils.display import Display

from ..untrusted import one_line, printable
from .run_events import clock

LINE_SECONDS = 5.0
BAR_WIDTH = 10


class Print(Protocol):
    def __call__(self, msg: str, *, newline: bool = True) -> None: ...


class ProgressDisplay:
    """Most of the text comes from nodes, so nothing in it controls the terminal."""

    def __init__(self, show: Print, has_bar: bool, width: int, now: Callable[[], float] = time.monotonic) -> None:
        self._print, self._has_bar, self._width, self._now = show, has_bar, width, now
        self._bar = ""
        self._last_line, self._last_time = "", float("-inf")
        self._transfer: tuple[str, float, int] = ("", 0.0, 0)
        """What is transferred, since when, and how many bytes it had by then."""

    @classmethod
    def of_ansible(cls, has_bar: bool = True) -> ProgressDisplay:
        """Return one that prints as Ansible does. Several nodes that report at once cannot share a bar."""
        display = Display()
        # Workers have no terminal. Ansible checks at its start whether it prints to one, for colours.
        on_terminal = bool(color.ANSIBLE_COLOR) and not constants.ANSIBLE_FORCE_COLOR
        return cls(display.display, has_bar and on_terminal, display.columns)

    def message(self, line: str) -> None:
        self._clear()
        self._print(printable(line))

    def update(self, text: str, done: float | None = None) -> None:
        """Show the current progress, `done` from 0 to 1. Without a bar, most updates are left out."""
        text = one_line(text)
        if self._has_bar:
            line = draw(text, done, self._width)
            # The carriage return comes first and last: it makes the terminal show what was written.
            self._print(f"\r{line.ljust(len(self._bar))}\r", newline=False)
            self._bar = line
        elif text != self._last_line and self._now() - self._last_time >= LINE_SECONDS:
            self._last_line, self._last_time = text, self._now()
            self._print(f"  {text}")

    def transfer(self, what: str, done: int, total: int) -> None:
        """Show how much of a transfer is complete, its speed so far, and the time left at that."""
        now, left = self._now(), ""
        if what != self._transfer[0] or done < self._transfer[2]:
            self._transfer = (what, now, done)
        _what, since, before = self._transfer
        if done > before and now - since >= LINE_SECONDS:
            speed = (done - before) / (now - since)
            left = f", {speed / 2**20:.0f} MiB/s, {clock((total - done) / speed)} left"
        text = f"{what}: {_amounts(done, total)}{left}"
        self.update(text, done / total if total else None)

    def close(self, text: str = "") -> None:
        """Clear the bar, and print the last progress as a line that stays."""
        self._clear()
        if text and one_line(text) != self._last_line:
            self._print(f"  {one_line(text)}")

    def _clear(self) -> None:
        if self._bar:
            self._print(f"\r{' ' * len(self._bar)}\r", newline=False)
            self._bar = ""


def _amounts(done: int, total: int) -> str:
    """Return how much of a transfer is complete, in a unit that shows a small one as well."""
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if total >= unit:
            return f"{done / unit:.0f} of {total / unit:.0f} {name}"
    return f"{done} of {total} bytes"


def draw(text: str, done: float | None, width: int) -> str:
    """Return a line that is narrower than the terminal."""
    if done is not None:
        full = round(min(1.0, max(0.0, done)) * BAR_WIDTH)
        text = f"[{'#' * full}{'.' * (BAR_WIDTH - full)}] {text}"
    return text[: max(0, width - 1)]
