"""The one list of problems: each has an id, and its sentence is complete."""

from __future__ import annotations

import string
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract import problems
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.problems import CHECKS, Problem

from tools import alert_rules

PROBLEMS = [each for each in vars(problems).values() if isinstance(each, Problem)]
LOAD: dict[str, Any] = {"errors": [], "disk_percent": 20}


def fields(problem: Problem) -> set[str]:
    texts = (problem.text, problem.advice)
    return {name for text in texts for _text, name, _spec, _conversion in string.Formatter().parse(text) if name}


def member(name: str, health: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "instance_id": f"i-{name}", "health": health, "held": "", "load": LOAD, **more}


def test_each_problem_has_an_id_of_its_own_and_an_alert_all_values_of_its_texts() -> None:
    assert len({problem.id for problem in PROBLEMS}) == len(PROBLEMS) > 20
    for alert in alert_rules.ALERTS:
        assert alert.problem.advice and fields(alert.problem) == set(alert.values), alert.name
        assert not alert.problem.threshold or f" {alert.problem.threshold:g} " in f"{alert.expr} ", alert.name


def test_a_check_names_the_node_and_the_framework_alone() -> None:
    assert {id_.partition(".")[0] for id_ in CHECKS} <= CHECKS.keys()
    for id_, check in CHECKS.items():
        assert check.id == id_ and check.advice and fields(check) <= {"detail", "node", "framework"}


def test_members_with_the_same_problem_share_a_sentence() -> None:
    rows = [member("a", "silent"), member("b", "ready"), member("c", "silent"), member("d", "joining")]
    assert problems.of_members(rows, is_emr=False) == [
        "a, c: no load reported for 3 minutes; ansible-playbook deeplearning.aws.health checks it",
        "d: not in the member list yet; the master adds it once it has reported itself",
    ]


@pytest.mark.parametrize(
    ("is_emr", "cure"),
    [
        (False, "replace it: ansible-playbook deeplearning.aws.replace -e node=i-a"),
        (True, "reboot it, or release it on the node: sudo deeplearning gpus release"),
    ],
)
def test_a_held_member_has_its_reason_or_what_the_reasons_may_be(is_emr: bool, cure: str) -> None:
    rows = [member("a", "held", held="GPU 2: {x}"), member("a", "held")]
    known, unknown = problems.of_members(rows, is_emr)
    assert known == f"a is held: GPU 2: {{x}}; {cure}"
    assert unknown == f"a is held: {problems.HELD_REASON}; {cure}"


@pytest.mark.parametrize(("percent", "full"), [(89, False), (90, True)])
def test_a_load_has_the_faults_of_the_driver_and_a_disk_that_is_almost_full(percent: int, full: bool) -> None:
    rows = [member("a", "ready", load={"errors": ["GPU 0: lost"], "disk_percent": percent}), member("b", "ready")]
    driver, *disk = problems.of_members(rows, is_emr=False)
    assert driver == "a: GPU 0: lost; ansible-playbook deeplearning.aws.health shows which check fails"
    assert [text.partition(";")[0] for text in disk] == ([f"a: its disk / is {percent} % full"] if full else [])


@pytest.mark.parametrize(("reason", "words"), [("nothing comes.", "nothing comes"), ("", "it reports nothing")])
def test_a_stalled_run_has_what_it_costs_and_how_to_end_it(reason: str, words: str) -> None:
    assert problems.of_stalled_run("r1", reason, "2 USD an hour") == (
        f"Run r1 is stalled: {words}. Meanwhile its machines cost 2 USD an hour; to end it: ansible-playbook "
        "deeplearning.aws.stop "
        "-e run_id=r1"
    )
