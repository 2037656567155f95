"""Steps of a command that a person starts, such as `make gpu`: what one of them ends with. It needs no package."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class Failed(Exception):
    """What a step has found wrong, in one line."""


@dataclass(frozen=True)
class Outcome:
    step: str
    ok: bool
    seconds: float
    detail: str

    def line(self) -> str:
        return f"{self.step:<10} {'ok' if self.ok else 'FAILED':<7} {self.seconds:6.1f} s  {self.detail}"


def outcome_of(name: str, step: Callable[[], str], folder: Path) -> Outcome:
    """Run a step. Whatever it raises is a failure of it alone, and its trace is kept."""
    started = time.monotonic()
    try:
        ok, detail = True, step()
    except Failed as failure:
        ok, detail = False, str(failure)
    except Exception as error:  # the next steps run on machines that are there for a while only
        ok, detail = False, f"{type(error).__name__}: {error}; see {folder / name}.log"
        (folder / f"{name}.log").write_text(traceback.format_exc(), encoding="utf-8")
    return Outcome(name, ok, round(time.monotonic() - started, 1), " ".join(detail.split()))


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def reason(output: str) -> str:
    """Return the sentence of the task of a playbook that failed."""
    lines = [line.strip() for line in output.splitlines()]
    sentences = [line.partition("msg: ")[2] or line for line in lines if "msg: " in line or line.startswith("fatal:")]
    return (sentences[-1] if sentences else last_line(output)).strip("\"' ")[:400]


def require(is_true: object, sentence: str) -> None:
    if not is_true:
        raise Failed(sentence)


def end_by_exception() -> None:
    """Let a signal that ends this process end its steps as well, which end their programs."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
