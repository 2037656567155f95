"""EFA: which nodes have it, what a run gets for it, and that a run which uses TCP instead is ended with a sentence."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deeplearning.config import Config
from deeplearning.contract.frameworks import DISTRIBUTIONS
from deeplearning.runs import attempt as attempts
from deeplearning.runs import efa, mpirun, unit, units
from deeplearning.runs import plan as plans
from deeplearning.runs.allocation import Allocation
from deeplearning.runs.folder import Folder
from deeplearning.runs.plan import Node, Plan
from deeplearning.runs.run_log import RunLog
from deeplearning.runs.variables import variables

from tests.unit.node.runs_kit import record


def nodes(*efa: int, gpus: int = 1) -> list[Node]:
    return [Node(f"deeplearning-worker{n}", f"10.0.0.{n}", gpus, efa=each) for n, each in enumerate(efa, 1)]


def make_plan(*efa: int, gpus: int = 1, distribution: str = "horovod") -> Plan:
    framework = next(name for name, known in DISTRIBUTIONS.items() if distribution in known)
    return plans.make(record(framework, distribution), nodes(*efa, gpus=gpus))


@pytest.mark.parametrize(
    ("plan", "environment", "expected"),
    [
        (make_plan(4, 4), {}, True),
        (make_plan(1, 1, distribution="ddp"), {}, True),
        (make_plan(4, 0), {}, False),
        (make_plan(4), {}, False),
        (make_plan(4, 4, gpus=0), {}, False),
        (make_plan(4, 4, distribution="multi_worker_mirrored"), {}, True),
        (make_plan(4, 4, distribution="parameter_server"), {}, False),
        (make_plan(4, 4, distribution="dist_sync"), {}, False),
        (make_plan(4, 4), {"NCCL_NET": "Socket"}, False),
    ],
)
def test_efa_is_expected_where_all_nodes_of_a_run_on_several_have_it(
    plan: Plan, environment: dict[str, str], expected: bool
) -> None:
    assert efa.is_expected(plan, environment) == expected


@pytest.mark.parametrize("distribution", efa.NCCL_DISTRIBUTIONS)
def test_its_variables_are_set_only_where_it_is(distribution: str) -> None:
    def names(plan: Plan) -> set[str]:
        return set(
            variables(
                {"run_id": "r", "run_dir": "/r", "data": "", "efs_mount": "/efs", "attempt": 0}, plan, plan.processes[0]
            )
        )

    with_it, without = (
        names(make_plan(4, 4, distribution=distribution)),
        names(make_plan(0, 0, distribution=distribution)),
    )
    assert with_it - without == {"FI_EFA_USE_HUGE_PAGE", "NCCL_DEBUG"}
    assert not [name for name in without if name.startswith(("FI_", "RDMAV_", "NCCL_DEBUG"))]


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, ""),
        ({"NCCL_DEBUG": "WARN"}, "NCCL_DEBUG"),
        ({"NCCL_DEBUG": "version"}, "NCCL_DEBUG"),
        ({"NCCL_DEBUG": ""}, "NCCL_DEBUG"),
        ({"NCCL_DEBUG": "info"}, ""),
        ({"NCCL_DEBUG": "TRACE"}, ""),
        ({"NCCL_DEBUG_FILE": "/tmp/nccl.%h.%p"}, "NCCL_DEBUG_FILE"),
        ({"NCCL_DEBUG_FILE": "/dev/stderr"}, ""),
        ({"NCCL_DEBUG_SUBSYS": "COLL,GRAPH"}, "NCCL_DEBUG_SUBSYS"),
        ({"NCCL_DEBUG_SUBSYS": "INIT,COLL"}, ""),
        ({"NCCL_DEBUG_SUBSYS": "all"}, ""),
        ({"NCCL_DEBUG_SUBSYS": "^COLL"}, ""),
        ({"NCCL_DEBUG_SUBSYS": "^INIT,COLL"}, "NCCL_DEBUG_SUBSYS"),
    ],
)
@pytest.mark.parametrize("distribution", efa.NCCL_DISTRIBUTIONS)
def test_variables_of_the_users_that_hide_nccls_choice_are_named(
    distribution: str, environment: dict[str, str], name: str
) -> None:
    note = efa.unwatched(make_plan(4, 4, distribution=distribution), environment)
    assert note.startswith("All nodes have EFA, and nothing watches") if name else note == ""
    assert f"as env sets {name}: " in note or not name
    # Where EFA is not expected, there is nothing to watch.
    assert efa.unwatched(make_plan(4, 0, distribution=distribution), environment) == ""
    assert efa.unwatched(make_plan(4, 4, distribution=distribution), {**environment, "NCCL_NET": "Socket"}) == ""


@pytest.mark.parametrize(
    ("line", "network"),
    [
        ("host:77:91 [0] NCCL INFO Using network Socket", "Socket"),
        ("host:1:1 [7] NCCL INFO NET/OFI Selected Provider is tcp (found 1 nics)", "tcp"),
        ("host:1:1 [7] NCCL INFO NET/OFI Selected provider is tcp;ofi_rxm, fabric is 10.0.0.0/17", "tcp;ofi_rxm"),
        ("host:1:1 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)", ""),
        ("host:1:1 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)", ""),
        ("host:1:1 [0] NCCL INFO Using network AWS Libfabric", ""),
        ("host:1:1 [0] NCCL INFO Using network Libfabric", ""),
        ("host:1:1 [0] NCCL INFO Bootstrap : Using ens32:10.0.0.2<0>", ""),
        ("epoch 1, using network Socket as an example", ""),
    ],
)
def test_the_network_is_read_from_nccls_own_lines(line: str, network: str) -> None:
    assert efa.fallback(line) == network


def test_devices_are_counted_on_the_bus_with_or_without_a_driver(tmp_path: Path) -> None:
    for name, vendor, device in (("0", "0x1d0f", "0xefa1"), ("1", "0x1d0f", "0xec20"), ("2", "0x10de", "0xefa0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "device").write_text(f"{device}\n")
    assert efa.count(str(tmp_path)) == 1
    assert efa.count(str(tmp_path / "none")) == 0


CONFIG = Config("c", "sg-1", "us-east-1", "b", ("10.0.0.0/16",), "me", "master", "AROA", True, "", "fs", None, 0, "")
STAND_IN = """
import json, os, sys, time
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
for text in ("NET/Plugin: No plugin found (libnccl-net.so)", "Using network Socket"):
    print("[1,1]<stdout>:" + json.dumps({"time": time.time(), "line": f"host:1:1 [0] NCCL INFO {text}"}), flush=True)
