# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""From the events of a run to what a person reads while it goes on. Pure: events in, words out.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_STATES = {
    "waiting": "waits",
    "starting": "starts",
    "running": "runs",
    "recovering": "starts again",
    "stopping": "is being stopped",
}


def clock(seconds: float) -> str:
    """Such as 0:07, 12:30 or 1:02:03."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


@dataclass
class Follower:
    """Takes one event after another. `lines` are to be said once; `status` is how far the run is now."""

    run_id: str
    seen: int = 0
    """how many events with a number came: whoever listens again leaves these out"""
    end: dict[str, Any] = field(default_factory=dict)
    status: str = ""
    done: float | None = None
    """how much of it is done, 0 to 1"""
    _ranks: int = 0
    _began: float = 0.0

    def take(self, event: Mapping[str, Any]) -> list[str]:
        """What is to be said of it."""
        if isinstance(event.get("n"), int):
            self.seen = max(self.seen, event["n"])
        tell = getattr(self, f"_{event.get('event')}", None)
        return tell(event) if tell else []

    def _state(self, event: Mapping[str, Any]) -> list[str]:
        if event.get("state") == "running":
            self._began = event.get("time", 0.0)
        what = _STATES.get(str(event.get("state")), str(event.get("state")))
        reason = event.get("reason") or ""
        return [f"{self.run_id} {what}" + (f": {reason}" if reason else "")]

    def _plan(self, event: Mapping[str, Any]) -> list[str]:
        processes = event.get("processes") or []
        self._ranks = sum(one["role"] == "worker" for one in processes)
        nodes: dict[str, list[str]] = {}
        for one in processes:
            nodes.setdefault(str(one["node"]), []).append(str(one["role"]))
        return [f"  {node}: {_counted(roles)}" for node, roles in nodes.items()]

    def _process(self, event: Mapping[str, Any]) -> list[str]:
        if event.get("state") != "ended" or not event.get("exit_code"):
            return []
        how = event.get("signal") or event["exit_code"]
        return [f"{event['role']} {event['rank']} on {event['node']} ended with {how}"]

    def _progress(self, event: Mapping[str, Any]) -> list[str]:
        self.status = progress(event, self._ranks)
        self.done = None
        if event.get("seconds_left") is not None and self._began:
            gone = event["time"] - self._began
            self.done = gone / ((gone + event["seconds_left"]) or 1)
        return []

    def _output(self, event: Mapping[str, Any]) -> list[str]:
        return [f"  {event.get('line', '')}"]

    def _note(self, event: Mapping[str, Any]) -> list[str]:
        return [str(event.get("text", ""))]

    def _end(self, event: Mapping[str, Any]) -> list[str]:
        failure = dict(event.get("first_failure") or {})
        tail = failure.pop("tail", None) or []
        self.end = {**event, "first_failure": failure or None}
        if not tail:
            return []
        where = f"{failure.get('node')}, {failure.get('role')} {failure.get('rank')}"
        return [f"The last lines of {where}:", *(f"  {line}" for line in tail)]


def _counted(roles: list[str]) -> str:
    kinds = dict.fromkeys(roles)
    return ", ".join(f"{roles.count(kind)} {kind}{'' if roles.count(kind) == 1 else 's'}" for kind in kinds)


def progress(event: Mapping[str, Any], ranks: int) -> str:
    """Such as `epoch 2, step 120, 0:42 left, loss 1.2346, accuracy 56.1 %, 812 samples/s`, less what nobody wrote."""
    parts = []
    if event.get("epoch") is not None:
        parts.append(f"epoch {event['epoch']}")
    if event.get("step") is not None:
        parts.append(f"step {event['step']}")
    if event.get("seconds_left") is not None:
        parts.append(f"{clock(event['seconds_left'])} left")
    if event.get("loss") is not None:
        parts.append(f"loss {event['loss']:.4f}")
    for key, name in (("accuracy", "accuracy"), ("val_accuracy", "validated")):
        if event.get(key) is not None:
            parts.append(f"{name} {event[key]:.1%}".replace("%", " %"))
    if event.get("samples_per_second") is not None:
        parts.append(f"{event['samples_per_second']:.0f} samples/s")
    wrote = event.get("ranks")
    if wrote is not None and wrote < ranks:
        parts.append(f"{wrote} of {ranks} ranks")
    return ", ".join(parts)
