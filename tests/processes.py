"""Processes by a mark in their environment: all of a playbook's, as Ansible's workers are in sessions of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path


def marked(mark: str) -> list[int]:
    """Return the ids of processes with this in their environment. Zombies have none."""
    ids = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in place.read_bytes().split(b"\0"):
                ids.append(int(place.parent.name))
    return ids


def kill_marked(mark: str) -> None:
    """Kill them until none is left: one may start another meanwhile."""
    while victims := marked(mark):
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
