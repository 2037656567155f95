"""The processors that a process uses: those next to its GPU, if it has exactly one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from deeplearning.runs import affinity
from deeplearning.runs import plan as plans
from deeplearning.runs.plan import Node, Plan

from tests.unit.node.runs_kit import record

BUSES = tuple(f"0000:{number:02x}:00.0" for number in range(4))


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The processors that this process may use, as Linux keeps them: eight at first."""
    mask = set(range(8))

    def change(pid: int, processors: set[int]) -> None:
        assert pid == 0 and processors
        mask.intersection_update(set())
        mask.update(processors)

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(mask))
    monkeypatch.setattr(os, "sched_setaffinity", change)
    return mask


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A machine with four GPUs, two at each of its two NUMA nodes with four processors each."""
    for number, bus in enumerate(BUSES):
        write(tmp_path / "bus/pci/devices" / bus / "numa_node", f"{number // 2}\n")
    for node, processors in enumerate(("0-1,4-5", "2-3,6-7")):
        write(tmp_path / f"devices/system/node/node{node}/cpulist", f"{processors}\n")
    write(tmp_path / "devices/system/cpu/online", "0-7\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def plan_of(framework: str, distribution: str, processes: int | None = None, gpus: int = 4) -> Plan:
    nodes = [Node(name, "10.0.0.1", gpus, ports=tuple(range(1, 20)), buses=BUSES[:gpus]) for name in ("a", "b")]
    run = record(framework, distribution, processes_per_node=processes)
    return plans.make(run, nodes if distribution != "device" else nodes[:1])


DDP, MIRRORED = ("pytorch", "ddp"), ("tensorflow", "multi_worker_mirrored")


@pytest.mark.parametrize("number", range(8))
def test_each_process_of_a_gpu_uses_the_processors_next_to_it(sysfs: Path, allowed: set[int], number: int) -> None:
    plan = plan_of(*DDP)
    gpu, near = number % 4, ({0, 1, 4, 5}, {2, 3, 6, 7})[number % 4 // 2]
    shown = ("0-1,4-5", "2-3,6-7")[gpu // 2]
    words = affinity.bind(plan, plan.processes[number], {}, str(sysfs))
    assert words == f"it uses the processors of NUMA node {gpu // 2} ({shown}), next to GPU {gpu}"
    assert allowed == near


@pytest.mark.parametrize(
    ("plan", "number", "environment", "gpu"),
    [
        (plan_of(*DDP), 6, {}, 2),
        (plan_of("tensorpack", "horovod"), 3, {}, 3),
        (plan_of(*MIRRORED), 1, {"CUDA_VISIBLE_DEVICES": "1"}, 1),
        # They share it.
        (plan_of(*MIRRORED, 8), 5, {"CUDA_VISIBLE_DEVICES": "1"}, 1),
        # The user's own choice, and a run on processors.
        (plan_of(*DDP), 6, {"CUDA_VISIBLE_DEVICES": "3,2,1,0"}, None),
        (plan_of(*DDP), 6, {"CUDA_VISIBLE_DEVICES": ""}, None),
        (plan_of(*MIRRORED), 1, {"CUDA_VISIBLE_DEVICES": "2"}, None),
        # Several for each, or none.
        (plan_of(*DDP, 2), 1, {}, None),
        (plan_of(*DDP, 8), 1, {}, None),
        (plan_of(*MIRRORED, 2), 1, {"CUDA_VISIBLE_DEVICES": "2,3"}, None),
        (plan_of("mxnet", "device"), 0, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, None),
        (plan_of("tensorflow", "parameter_server"), 0, {"CUDA_VISIBLE_DEVICES": ""}, None),
        (plan_of(*DDP, gpus=0), 1, {}, None),
    ],
)
def test_which_processes_have_exactly_one_gpu(
    plan: Plan, number: int, environment: dict[str, str], gpu: int | None
) -> None:
    assert affinity.only_gpu(plan, plan.processes[number], environment) == gpu


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (f"bus/pci/devices/{BUSES[0]}/numa_node", "-1\n"),
        (f"bus/pci/devices/{BUSES[0]}/numa_node", "7\n"),
        (f"bus/pci/devices/{BUSES[0]}/numa_node", ""),
        (f"bus/pci/devices/{BUSES[0]}/numa_node", None),
        # A node with memory alone, one of other processors, one node with all, and what is no list.
        ("devices/system/node/node0/cpulist", "\n"),
        ("devices/system/node/node0/cpulist", "64-95\n"),
        ("devices/system/node/node0/cpulist", "0-7\n"),
        ("devices/system/node/node0/cpulist", "few\n"),
        ("devices/system/node/node0/cpulist", None),
        ("devices/system/cpu/online", None),
    ],
)
def test_nothing_changes_where_linux_does_not_know(sysfs: Path, allowed: set[int], file: str, text: str | None) -> None:
    (sysfs / file).unlink()
    if text is not None:
        write(sysfs / file, text)
    plan = plan_of(*DDP)
    assert affinity.bind(plan, plan.processes[0], {}, str(sysfs)) == "" and allowed == set(range(8))


def test_a_choice_of_processors_that_was_made_before_is_kept(sysfs: Path, allowed: set[int]) -> None:
    allowed.discard(3)
    plan = plan_of(*DDP)
    assert affinity.bind(plan, plan.processes[0], {}, str(sysfs)) == ""
    assert allowed == {0, 1, 2, 4, 5, 6, 7}


def test_linux_may_refuse(sysfs: Path, allowed: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, processors: set[int]) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    plan = plan_of(*DDP)
    assert affinity.bind(plan, plan.processes[0], {}, str(sysfs)) == ""


def test_a_plan_without_places_on_the_bus_binds_nothing(sysfs: Path, allowed: set[int]) -> None:
    """An earlier master's, or one of a node whose NVML does not say them."""
    for buses in ([], ["", "", "", ""]):
        stored = plans.as_json(plan_of(*DDP))
        for node in stored["nodes"]:
            node["buses"] = buses
            if not buses:
                del node["buses"]
        plan = plans.from_json(stored)
        assert affinity.bind(plan, plan.processes[0], {}, str(sysfs)) == "" and len(allowed) == 8
