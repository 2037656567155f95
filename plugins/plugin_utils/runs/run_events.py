# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Turn the events of a run into lines for people. Pure functions: events in, text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...module_utils.contract import problems, run_cost, run_files
from ...module_utils.contract.run_request import ENDED_STATES, STATES
from ...module_utils.contract.run_stall import STALLED
from ...module_utils.contract.tables import join_names
from .. import untrusted as u
from . import answers

_STATES = {
    "waiting": "waits",
    "starting": "starts",
    "running": "runs",
    STALLED: "is stalled",
    "recovering": "starts again",
    "stopping": "is being stopped",
}
_SHORT = ("waiting", "starting")
"""States that pass within seconds, unless there is a reason."""
MOST_NODES = 4
"""Named in a line of the plan."""


def clock(seconds: float) -> str:
    """Return a duration such as 0:07, 12:30 or 1:02:03."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


_FIGURES: Mapping[str, Callable[[float], str]] = {
    "epoch": "epoch {}".format,
    "step": "step {}".format,
    "seconds_left": lambda seconds: f"{clock(seconds)} left",
    "loss": "loss {:.4f}".format,
    "accuracy": lambda share: f"accuracy {_percent(share)}",
    "val_accuracy": lambda share: f"validated {_percent(share)}",
    "average_precision": "average precision {:.4f}".format,
    "samples_per_second": "{:.0f} samples/s".format,
}
"""What a script reports of its progress, and how a line shows it."""


@dataclass
class Follower:
    """Takes one event after another. `status` is the run's current progress."""

    run_id: str
    seen: int = 0
    """The number of the last event: after a reconnect, events up to this one are skipped."""
    end: dict[str, Any] = field(default_factory=dict)
    status: str = ""
    done: float | None = None
    """The part of the run that is done, from 0 to 1."""
    _ranks: int = 0
    _started_at: float = 0.0
    _state_name: str = ""

    def take(self, event: Mapping[str, Any]) -> list[str]:
        """Return the lines to print for an event. A malformed event is skipped: a node may send anything."""
        kind = event.get("event")
        if not isinstance(kind, str) or kind not in _EVENTS:
            return []
        parse, handle = _EVENTS[kind]
        try:
            lines = handle(self, parse(event))
            self.seen = max(self.seen, u.lenient(u.count)(event.get("n")) or 0)
        except u.InvalidValue:
            return []
        return lines

    def _state(self, event: Mapping[str, Any]) -> list[str]:
        if event["state"] == "running" and self._state_name != STALLED:
            self._started_at = event["time"] or 0.0
        self._state_name = event["state"]
        if event["state"] in _SHORT and not event["reason"]:
            return []
        state = _STATES.get(event["state"], event["state"])
        lines = [f"{self.run_id} {state}" + (f": {event['reason']}" if event["reason"] else "")]
        if event["state"] == STALLED:
            cost = problems.STALL_COST.format(cost=run_cost.phrase(event["hourly"]))
            lines.append(f"  {cost}; {problems.RUN_STALLED.advice.format(subject=self.run_id)}")
        return lines

    def _plan(self, event: Mapping[str, Any]) -> list[str]:
        processes = event["processes"]
        self._ranks = sum(process["role"] == "worker" for process in processes)
        nodes: dict[str, list[str]] = {}
        for process in processes:
            nodes.setdefault(process["node"], []).append(process["role"])
        alike: dict[str, list[str]] = {}
        for node, roles in nodes.items():
            alike.setdefault(_counted(roles), []).append(node)
        return [
            f"  {join_names(names, MOST_NODES)}: {what}{' each' if len(names) > 1 else ''}"
            for what, names in alike.items()
        ]

    def _process(self, event: Mapping[str, Any]) -> list[str]:
        if event["state"] != "ended" or not event["exit_code"]:
            return []
        reason = event["signal"] or event["exit_code"]
        return [f"{event['role']} {event['rank']} on {event['node']} ended with {reason}"]

    def _progress(self, event: Mapping[str, Any]) -> list[str]:
        self.status = progress(event, self._ranks)
        self.done = None
        if event["seconds_left"] is not None and event["time"] is not None and self._started_at:
            elapsed = event["time"] - self._started_at
            self.done = elapsed / ((elapsed + event["seconds_left"]) or 1)
        return []

    def _output(self, event: Mapping[str, Any]) -> list[str]:
        return [f"  {event['role']} {event['rank']} | {event['line']}"]

    def _note(self, event: Mapping[str, Any]) -> list[str]:
        # Indented, so that a node's text is not taken for the playbook's.
        return [f"  {event['text']}"]

    def _end(self, event: Mapping[str, Any]) -> list[str]:
        failure = event["first_failure"]
        tail = failure.pop("tail") or [] if failure else []
        self.end = dict(event)
        if not failure or not tail:
            return []
        where = f"{failure['node']}, {failure['role']} {failure['rank']}"
        return [f"The last lines of {where}:", *(f"  {line}" for line in tail)]


_SECONDS = u.optional(u.number)
_PROCESS = {
    "node": u.node,
    "role": answers.role,
    "rank": u.count,
    "exit_code": u.optional(u.number),
    "signal": u.optional(u.words),
}
_FAILURE = u.record(**_PROCESS, tail=u.optional(u.list_of(u.words, 100)))
_EVENTS: Mapping[str, tuple[Callable[[Any], dict[str, Any]], Callable[[Follower, Mapping[str, Any]], list[str]]]] = {
    "state": (
        u.record(state=u.one_of(*STATES), reason=u.optional(u.words), time=_SECONDS, hourly=u.lenient(u.number)),
        Follower._state,
    ),
    "plan": (u.record(processes=answers.processes), Follower._plan),
    "process": (u.record(**_PROCESS, state=u.words), Follower._process),
    "progress": (
        u.record(**answers.figures(*_FIGURES), time=_SECONDS, ranks=u.lenient(u.count), cost=answers.cost),
        Follower._progress,
    ),
    "output": (u.record(role=answers.role, rank=u.count, line=u.words), Follower._output),
    "note": (u.record(text=u.words), Follower._note),
    "end": (
        u.record(
            state=u.one_of(*ENDED_STATES),
            exit_code=u.number,
            first_failure=u.optional(_FAILURE),
            sentence=u.words,
            results=u.lenient(u.map_of(u.one_of(*run_files.KINDS), u.path)),
        ),
        Follower._end,
    ),
}
"""The fields of each event and its handler. A table, so that no event can name a method."""


def _counted(roles: list[str]) -> str:
    kinds = dict.fromkeys(roles)
    return ", ".join(f"{roles.count(kind)} {kind}{'' if roles.count(kind) == 1 else 's'}" for kind in kinds)


def progress(event: Mapping[str, Any], ranks: int) -> str:
    """Return text such as `epoch 2, step 120, 0:42 left, loss 1.2346, accuracy 56.1 %, 812 samples/s`."""
    parts = [show(event[name]) for name, show in _FIGURES.items() if event.get(name) is not None]
    reporting = event.get("ranks")
    if reporting is not None and reporting < ranks:
        parts.append(f"{reporting} of {ranks} ranks")
    if event.get("cost") is not None:
        parts.append(run_cost.in_all(event["cost"]))
    return ", ".join(parts)
