"""Which nodes a run starts on: pure decisions about members, other runs and surveys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Optional, Union

from deeplearning.contract.errors import UserError
from deeplearning.contract.report import READY
from deeplearning.members.member_list import Member, Members
from deeplearning.run.survey import NodeSurvey

NodeRequest = Optional[Union[int, Sequence[str]]]
"""A number of nodes, their names, or None for all that train."""


class Situation(Enum):
    """Why nodes are selected."""

    FIRST_START = "first start"
    """The run needs all the nodes that were requested, and waits while another run uses them."""
    AFTER_LOSS = "after a loss"
    """The run continues on the nodes that remain, never on more than before, and waits while another run uses them."""
    REFUSE_BUSY = "refuse busy nodes"
    """Like FIRST_START, but the run does not wait: nodes in use are an error."""


@dataclass(frozen=True)
class Selection:
    members: tuple[Member, ...]
    """By rank; empty while too few nodes are free."""
    in_use: Mapping[str, str] = field(default_factory=dict)
    """The nodes that block the selection, and the runs that use them."""

    @property
    def blocked_reason(self) -> str:
        taken = ", ".join(f"{node} (run {run_id})" for node, run_id in self.in_use.items())
        return f"Needed nodes are in use: {taken}"


class SurveyVerdict(Enum):
    START = "start on the nodes that have no problem"
    WAIT = "a silent node may be about to leave the member list, or a node prepares itself"
    FAIL = "the problems do not go away by themselves"


def candidates(request: NodeRequest, members: Members) -> list[Member]:
    """Return the members that could take part: all that train and are ready, or those of them that are named."""
    ready = [member for member in members.training if member.state == READY]
    if request is None or isinstance(request, int):
        return ready
    by_alias = {alias: member for member in members.training for alias in member.aliases}
    unknown = [name for name in request if name not in by_alias]
    if unknown:
        names = ", ".join(member.alias for member in members.training)
        raise UserError(f"nodes has {', '.join(unknown)}, which is not a training member: choose from {names}.")
    named = {by_alias[name].alias for name in request}
    return [member for member in ready if member.alias in named]


def requested_count(request: NodeRequest) -> int | None:
    """Return None if all nodes that train are requested."""
    return request if request is None or isinstance(request, int) else len(request)


def select(
    request: NodeRequest,
    members: Members,
    in_use: Mapping[str, str],
    situation: Situation = Situation.FIRST_START,
    most: int | None = None,
) -> Selection:
    """Select members by rank, free ones first. `in_use` maps nodes to the runs that use them.

    After a loss a run that all nodes were requested for gets at most `most`, with which it began. On more, which
    were added meanwhile, its batch would be a larger one.
    """
    if situation is Situation.AFTER_LOSS:
        request = most if request is None else _remaining(request, members)
    available = candidates(request, members)
    count = requested_count(request) or max(1, len(available))
    if not available or (len(available) < count and situation is not Situation.AFTER_LOSS):
        value = count if request is None else request
        raise UserError(f"nodes is {value}, and only {len(available)} of the members can train: request fewer.")
    count = min(count, len(available))
    free = [member for member in available if member.alias not in in_use]
    if len(free) >= count:
        return Selection(tuple(free[:count]))
    blocked = Selection((), {member.alias: in_use[member.alias] for member in available if member.alias in in_use})
    if situation is Situation.REFUSE_BUSY:
        raise UserError(f"{blocked.blocked_reason}: stop that run, or let this one wait. Example: -e on_busy=wait.")
    return blocked


def _remaining(request: NodeRequest, members: Members) -> NodeRequest:
    """Return the request without the names of nodes that have left the cluster."""
    if request is None or isinstance(request, int):
        return request
    known = {alias for member in members.training for alias in member.aliases}
    remaining = [name for name in request if name in known]
    if not remaining:
        raise UserError(f"None of {', '.join(request)} is in the cluster any more: start the run on other nodes.")
    return remaining


def has_enough(request: NodeRequest, members: Members) -> bool:
    """Return True if the requested nodes are ready, whatever else the cluster waits for."""
    count = requested_count(request)
    try:
        return count is not None and len(candidates(request, members)) >= count
    except UserError:
        return False


def judge_surveys(surveys: Sequence[NodeSurvey], situation: Situation, may_wait: bool) -> SurveyVerdict:
    with_problems = [survey for survey in surveys if survey.problem]
    if not with_problems:
        return SurveyVerdict.START
    if any(survey.is_preparing for survey in surveys):
        return SurveyVerdict.WAIT
    if may_wait and any(survey.node is None for survey in with_problems):
        return SurveyVerdict.WAIT
    if situation is Situation.AFTER_LOSS and len(with_problems) < len(surveys):
        return SurveyVerdict.START
    return SurveyVerdict.FAIL
