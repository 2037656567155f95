"""Which nodes a run starts on: pure decisions about members, other runs and surveys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Optional, Union

from deeplearning.contract.errors import UserError
from deeplearning.contract.report import READY
from deeplearning.contract.run_request import most_nodes, node_range
from deeplearning.members.member_list import Member, Members
from deeplearning.runs.survey import NodeSurvey

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


@dataclass(frozen=True)
class Selection:
    members: tuple[Member, ...]
    """By rank; empty while too few nodes are free."""
    in_use: Mapping[str, str] = field(default_factory=dict)
    """The nodes that block the selection, and the runs that use them."""
    missing: int = 0
    """How many nodes are missing, after a loss or a hold."""

    @property
    def blocked_reason(self) -> str:
        if self.missing:
            return f"{self.missing} more {'node' if self.missing == 1 else 'nodes'} must be ready"
        taken = ", ".join(f"{node} (run {run_id})" for node, run_id in self.in_use.items())
        return f"Needed nodes are in use: {taken}"


class SurveyVerdict(Enum):
    START = "start on the nodes that have no problem"
    WAIT = "a silent node may be about to leave the member list, or a node prepares itself or frees its GPUs"
    FAIL = "the problems do not go away by themselves"


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
) -> Selection:
    """Select members by rank, free ones first. `in_use` maps nodes to the runs that use them.

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
            return Selection((), missing=missing)
    available = candidates(request, members, held)
    count = most_nodes(request) or max(1, len(available))
    enough = numbers[0] if numbers else count
    if not available or (len(available) < enough and not continues):
        value = count if request is None else request
        raise UserError(f"nodes is {value}, and only {len(available)} of the members can train: request fewer.")
    count = min(count, len(available))
    free = [member for member in available if member.alias not in in_use]
    if len(free) >= min(enough, count):
        return Selection(tuple(free[:count]))
    blocked = Selection((), {member.alias: in_use[member.alias] for member in available if member.alias in in_use})
    if situation is Situation.REFUSE_BUSY:
        raise UserError(f"{blocked.blocked_reason}: stop that run, or let this one wait. Example: -e on_busy=wait.")
    return blocked


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


def judge_surveys(
    surveys: Sequence[NodeSurvey], situation: Situation, may_wait: bool, least: int = 0, may_free: bool = False
) -> SurveyVerdict:
    """`least`: how many nodes the run waits for before it continues. `may_free`: whether GPUs may still get free."""
    with_problems = [survey for survey in surveys if survey.problem]
    if not with_problems:
        return SurveyVerdict.START
    if any(survey.is_preparing or (may_free and survey.is_in_use) for survey in surveys):
        return SurveyVerdict.WAIT
    if may_wait and any(survey.node is None for survey in with_problems):
        return SurveyVerdict.WAIT
    if situation in (Situation.AFTER_LOSS, Situation.AFTER_HOLD) and len(surveys) - len(with_problems) >= max(1, least):
        return SurveyVerdict.START
    return SurveyVerdict.WAIT if situation is Situation.AFTER_HOLD else SurveyVerdict.FAIL
