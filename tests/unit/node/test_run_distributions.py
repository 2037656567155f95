"""Each framework with each distribution: a launch plan, or one sentence at each place where a request is validated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.deeplearning.aws.plugins.plugin_utils.options import run_rules
from deeplearning.contract.errors import UserError
from deeplearning.contract.frameworks import DISTRIBUTIONS
from deeplearning.runs import plan as plans
from deeplearning.runs.plan import Node

from tests.unit.node.commands_kit import Master, master_in
from tests.unit.node.runs_kit import record

OWN = {
    "tensorflow": ("multi_worker_mirrored", "parameter_server"),
    "mxnet": ("dist_sync", "dist_device_sync", "dist_async", "local", "device"),
    "pytorch": ("ddp",),
    "tensorpack": ("horovod",),
}
CURES = {
    "tensorflow": "multi_worker_mirrored or parameter_server. Example: -e distribution=multi_worker_mirrored",
    "mxnet": "dist_sync or dist_device_sync or dist_async or local or device. Example: -e distribution=dist_sync",
    "pytorch": "ddp. Example: -e distribution=ddp",
    "tensorpack": "horovod. Example: -e distribution=horovod",
}
OWNERS = {distribution: framework for framework, known in OWN.items() for distribution in known}
PAIRS = [(framework, distribution) for framework in OWN for distribution in OWNERS]
FOREIGN = [(framework, distribution) for framework, distribution in PAIRS if distribution not in OWN[framework]]


def refusal(framework: str, distribution: str) -> str:
    return (
        f"distribution is {distribution}, which only {OWNERS[distribution]} has: give {framework}'s {CURES[framework]}"
    )


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    with master_in(tmp_path, monkeypatch, capsys) as master:
        yield master


def test_the_table_has_every_framework_and_distribution() -> None:
    assert DISTRIBUTIONS == OWN
    assert refusal("pytorch", "horovod") == (
        "distribution is horovod, which only tensorpack has: give pytorch's ddp. Example: -e distribution=ddp"
    )


@pytest.mark.parametrize(("framework", "distribution"), PAIRS)
@pytest.mark.parametrize("playbook", ["train", "health", "site", "emr"])
def test_the_operators_side_takes_a_distribution_of_the_framework_alone(
    playbook: str, framework: str, distribution: str
) -> None:
    options = {"framework": framework, "distribution": distribution}
    scope = {} if playbook == "train" else {"health_scope": "training"}
    expected = [] if (framework, distribution) not in FOREIGN else [refusal(framework, distribution)]
    assert run_rules.check(playbook, {**options, **scope}).problems == expected
    # The framework is often that of the cluster's settings.
    options = {"distribution": distribution, **scope}
    assert run_rules.check(playbook, options, default_framework=framework).problems == expected


@pytest.mark.parametrize(("framework", "distribution"), PAIRS)
def test_the_master_plans_a_distribution_of_the_framework_alone(
    master: Master, framework: str, distribution: str
) -> None:
    request = {"framework": framework, "distribution": distribution, "nodes": 1, "requested_by": "me"}
    code, output, errors = master.call("plan", "-", "--json", stdin=json.dumps(request))
    if (framework, distribution) in FOREIGN:
        assert (code, errors) == (2, f"deeplearning: {refusal(framework, distribution)}\n")
        # Nothing is created either.
        assert master.call("create", stdin=json.dumps(request)) == (code, output, errors)
        assert list(Path(master.root).glob("*")) == []
    else:
        assert code == 0 and json.loads(output)["distribution"] == distribution


@pytest.mark.parametrize(("framework", "distribution"), FOREIGN)
def test_an_attempt_of_an_older_programs_run_is_refused(framework: str, distribution: str) -> None:
    with pytest.raises(UserError) as refused:
        plans.make(record(framework, distribution), [Node("deeplearning-worker1", "10.0.0.1")])
    assert str(refused.value) == refusal(framework, distribution)


def test_a_run_of_an_older_program_is_neither_planned_nor_resumed(master: Master) -> None:
    folder = master.add("r1", "failed", distribution="horovod")
    Path(folder.file("checkpoints/epoch-0001.pt")).touch()
    before = Path(folder.file("run.json")).read_text()
    sentence = f"deeplearning: {refusal('pytorch', 'horovod')}\n"
    resume = json.dumps({"resume": "r1", "requested_by": "me"})
    assert master.call("plan", "-", "--json", stdin=resume) == (2, "", sentence)
    assert master.call("create", stdin=resume) == (2, "", sentence)
    assert Path(folder.file("run.json")).read_text() == before
    # It is still listed and shown.
    assert "r1" in master.call("list")[1]
    assert master.answer("show", "r1", "--json")["run"]["distribution"] == "horovod"
