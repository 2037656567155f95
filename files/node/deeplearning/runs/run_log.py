"""A run's events and state, and the logs of its processes. Only the master writes them.

A full file system must not end a run: a failed write is reported once, as an event and in systemd's journal.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import IO, Any

from deeplearning.concurrency import with_files
from deeplearning.contract.schema import format_time
from deeplearning.runs.folder import Folder

SAVE_SECONDS = 1.0
"""Between two states that `save_pending` writes: one of many processes is large."""
TAIL = 30
LONGEST_TAIL_LINE = 4096
"""Characters of a line that are reported with a failure; the log has the whole line."""


class RunLog:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._event_count = max((int(event["n"]) for event in folder.events()), default=0)
        self._write_failed = False
        self._pending = False
        self._saved = float("-inf")
        self._events: IO[bytes] | None = None
        self.state: dict[str, Any] = folder.state() or {
            "run_id": folder.id,
            "state": "waiting",
            "reason": "",
            "attempt": 0,
            "nodes": [],
            "processes": [],
            "progress": None,
            "attempts": [],
            "stall": None,
            "stalled_seconds": 0,
        }

    def event(self, event: str, **details: Any) -> None:
        self._event_count += 1
        line = json.dumps({"n": self._event_count, "time": round(time.time(), 3), "event": event, **details})
        with self._writing_events():
            if self._events is None:
                # Without a buffer: those who follow the run read each event at once.
                self._events = open(self._folder.file("events.jsonl"), "ab", buffering=0)  # noqa: SIM115
            self._events.write(f"{line}\n".encode())

    def enter(self, state: str, reason: str = "", **details: Any) -> None:
        """Record a state, as an event only if it or its reason is new. `details`: what the event has in addition."""
        if (state, reason) != (self.state["state"], self.state["reason"]) or self._event_count == 0:
            if state != self.state["state"] or "entered_at" not in self.state:
                self.state["entered_at"] = format_time()
            self.state.update(state=state, reason=reason)
            self.event("state", state=state, reason=reason, attempt=self.state["attempt"], **details)
        self.save()

    def save_soon(self) -> None:
        """Let the next `save_pending` save the state."""
        self._pending = True

    def save_pending(self, seconds: float = SAVE_SECONDS) -> None:
        """Save a state that `save_soon` has marked, if the last one is so many seconds old."""
        if self._pending and time.monotonic() - self._saved >= seconds:
            self.save()

    def save(self) -> None:
        """Write the state, and have the file system store all events until now: the next master reads both."""
        self._pending, self._saved = False, time.monotonic()
        with self._writing_events():
            if self._events is not None:
                os.fsync(self._events.fileno())
        with self.reported_write_errors():
            self._folder.write("state.json", {**self.state, "updated_at": format_time()})

    def flush(self, logs: Sequence[ProcessLog]) -> None:
        for error in with_files(ProcessLog.flush, [log for log in logs if log.has_news]):
            if error:
                self.report_write_error(error)

    @contextlib.contextmanager
    def reported_write_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.report_write_error(error)

    @contextlib.contextmanager
    def _writing_events(self) -> Iterator[None]:
        """Report write errors. Let the next event open the file of events anew: on NFS, a stale handle stays stale."""
        try:
            yield
        except OSError as error:
            events, self._events = self._events, None
            with contextlib.suppress(OSError):
                if events is not None:
                    events.close()
            self.report_write_error(error)

    def report_write_error(self, error: OSError) -> None:
        text = f"{self._folder.path} cannot be written: {error.strerror}. Logs and events are incomplete."
        if not self._write_failed:
            self._write_failed = True
            print(text, file=sys.stderr, flush=True)
            self.event("note", text=text)


class ProcessLog:
    """The log of one process, or of mpirun itself. Each line has the time at which its node printed it."""

    def __init__(self, run_log: RunLog, folder: Folder, name: str, attempt: int) -> None:
        self._run_log = run_log
        self._path = folder.file(f"logs/{name}.log")
        self._file: IO[str] | None = None
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.has_news = False
        """True if lines were written since the last flush."""
        if attempt:
            self._write(f"{_timestamp(time.time())} ==== start {attempt + 1} ====\n")

    def line(self, seconds: float, text: str) -> None:
        self.tail.append(text[:LONGEST_TAIL_LINE])
        self._write(f"{_timestamp(seconds)} {text}\n")

    def note(self, seconds: float, lines: Sequence[str]) -> None:
        """Write lines that the process has not printed itself."""
        self._write("".join(f"{_timestamp(seconds)} ==== {line}\n" for line in lines))

    def _write(self, text: str) -> None:
        with self._run_log.reported_write_errors():
            if self._file is None:
                self._file = open(self._path, "a", encoding="utf-8", errors="replace")  # noqa: SIM115
            self.has_news = True
            self._file.write(text)

    def flush(self) -> OSError | None:
        """Return an error instead of reporting it: RunLog reports those of all logs."""
        self.has_news = False
        try:
            if self._file is not None:
                self._file.flush()
        except OSError as error:
            return error
        return None

    def discard(self) -> None:
        """Drop buffered and later lines, because the file belongs to another master now."""
        if self._file is not None:
            with open(os.devnull, "w", encoding="utf-8") as null:
                os.dup2(null.fileno(), self._file.fileno())

    def close(self) -> None:
        with self._run_log.reported_write_errors():
            if self._file is not None:
                self._file.close()


def _timestamp(seconds: float) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds % 1 * 1000):03d}Z"
