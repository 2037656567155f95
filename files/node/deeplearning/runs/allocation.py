"""Which nodes an attempt gets: select among members, wait until enough are free and ready, and reserve them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Optional, Union

from deeplearning.concurrency import Stopped
from deeplearning.config import Config
from deeplearning.contract import atomic_file
from deeplearning.contract.errors import UserError
from deeplearning.contract.report import READY
from deeplearning.contract.run_request import most_nodes, node_range
from deeplearning.contract.schema import parse_time
from deeplearning.gpus.evidence import Evidence
from deeplearning.machine import instance_id
from deeplearning.members.member_list import Member, Members, read_applied, this_member, unsettled
from deeplearning.runs import units
from deeplearning.runs.folder import Folder, find_run, reserved_nodes, runs_root
from deeplearning.runs.mastership import Superseded, is_superseded
from deeplearning.runs.plan import Node
from deeplearning.runs.survey import NodeSurvey, problems_of, survey_nodes

SHORTEST_WAIT, LONGEST_WAIT = 90.0, 300.0
"""Seconds after which a membership that no longer changes is used as it is. The machine that replaces a lost one has
to boot and to be configured; a run of days waits longer for it than one of minutes."""
PAUSE_SECONDS, LIST_PAUSE_SECONDS = 0.5, 1.0
"""Between two checks of the members, and of whether this node has a list of them."""
HELD_PAUSE_SECONDS = 5.0
"""Between two checks while a run waits for an operator."""
FREEING_SECONDS = 30.0
"""How long processes may hold memory of GPUs: the driver frees that of a killed one after its end."""
SPARE_PORTS = 8
"""Of each node, beyond those of its workers and servers: for a chief or a scheduler, and for the rendezvous."""


NodeRequest = Optional[Union[int, str, list[str]]]
"""A number of nodes, a range of numbers like 6-8, their names, or None for all that train."""


class Situation(Enum):
    """Why nodes are selected."""

    FIRST_START = "first start"
    """The run needs all the nodes that were requested, and waits while another run uses them."""
    AFTER_LOSS = "after a loss"
    """The run continues on the nodes that remain, never on more than before, and waits while another run uses them."""
    AFTER_HOLD = "after a hold"
    """Like AFTER_LOSS, but the run waits for an operator, rather than to continue on fewer nodes than it allows."""
    REFUSE_BUSY = "refuse busy nodes"
    """Like FIRST_START, but the run does not wait: nodes in use are an error."""


class MustWait(Exception):
    """Too few nodes are free or ready, which the text says."""


def candidates(request: NodeRequest, members: Members, held: Collection[str] = ()) -> list[Member]:
    """Return the members that could take part: all that train and are ready, or those of them that are named.

    `held`: nodes that are held, which the member list may not say yet.
    """
    ready = [member for member in members.training if member.state == READY and member.alias not in held]
    if not isinstance(request, list):
        return ready
    by_alias = {alias: member for member in members.training for alias in member.aliases}
    unknown = [name for name in request if name not in by_alias]
    if unknown:
        names = ", ".join(member.alias for member in members.training)
        raise UserError(f"nodes has {', '.join(unknown)}, which is not a training member: choose from {names}.")
    named = {by_alias[name].alias for name in request}
    return [member for member in ready if member.alias in named]


def least_count(request: NodeRequest, situation: Situation, last: int) -> int:
    """Return how many nodes a run waits for before it continues; 0 if it takes what there is.

    `last`: the number of nodes of its last attempt.
    """
    numbers = node_range(request)
    return numbers[0] if numbers else last if situation is Situation.AFTER_HOLD else 0


def select(
    request: NodeRequest,
    members: Members,
    in_use: Mapping[str, str],
    situation: Situation = Situation.FIRST_START,
    most: int | None = None,
    last: int = 1,
    held: Collection[str] = (),
) -> list[Member]:
    """Select members by rank, free ones first. `in_use` maps nodes to the runs that use them. Raise MustWait.

    After a loss a run that all nodes were requested for gets at most `most`, with which it began. On more, which
    were added meanwhile, its batch would be a larger one. `last`: the number of nodes of its last attempt.
    """
    numbers = node_range(request)
    continues = situation in (Situation.AFTER_LOSS, Situation.AFTER_HOLD)
    if continues:
        least = least_count(request, situation, last)
        request = most if request is None else _remaining(request, members, may_be_none=bool(least))
        missing = least - len(candidates(request, members, held))
        if missing > 0:
            raise MustWait(f"{missing} more {'node' if missing == 1 else 'nodes'} must be ready")
    available = candidates(request, members, held)
    count = most_nodes(request) or max(1, len(available))
    enough = numbers[0] if numbers else count
    if not available or (len(available) < enough and not continues):
        value = count if request is None else request
        raise UserError(f"nodes is {value}, and only {len(available)} of the members can train: request fewer.")
    count = min(count, len(available))
    free = [member for member in available if member.alias not in in_use]
    if len(free) >= min(enough, count):
        return free[:count]
    taken = [f"{member.alias} (run {in_use[member.alias]})" for member in available if member.alias in in_use]
    reason = f"Needed nodes are in use: {', '.join(taken)}"
    if situation is Situation.REFUSE_BUSY:
        raise UserError(f"{reason}: stop that run, or let this one wait. Example: -e on_busy=wait.")
    raise MustWait(reason)


def _remaining(request: NodeRequest, members: Members, may_be_none: bool) -> NodeRequest:
    """Return the request without the names of nodes that have left the cluster."""
    if not isinstance(request, list):
        return request
    known = {alias for member in members.training for alias in member.aliases}
    remaining = [name for name in request if name in known]
    if not remaining and not may_be_none:
        raise UserError(f"None of {', '.join(request)} is in the cluster any more: start the run on other nodes.")
    return remaining


def has_enough(request: NodeRequest, members: Members) -> bool:
    """Return True if the requested nodes are ready, whatever else the cluster waits for."""
    count = most_nodes(request)
    try:
        return count is not None and len(candidates(request, members)) >= count
    except UserError:
        return False


def usable_nodes(
    surveys: Sequence[NodeSurvey], situation: Situation, may_wait: bool, least: int = 0, may_free: bool = False
) -> list[NodeSurvey]:
    """Return the nodes that a run starts on. Raise UserError if the problems of others do not go away by themselves.

    Raise MustWait if a silent node may be about to leave the member list, or a node prepares itself or frees its GPUs.
    `least`: how many nodes the run waits for before it continues. `may_free`: whether GPUs may still get free.
    """
    usable, problems = [survey for survey in surveys if not survey.problem], problems_of(surveys)
    if len(usable) == len(surveys):
        return usable
    for survey in surveys:
        if survey.is_preparing or (may_free and survey.is_in_use) or (may_wait and survey.node is None):
            raise MustWait(problems)
    if situation in (Situation.AFTER_LOSS, Situation.AFTER_HOLD) and len(usable) >= max(1, least):
        return usable
    raise MustWait(problems) if situation is Situation.AFTER_HOLD else UserError(problems)


@dataclass(frozen=True)
class Allocation:
    nodes: list[Node]
    generation: int
    boot_ids: dict[str, str]
    machines: dict[str, int] = field(default_factory=dict)
    """The number of nodes of each instance type."""
    evidence: dict[str, Evidence] = field(default_factory=dict)
    """Of the nodes with GPUs, what these showed before the attempt."""


@dataclass
class Allocator:
    config: Config
    folder: Folder
    run: dict[str, Any]
    first: bool
    """False after a lost member."""
    reserve: Callable[[Sequence[str]], None]
    """Called with this run's nodes while no other run selects its own."""
    report: Callable[[str], None]
    """Called with the reason for waiting."""
    stop_requested: Callable[[], bool]
    trained: float
    """Seconds that the run has trained so far."""
    most: int | None = None
    """The number of nodes that the run began with, unless this is its first attempt."""
    held_out_of: int = 0
    """The number of nodes of the last attempt, if one of them was held for its end."""
    published: bool = False
    """True if this machine has published the member list before. Another's list then means that it is replaced."""
    since: float = field(default_factory=time.monotonic)
    held: dict[str, str] = field(default_factory=dict)
    """The nodes that are held, as the last surveys say, each with the reason."""
    in_use_since: float | None = None
    """Since when surveys have found processes that hold memory of GPUs; None if the last ones found none."""

    def wait(self) -> Allocation | None:
        """Return None if the run is to be stopped."""
        while not self.stop_requested():
            superseded = is_superseded(self.config)
            # A new master has not published a list yet, and sees another's.
            if superseded and self.published:
                raise Superseded
            self.published = not superseded
            try:
                members = read_applied()
                this_member(members)
            except UserError as error:
                # A master that has just booted has no list yet.
                if not self.may_wait:
                    raise (Superseded() if is_superseded(self.config) else error) from None
                self.report(str(error))
                time.sleep(LIST_PAUSE_SECONDS)  # between two looks at the list
                continue
            # Again: this machine may have published its first list meanwhile.
            if members.published_by != instance_id() or is_superseded(self.config):
                raise Superseded
            allocation = self._try(members)
            if allocation:
                return allocation
            time.sleep(PAUSE_SECONDS)
        return None

    @property
    def situation(self) -> Situation:
        if self.held_out_of:
            return Situation.AFTER_HOLD
        if not self.first:
            return Situation.AFTER_LOSS
        return Situation.REFUSE_BUSY if self.run["busy"] == "refuse" else Situation.FIRST_START

    @property
    def longest_wait(self) -> float:
        return min(max(self.trained, SHORTEST_WAIT), LONGEST_WAIT)

    @property
    def may_wait(self) -> bool:
        return time.monotonic() - self.since < self.longest_wait

    def _try(self, members: Members) -> Allocation | None:
        """Return None if the run has to wait; the reason is reported."""
        reasons = unsettled(members)
        age = time.time() - parse_time(members.published_at)
        settled = not reasons or age >= self.longest_wait
        if not settled and not (self.first and has_enough(self.run["nodes"], members)):
            self.report("; ".join(reasons))
            return None
        try:
            selected = self._select(members)
        except MustWait as reason:
            self.since = time.monotonic()
            self.report(" ".join([*self.held.values(), f"{reason}."]))
            if self.held:
                # They are asked again.
                self.held.clear()
                time.sleep(HELD_PAUSE_SECONDS)
            return None
        return self._survey(members, selected)

    def _select(self, members: Members) -> list[Member]:
        """Select nodes, and reserve them before another run selects its own."""
        situation, last = self.situation, self.held_out_of
        with selection_lock(self.config):
            in_use = nodes_in_use(self.config, self.folder.id)
            try:
                selected = select(self.run["nodes"], members, in_use, situation, self.most, last, self.held)
            except UserError as error:
                raise UserError(" ".join([*self.held.values(), str(error)])) from None
            self.reserve([member.alias for member in selected])
        return selected

    def _survey(self, members: Members, selected: Sequence[Member]) -> Allocation | None:
        ports = self._port_count(selected)
        python, surveys = self.run["python"], None
        with suppress(Stopped):
            surveys = survey_nodes(selected, self.folder, python, ports, self.stop_requested)
        # This machine may have been suspended meanwhile.
        if is_superseded(self.config):
            raise Superseded
        if surveys is None:
            return None
        held = {survey.member.alias: f"{survey.problem}." for survey in surveys if survey.is_held}
        if held:
            # Others are selected in their place.
            self.held.update(held)
            return None
        least = least_count(self.run["nodes"], self.situation, self.held_out_of)
        try:
            usable = usable_nodes(surveys, self.situation, self.may_wait, least, self._may_free(surveys))
        except MustWait as problems:
            self.report(str(problems))
            if self.situation is Situation.AFTER_HOLD:
                # An operator may take days, and surveys without a pause would count as work of the nodes.
                time.sleep(HELD_PAUSE_SECONDS)
            return None
        self.reserve([survey.member.alias for survey in usable])
        return Allocation(
            nodes=[survey.node for survey in usable if survey.node],
            generation=members.generation,
            boot_ids={survey.member.alias: survey.boot_id for survey in usable},
            machines=dict(Counter(survey.member.instance_type for survey in usable)),
            evidence={survey.member.alias: survey.evidence for survey in usable if survey.evidence.answering},
        )

    def _may_free(self, surveys: Sequence[NodeSurvey]) -> bool:
        """Return whether GPUs that are in use may still get free."""
        if not any(survey.is_in_use for survey in surveys):
            self.in_use_since = None
        elif self.in_use_since is None:
            self.in_use_since = time.monotonic()
        return self.in_use_since is not None and time.monotonic() - self.in_use_since < FREEING_SECONDS

    def _port_count(self, selected: Sequence[Member]) -> int:
        """Return how many ports a node needs, whatever the number of nodes: one of them may get all servers."""
        most_processes = max(self.run["processes_per_node"] or 0, *(member.gpus for member in selected))
        return SPARE_PORTS + 2 * most_processes + int(self.run["servers"] or 1)


def nodes_in_use(config: Config, except_run: str = "") -> dict[str, str]:
    """Map the nodes that runs use now to the ids of those runs."""
    in_use: dict[str, str] = {}
    for run_id in units.active_runs():
        if run_id != except_run:
            # Its folder may have been removed while it ran, or training code has exchanged the file.
            with suppress(UserError):
                in_use |= dict.fromkeys(reserved_nodes(find_run(config, run_id).state()), run_id)
    return in_use


def selection_lock(config: Config) -> AbstractContextManager[None]:
    """Let one run at a time select its nodes."""
    return atomic_file.locked(f"{runs_root(config)}/.choosing")
