"""Which nodes a run gets: selection by number and name, nodes in use, and what surveys decide."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from deeplearning.contract.errors import UserError
from deeplearning.members.member_list import Member, Members, unsettled
from deeplearning.runs.allocation import MustWait, Situation, has_enough, select, usable_nodes
from deeplearning.runs.plan import Node
from deeplearning.runs.survey import NodeSurvey

from tests.unit.node.runs_kit import member, members


def ranks(selected: list[Member]) -> list[int]:
    return [member.rank for member in selected]


@pytest.mark.parametrize(
    ("nodes", "used", "expected"),
    [
        (None, set(), [1, 2, 3]),
        (2, set(), [1, 2]),
        (2, {"deeplearning-worker1"}, [2, 3]),
        (["deeplearning-worker3", "deeplearning-master"], set(), [1, 3]),
        (["deeplearning-worker3"], {"deeplearning-worker1"}, [3]),
    ],
)
def test_a_run_gets_free_nodes_by_rank(nodes: Any, used: set[str], expected: list[int]) -> None:
    assert ranks(select(nodes, members(3), dict.fromkeys(used, "other"))) == expected


@pytest.mark.parametrize("situation", [Situation.FIRST_START, Situation.AFTER_LOSS])
@pytest.mark.parametrize("nodes", [None, 3, ["deeplearning-worker1"]])
def test_nodes_of_another_run_are_waited_for(nodes: Any, situation: Situation) -> None:
    with pytest.raises(MustWait, match=r"^Needed nodes are in use: deeplearning-worker1 \(run other\)$"):
        select(nodes, members(3), {"deeplearning-worker1": "other"}, situation)


def test_nodes_of_another_run_are_refused_on_request() -> None:
    with pytest.raises(
        UserError, match=r"deeplearning-worker1 \(run other\): stop that run, .* Example: -e on_busy=wait"
    ):
        select(None, members(3), {"deeplearning-worker1": "other"}, Situation.REFUSE_BUSY)


@pytest.mark.parametrize(
    ("nodes", "left", "expected"),
    [
        (3, 2, [1, 2]),
        (None, 2, [1, 2]),
        (1, 3, [1]),
        (["deeplearning-worker2", "deeplearning-worker3"], 2, [2]),
    ],
)
def test_after_a_loss_a_run_continues_on_the_remaining_nodes(nodes: Any, left: int, expected: list[int]) -> None:
    assert ranks(select(nodes, members(left), {}, Situation.AFTER_LOSS)) == expected


@pytest.mark.parametrize(
    ("situation", "most", "expected"),
    [
        (Situation.AFTER_LOSS, 2, [1, 3]),
        (Situation.AFTER_LOSS, 5, []),
        (Situation.FIRST_START, 2, []),
    ],
)
def test_after_a_loss_no_more_nodes_are_selected_than_before(
    situation: Situation, most: int, expected: list[int]
) -> None:
    with contextlib.nullcontext() if expected else pytest.raises(MustWait):
        assert ranks(select(None, members(3), {"deeplearning-worker2": "other"}, situation, most)) == expected
    # What was requested by number or name stays so.
    assert ranks(select(1, members(3), {}, Situation.AFTER_LOSS, most)) == [1]


def test_more_nodes_than_members_and_unknown_ones_are_refused() -> None:
    with pytest.raises(UserError, match="nodes is 4, and only 3 of the members can train"):
        select(4, members(3), {})
    with pytest.raises(UserError, match="nodes has deeplearning-worker9"):
        select(["deeplearning-worker9"], members(3), {})
    with pytest.raises(UserError, match="None of deeplearning-worker9 is in the cluster any more"):
        select(["deeplearning-worker9"], members(3), {}, Situation.AFTER_LOSS)


def test_faulty_members_and_a_master_that_does_not_train_get_nothing() -> None:
    mixed = Members("c", "sg-1", 3, 3, "i-00000001", "", (member(1, slots=0), member(2, state="faulty"), member(3)))
    assert ranks(select(None, mixed, {})) == [3]


HOLD = Situation.AFTER_HOLD
W = [f"deeplearning-worker{rank}" for rank in range(5)]


@pytest.mark.parametrize(
    ("nodes", "last", "held", "expected"),
    [
        # Another ready node takes its place.
        (3, 3, {W[3]}, [1, 2, 4]),
        ("3-4", 4, {W[3]}, [1, 2, 4]),
        # None is left, so an operator is waited for.
        (4, 4, {W[3]}, 1),
        (None, 4, {W[3]}, 1),
        ("4-8", 4, {W[3]}, 1),
        ([W[3]], 1, {W[3]}, 1),
        ([W[2], W[3]], 2, {W[3]}, 1),
        # Its machine has left the cluster, and the one in its place is no member yet.
        (["deeplearning-worker9"], 1, set(), 1),
        # After an earlier loss the run was on three nodes.
        (4, 3, {W[3]}, [1, 2, 4]),
    ],
)
def test_after_a_hold_a_run_waits_rather_than_to_continue_on_fewer_nodes_than_it_allows(
    nodes: Any, last: int, held: set[str], expected: list[int] | int
) -> None:
    if isinstance(expected, int):
        with pytest.raises(MustWait, match=f"^{expected} more node must be ready$"):
            select(nodes, members(4), {}, HOLD, 4, last, held)
    else:
        assert ranks(select(nodes, members(4), {}, HOLD, 4, last, held)) == expected


def test_a_range_is_the_fewest_and_the_most_nodes_of_a_run() -> None:
    assert ranks(select("2-3", members(4), {})) == [1, 2, 3]
    assert ranks(select("2-8", members(4), {})) == [1, 2, 3, 4]
    # It does not wait for more than it needs.
    assert ranks(select("2-4", members(4), {W[2]: "other"})) == [1, 3, 4]
    with pytest.raises(MustWait, match=rf"^Needed nodes are in use: {W[2]} \(run other\)$"):
        select("4-8", members(4), {W[2]: "other"})
    with pytest.raises(UserError, match="nodes is 5-8, and only 4 of the members can train"):
        select("5-8", members(4), {})
    assert ranks(select("2-4", members(3), {}, Situation.AFTER_LOSS)) == [1, 2, 3]
    with pytest.raises(MustWait, match="^1 more node must be ready$"):
        select("4-8", members(3), {}, Situation.AFTER_LOSS)
    assert has_enough("3-4", members(4)) and not has_enough("3-5", members(4))


def test_members_that_are_held_get_nothing_and_are_not_waited_for() -> None:
    held = replace(members(3), members=(member(1), member(2, state="held", gpus=7), member(3)))
    assert ranks(select(None, held, {})) == [1, 3]
    assert unsettled(held) == []
    faulty = replace(held, members=(member(1), member(2, state="faulty"), member(3)))
    assert len(unsettled(faulty)) == 1


FINE = NodeSurvey(member(1), Node("deeplearning-worker1", "10.0.0.1"))


FAULTY = NodeSurvey(member(2), Node("deeplearning-worker2", "10.0.0.2"), problem="no GPU answers")


SILENT = NodeSurvey(member(3), problem="it does not answer")


FIRST, LATER = Situation.FIRST_START, Situation.AFTER_LOSS


START, WAIT, FAIL = None, MustWait, UserError


def judged(surveys: list[NodeSurvey], situation: Situation, may_wait: bool, least: int = 0) -> type[Exception] | None:
    """Return what keeps a run from its start."""
    try:
        usable = usable_nodes(surveys, situation, may_wait, least)
    except (MustWait, UserError) as error:
        return type(error)
    assert usable == [survey for survey in surveys if not survey.problem]
    return None


@pytest.mark.parametrize(
    ("surveys", "situation", "may_wait", "verdict"),
    [
        ([FINE, FINE], FIRST, True, START),
        ([FINE, FAULTY], FIRST, True, FAIL),
        ([FINE, SILENT], FIRST, True, WAIT),
        ([FINE, SILENT], FIRST, False, FAIL),
        ([FAULTY, SILENT], FIRST, True, WAIT),
        ([FINE, FAULTY], LATER, True, START),
        ([FINE, SILENT], LATER, True, WAIT),
        ([FINE, SILENT], LATER, False, START),
        ([FAULTY, SILENT], LATER, True, WAIT),
        ([FAULTY, SILENT], LATER, False, FAIL),
        ([FAULTY, FAULTY], LATER, True, FAIL),
        ([FINE, FAULTY], HOLD, True, START),
        ([FAULTY, FAULTY], HOLD, True, WAIT),
        ([FAULTY, SILENT], HOLD, False, WAIT),
    ],
)
def test_surveys_decide_whether_a_run_starts(
    surveys: list[NodeSurvey], situation: Situation, may_wait: bool, verdict: type[Exception] | None
) -> None:
    assert judged(surveys, situation, may_wait) is verdict


def test_after_a_hold_the_nodes_without_a_problem_have_to_be_enough() -> None:
    assert judged([FINE, FINE, FAULTY], HOLD, may_wait=True, least=2) is START
    assert judged([FINE, FINE, FAULTY], HOLD, may_wait=True, least=3) is WAIT


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (None, False),
        (3, True),
        (4, False),
        (["deeplearning-master", "deeplearning-worker3"], True),
        # One that is replaced has not joined yet.
        (["deeplearning-worker9"], False),
    ],
)
def test_a_run_may_start_before_all_members_are_there_if_its_own_are(nodes: Any, expected: bool) -> None:
    assert has_enough(nodes, members(3)) is expected
