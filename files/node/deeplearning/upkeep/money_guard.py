"""The end of the cluster's machines, which is scheduled in the account: docs/decisions/011-money-guard.md.

The master postpones the idle end while something works. Without the master nothing does, so the machines end. Before an
end that it cannot postpone, it has the runs save a checkpoint and stops them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from deeplearning.aws import AwsClient
from deeplearning.config import Config
from deeplearning.contract import atomic_file, paths, problems
from deeplearning.contract.errors import UserError
from deeplearning.contract.names import Names
from deeplearning.contract.run_stall import STALLED
from deeplearning.contract.scheduled_end import (
    IDLE,
    SETUP,
    TTL,
    action_names,
    earliest,
    once,
    scheduled_ends,
)
from deeplearning.contract.schema import parse_time
from deeplearning.contract.tables import join_names
from deeplearning.deadline import DeadlineExceeded, within
from deeplearning.members import load
from deeplearning.members.member_list import read_applied
from deeplearning.runs import ending
from deeplearning.runs.folder import Folder, reserved_nodes, runs_root

BUSY_LOAD = 0.5
"""From this load average on a node works: half a processor. Its own timers take less."""
EFS_SECONDS = 10.0
WAITING_STATES = ("waiting", "recovering")
WAITING_SECONDS = 3600.0
"""A run that has waited for nodes for longer is no work that postpones the idle end."""


def check(config: Config, aws: AwsClient, runs: Sequence[str]) -> None:
    """Postpone the idle end if anything works, prepare for the other, and write the message for people who log in."""
    if config.job_flow:
        return
    now = time.time()
    actions = aws.pages(
        "autoscaling",
        "describe_scheduled_actions",
        "ScheduledUpdateGroupActions",
        ScheduledActionNames=action_names(config.cluster),
    )
    ends = scheduled_ends(actions, config.cluster, now)
    ttl = earliest(ends, TTL)
    fixed = min((end for end in (ttl, earliest(ends, SETUP)) if end is not None), default=None)
    ending.prepare(config, None if fixed is None else fixed - now, runs)
    if config.idle_seconds:
        _postpone(config, aws, ends[IDLE], runs, now)
    atomic_file.write_if_changed(paths.LOGIN_MESSAGE, login_message(ttl, config.idle_seconds, ends[SETUP]))


def _postpone(config: Config, aws: AwsClient, ends: Mapping[str, float], runs: Sequence[str], now: float) -> None:
    """Move the idle end of both groups, if it is not at its minute. A boot counts as work."""
    groups = Names(config.cluster).groups.values()
    action = once(IDLE, now + config.idle_seconds)
    late = [group for group in groups if ends.get(group) != action["StartTime"].timestamp()]
    has_booted = not os.path.exists(paths.LOGIN_MESSAGE)
    if not late or not (has_booted or is_working(config, runs, now)):
        return
    for group in late:
        aws.call(
            "autoscaling",
            "put_scheduled_update_group_action",
            AutoScalingGroupName=group,
            ScheduledActionName=Names(config.cluster).of(IDLE),
            **action,
        )


def is_working(config: Config, runs: Sequence[str], now: float) -> bool:
    """Return whether one of these active runs, a person or a node works. A file system that hangs does not."""

    def works() -> bool:
        states = [_state(config, run_id) for run_id in runs]
        if any(progresses(state, now) for state in states):
            return True
        stalled = {name for state in states if state.get("state") == STALLED for name in reserved_nodes(state)}
        loads = load.read_all(config.efs_mount, config.cluster)
        return is_busy(loads, _instances(stalled) if stalled else set())

    try:
        return bool(within(EFS_SECONDS, works))
    except (DeadlineExceeded, OSError):
        return False


def _state(config: Config, run_id: str) -> dict[str, Any]:
    """Return the state of an active run. One that training code has made unreadable counts as stalled."""
    try:
        return Folder(f"{runs_root(config)}/{run_id}").state()
    except UserError:
        return {"state": STALLED}


def progresses(state: Mapping[str, Any], now: float) -> bool:
    """Return whether a run is work: it is not stalled, and does not wait for nodes for ever."""
    if state.get("state") not in WAITING_STATES:
        return state.get("state") != STALLED
    try:
        return now - parse_time(state["entered_at"]) < WAITING_SECONDS
    except (KeyError, TypeError, ValueError):
        return False


def _instances(names: Collection[str]) -> set[str]:
    try:
        return {member.instance_id for member in read_applied().members if member.alias in names}
    except UserError:
        return set()


def is_busy(loads: Iterable[Mapping[str, Any]], stalled: Collection[str]) -> bool:
    """Return whether a person is logged in on a node, data or packages come to it, or a processor is in use.

    `stalled`: the instances of runs that are stalled. Processes that wait for another one keep their processors busy.
    """
    return any(
        node["logins"] or node["jobs"] or (node["load"] >= BUSY_LOAD and node["instance_id"] not in stalled)
        for node in loads
    )


def login_message(ttl: float | None, idle_seconds: int, setup: Mapping[str, float]) -> str:
    """Return the text that people see when they log in; empty if nothing ends the cluster by itself."""
    ends = []
    if setup:
        subject = join_names(sorted(setup))
        ends.append((problems.END_SETUP, {"subject": subject, "at": _time(min(setup.values()))}))
    if ttl is not None:
        ends.append((problems.END_TTL, {"at": _time(ttl)}))
    lines = [
        line
        for end, values in ends
        for line in (f"{end.text.format(**values)}.", f"On your own machine: {end.advice}.")
    ]
    if idle_seconds:
        lines.append(f"They end after {idle_seconds // 60} minutes without a run, a login or other work as well.")
    return "".join(f"{line}\n" for line in lines)


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
