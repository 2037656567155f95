"""What is kept of a run while it goes on: events, its state, and each process's log. Only the master writes them.

A full file system must not end a run by itself: what cannot be written is said once, and goes to systemd's journal.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from typing import IO, Any

from deeplearning.run.folder import Folder, moment

TAIL = 30
LONGEST_TAIL = 4096
"""Characters of a line that are told with the end; the log has all of it."""


class Record:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._numbered = sum(1 for _unused in folder.events())
        self._complained = False
        self._reason = ""
        self.state: dict[str, Any] = folder.state() or {
            "run_id": folder.id,
            "state": "waiting",
            "reason": "",
            "attempt": 0,
            "nodes": [],
            "processes": [],
            "progress": None,
            "attempts": [],
        }

    def event(self, event: str, **more: Any) -> None:
        self._numbered += 1
        line = json.dumps({"n": self._numbered, "time": round(time.time(), 3), "event": event, **more})
        try:
            with open(self._folder.file("events.jsonl"), "a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            self.complain(error)

    def enter(self, state: str, reason: str = "") -> None:
        """A state is told once, and again with another reason."""
        if (state, reason) != (self.state["state"], self.state["reason"]) or self._numbered == 0:
            self.state.update(state=state, reason=reason)
            self.event("state", state=state, reason=reason, attempt=self.state["attempt"])
        self.save()

    def save(self) -> None:
        try:
            self._folder.write("state.json", {**self.state, "updated_at": moment()})
        except OSError as error:
            self.complain(error)

    def complain(self, error: OSError) -> None:
        text = f"{self._folder.path} cannot be written: {error.strerror}. Logs and events are incomplete."
        if not self._complained:
            self._complained = True
            print(text, file=sys.stderr, flush=True)
            self.event("note", text=text)


class Log:
    """Of one process, or of mpirun. Lines come with the time at which they were printed on their node."""

    def __init__(self, record: Record, folder: Folder, name: str, attempt: int) -> None:
        self._record = record
        self._path = folder.file(f"logs/{name}.log")
        self._file: IO[str] | None = None
        self.tail: deque[str] = deque(maxlen=TAIL)
        if attempt:
            self._write(f"{stamp(time.time())} ==== start {attempt + 1} ====\n")

    def line(self, seconds: float, text: str) -> None:
        self.tail.append(text[:LONGEST_TAIL])
        self._write(f"{stamp(seconds)} {text}\n")

    def _write(self, text: str) -> None:
        try:
            if self._file is None:
                self._file = open(self._path, "a", encoding="utf-8", errors="replace")  # noqa: SIM115
            self._file.write(text)
        except OSError as error:
            self._record.complain(error)

    def flush(self) -> None:
        try:
            if self._file is not None:
                self._file.flush()
        except OSError as error:
            self._record.complain(error)

    def drop(self) -> None:
        """What is not written yet never will be: the file is another master's."""
        if self._file is not None:
            with open(os.devnull, "w", encoding="utf-8") as nowhere:
                os.dup2(nowhere.fileno(), self._file.fileno())

    def close(self) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            self._record.complain(error)


def stamp(seconds: float) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds % 1 * 1000):03d}Z"