time.sleep(600)
"""
"""for mpirun: a process of rank 1 prints what NCCL prints without its plugin, and does not end"""


@pytest.fixture
def run(tmp_path: Path) -> Folder:
    folder = Folder(str(tmp_path / "r1"))
    for name in ("logs", "metrics", "attempts", "checkpoints"):
        (tmp_path / "r1" / name).mkdir(parents=True)
    request: dict[str, Any] = {"framework": "tensorpack", "distribution": "horovod", "script": "/efs/train.py"}
    request |= {"nodes": None, "processes_per_node": None, "servers": None, "script_args": [], "python": "/p/python"}
    request |= {
        "max_restarts": 3,
        "requested_at": "2026-01-01T00:00:00Z",
        "requested_by": "me",
        "data": "",
        "busy": "wait",
    }
    folder.write("run.json", request)
    folder.write("environment.json", {"environment": {}})
    return folder


def attempt_of(run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> attempts.Attempt:
    surveyed = [replace(node, ports=(20000, 20001, 20002)) for node in nodes(4, 4)]
    allocation = Allocation(surveyed, 3, {node.name: "boot" for node in surveyed})
    attempt = attempts.Attempt(0, CONFIG, run, run.run(), allocation, RunLog(run), lambda: False)
    words = [sys.executable, "-c", STAND_IN, str(tmp_path / "pid")]
    monkeypatch.setattr(mpirun, "command", lambda *_unused: words)
    monkeypatch.setattr(attempts, "is_superseded", lambda config: False)
    monkeypatch.setattr(attempts, "stop_leftovers", lambda *_unused: {})

    kill = ["xargs", "-a", str(tmp_path / "pid"), "kill"]
    monkeypatch.setattr(units, "stop_attempt", lambda run_id, attempt: subprocess.Popen(kill))
    return attempt


@pytest.mark.parametrize(
    ("framework", "distribution"),
    [("tensorpack", "horovod"), ("pytorch", "ddp"), ("tensorflow", "multi_worker_mirrored")],
)
def test_a_run_that_falls_back_to_tcp_is_ended_with_a_sentence(
    framework: str, distribution: str, run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.write("run.json", {**run.run(), "framework": framework, "distribution": distribution})
    outcome = attempt_of(run, tmp_path, monkeypatch).run()
    assert (outcome.cause, outcome.exit_code) == ("failed", 1)
    assert outcome.first_failure and outcome.first_failure["tail"][-1].endswith("Using network Socket")
    sentence = unit.end_sentence("r1", outcome)
    assert sentence.startswith(
        "run r1 ended with 1 (deeplearning-worker2, rank 1): all its nodes have EFA, and NCCL has"
    )
    assert "taken Socket: look for libnccl-net.so" in sentence
    assert not [event for event in run.events() if event["event"] == "note"]


def test_a_run_that_nothing_watches_has_a_note(run: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.write("environment.json", {"environment": {"NCCL_DEBUG": "WARN"}})
    attempt_of(run, tmp_path, monkeypatch).run()
    (note,) = [event["text"] for event in run.events() if event["event"] == "note"]
    assert "nothing watches whether NCCL uses it, as env sets NCCL_DEBUG: leave it out" in note
