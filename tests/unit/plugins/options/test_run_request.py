"""What train.yml and evaluate.yml do, from their options and what the cluster answers."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.filter.core import gpu_tables
from ansible_collections.deeplearning.aws.plugins.module_utils.contract.run_request import validate
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import run_rules
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options.run_request import evaluation_request, run_plan

MASTER, WORKER2, WORKER3 = (f"deeplearning-{name}" for name in ("master", "worker2", "worker3"))
MEMBERS = [
    {"name": WORKER3, "rank": 3, "role": "worker", "type": "m5.large"},
    {"name": MASTER, "rank": 1, "role": "master", "type": "m5.large"},
    {"name": WORKER2, "rank": 2, "role": "worker", "type": "m5.large"},
    {"name": "i-0123", "rank": 0, "role": "worker", "type": "m5.large"},
]
RUN: dict[str, Any] = {
    "framework": "mxnet",
    "distribution": "dist_sync",
    "python": "/opt/deeplearning/env/mxnet/bin/python",
    "script": "train.py",
    "script_args": ["--lr", "1"],
    "data": "/efs/data/x",
    "generated": False,
    "nodes": 2,
    "processes_per_node": None,
    "servers": 1,
}


def plan(resumed: dict[str, Any] | None = None, master_trains: bool = True, **options: Any) -> dict[str, Any]:
    names = ("framework", "distribution", "nodes", "sweep", "python", "run_id", "preflight", "processor")
    checked = {
        "options": dict.fromkeys(names) | {"framework": "pytorch"} | options,
        "cluster": {"name": "red", "master_trains": master_trains},
    }
    return run_plan(checked, MEMBERS, resumed or {}, gpu_tables([]))


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ({}, [MASTER, WORKER2, WORKER3]),
        ({"master_trains": False}, [WORKER2, WORKER3]),
        ({"nodes": 2}, [MASTER, WORKER2]),
        ({"nodes": "2-3"}, [MASTER, WORKER2, WORKER3]),
        ({"nodes": "1-2"}, [MASTER, WORKER2]),
        ({"nodes": "2-9"}, [MASTER, WORKER2, WORKER3]),
        ({"nodes": [WORKER3]}, [WORKER3]),
        ({"sweep": [2, 1]}, [MASTER, WORKER2]),
    ],
)
def test_nodes_are_the_first_ones_that_train_or_the_named_ones(options: dict[str, Any], nodes: list[str]) -> None:
    assert (plan(**options)["nodes"], plan(**options)["problem"]) == (nodes, "")


@pytest.mark.parametrize(
    ("options", "gpus", "preflight"),
    [
        ({}, 8, True),
        ({}, 0, False),
        ({}, None, False),
        ({"nodes": 1}, 8, True),
        ({"nodes": 1}, 2, True),
        ({"nodes": 1}, 1, False),
        ({"nodes": 1}, 0, False),
        ({"nodes": 1}, None, False),
        ({"nodes": 1, "preflight": False}, 8, False),
        ({"nodes": 1, "preflight": True}, 1, False),
        ({"nodes": 1, "processor": True, "preflight": True}, 8, False),
        ({"preflight": False}, 8, False),
        ({"preflight": True}, 0, True),
        ({"preflight": True, "nodes": 1}, 0, False),
        ({"sweep": [1, 2]}, 8, True),
        ({"processor": True}, 8, False),
        ({"processor": True, "preflight": True}, 8, True),
        ({"processor": False}, 8, True),
    ],
)
def test_connections_are_tested_before_a_run_on_several_gpus(
    options: dict[str, Any], gpus: int | None, preflight: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for member in MEMBERS:
        monkeypatch.setitem(member, "gpus", gpus)
    assert plan(**options)["preflight"] is preflight


def test_a_resumed_run_trains_on_the_processors_as_before() -> None:
    assert plan()["processor"] is False
    assert plan(processor=True)["processor"] is True
    assert plan({"processor": True})["processor"] is True
    assert plan({"processor": True}, processor=False)["processor"] is False


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"nodes": 4}, "nodes is 4: red has 3 nodes that train. Give so many or fewer, or add some with site.yml."),
        ({"sweep": [1, 4]}, "sweep is 4: red has 3 nodes that train."),
        ({"nodes": 3, "master_trains": False}, "nodes is 3: red has 2 nodes that train."),
        ({"nodes": "4-5"}, "nodes is 4-5: red has 3 nodes that train."),
        ({"nodes": [WORKER2, "deeplearning-worker9"]}, "nodes names deeplearning-worker9: the nodes that train are"),
        ({"nodes": [MASTER], "master_trains": False}, f"nodes names {MASTER}: the nodes that train are {WORKER2}, "),
    ],
)
def test_nodes_that_the_cluster_does_not_have_are_a_problem(options: dict[str, Any], problem: str) -> None:
    assert plan(**options)["problem"].startswith(problem)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"framework": "mxnet"}, f"framework is mxnet, and {WORKER3} is a p5.48xlarge: mxnet-cu112==1.9.1 has kernels"),
        ({"framework": None, "resumed": {"framework": "mxnet"}}, "framework is mxnet, and"),
        ({"framework": "mxnet", "sweep": [1, 3]}, "framework is mxnet, and"),
        ({"framework": "pytorch"}, ""),
        # Nothing is known about an environment of the user's own, and the third node does not train.
        ({"framework": "mxnet", "python": "/efs/env/bin/python"}, ""),
        ({"framework": "mxnet", "nodes": 2}, ""),
        ({"framework": "mxnet", "processor": True}, ""),
        ({"framework": None, "resumed": {"framework": "mxnet", "processor": True}}, ""),
    ],
)
def test_gpus_that_the_framework_cannot_use_are_a_problem(
    options: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MEMBERS[0], "type", "p5.48xlarge")
    result = plan(**options)
    assert result["problem"].startswith(problem) and bool(result["problem"]) == bool(problem)
    assert result["notes"] == []


def test_a_slow_first_start_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEMBERS[0], "type", "p5.48xlarge")
    result = plan(framework="tensorpack")
    assert result["problem"] == "" and len(result["notes"]) == 1


@pytest.mark.parametrize(
    ("options", "installs"),
    [
        ({}, True),
        ({"framework": "tensorpack"}, True),
        ({"python": "/efs/env/bin/python"}, False),
        ({"framework": None, "resumed": RUN}, True),
        ({"framework": None, "resumed": RUN | {"python": "/efs/env/bin/python"}}, False),
        ({"framework": None, "resumed": RUN | {"python": ""}}, True),
    ],
)
def test_what_the_nodes_need(options: dict[str, Any], installs: bool) -> None:
    result = plan(**options)
    assert result["installs_framework"] == installs
    resumed = options.get("resumed") or {}
    assert result["framework"] == (resumed.get("framework") or options.get("framework") or "pytorch")


def test_a_held_node_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [{**member, "held": member["name"] == WORKER2} for member in MEMBERS]
    monkeypatch.setattr(f"{__name__}.MEMBERS", held)
    assert plan(nodes=2)["nodes"] == [MASTER, WORKER3]
    release = (
        f"{WORKER2} is held, as a GPU has failed: status.yml has the reason and the command that replaces it. "
        "Or reboot it, or release it on the node: sudo deeplearning gpus release."
    )
    few = "red has 2 nodes that train"
    assert plan(nodes=3)["problem"] == f"nodes is 3: {few}, and {release} Or give fewer. Example: -e nodes=2"
    assert plan(nodes="3-5")["problem"].startswith(f"nodes is 3-5: {few}, and {WORKER2} is held")
    assert plan(sweep=[1, 3])["problem"].startswith(f"sweep is 3: {few}, and {WORKER2} is held")
    assert plan(nodes=[MASTER, WORKER2])["problem"] == release
    unknown = plan(nodes=["deeplearning-worker9"])["problem"]
    assert unknown == f"nodes names deeplearning-worker9: the nodes that train are {MASTER}, {WORKER2}, {WORKER3}."
    # As many are not there even if it is released.
    assert plan(nodes=4)["problem"].startswith(f"nodes is 4: {few}. Give so many or fewer")
    assert plan(nodes="2-3")["problem"] == ""


def test_held_nodes_are_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.MEMBERS", [{**member, "held": member["name"] != MASTER} for member in MEMBERS])
    assert f"{WORKER2}, {WORKER3} are held, as a GPU has failed: " in plan(nodes=[WORKER2, WORKER3])["problem"]


def test_a_sweep_is_a_run_for_each_number_of_nodes() -> None:
    assert plan()["runs"] == [{}]
    assert plan(sweep=[1, 2])["runs"] == [{"nodes": 1}, {"nodes": 2}]
    assert plan(sweep=[1, 2], run_id="a")["runs"] == [{"nodes": 1, "run_id": "a-1"}, {"nodes": 2, "run_id": "a-2"}]


CHECKPOINTS = ["epoch-0001.params", "epoch-0010.params", "from-epoch-10/model-300"]


def evaluation(
    run: dict[str, Any] = RUN, checkpoints: list[str] = CHECKPOINTS, **variables: Any
) -> tuple[str, dict[str, Any]]:
    """Return the problem and the request."""
    validated = run_rules.check("evaluate", {"run_id": "a", **variables})
    assert validated.problems == []
    checked = {"options": validated.values, "requested_by": "me@here"}
    result = evaluation_request({"run": run, "checkpoints": checkpoints}, checked, "/efs/runs/red/a")
    return result["problem"], result["request"]


def test_an_evaluation_is_the_same_script_on_the_same_data() -> None:
    problem, request = evaluation(script_args=["--batch", "8"], on_busy="refuse")
    assert problem == ""
    assert request == {name: value for name, value in RUN.items() if name != "generated"} | {
        "script_args": ["--lr", "1", "--batch", "8", "--run-dir", "/efs/runs/red/a", "--evaluate"],
        "busy": "refuse",
        "requested_by": "me@here",
    }
    needed = evaluation(RUN | {"requirements": "0a"})[1]
    assert needed["requirements"] == "/efs/runs/red/a/requirements.txt", "which the master reads"
    assert validate(needed) and "python" not in needed
    request = evaluation(RUN | {"script": "/opt/deeplearning/trainers/cifar10_mxnet.py"}, nodes=1)[1]
    assert (request["script"], request["nodes"]) == (None, 1)
    assert "data" not in evaluation(RUN | {"data": ""})[1]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"evaluate_args": []}, []),
        ({"evaluate_args": "--test {checkpoint}"}, ["--test", "checkpoints/from-epoch-10/model-300"]),
        ({"evaluate_args": ["--test={checkpoint}"], "checkpoint": 1}, ["--test=checkpoints/epoch-0001.params"]),
        ({"evaluate_args": ["--test"], "checkpoint": 10}, ["--test", "--checkpoint", "checkpoints/epoch-0010.params"]),
        ({"evaluate_args": ["{checkpoint}"], "checkpoint": "300"}, ["checkpoints/from-epoch-10/model-300"]),
        ({"evaluate_args": ["{checkpoint}"], "checkpoint": "epoch-0001.params"}, ["checkpoints/epoch-0001.params"]),
    ],
)
def test_a_script_of_ones_own_is_told_in_its_own_words_which_checkpoint_to_evaluate(
    variables: dict[str, Any], words: list[str]
) -> None:
    problem, request = evaluation(**variables)
    expected = [word.replace("checkpoints/", "/efs/runs/red/a/checkpoints/") for word in words]
    assert (problem, request["script_args"]) == ("", ["--lr", "1", *expected])


@pytest.mark.parametrize(
    ("checkpoints", "variables", "problem"),
    [
        ([], {}, "run_id is a, which has no checkpoint to evaluate: train it first."),
        (
            CHECKPOINTS[:2],
            {"checkpoint": 7},
            "checkpoint is 7, which a does not have: give one of epoch-0001.params, epoch-0010.params, or its number.",
        ),
    ],
)
def test_without_the_checkpoint_there_is_a_sentence(
    checkpoints: list[str], variables: dict[str, Any], problem: str
) -> None:
    assert evaluation(RUN, checkpoints, **variables)[0] == problem
