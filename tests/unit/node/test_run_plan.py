"""Launch plans as tables: what runs where, as what, with which GPUs, and which variables each process gets."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deeplearning.contract.errors import UserError
from deeplearning.contract.frameworks import DISTRIBUTIONS, default_distribution
from deeplearning.runs import plan as plans
from deeplearning.runs import script
from deeplearning.runs.allocation import Allocator
from deeplearning.runs.create import preview
from deeplearning.runs.folder import Folder
from deeplearning.runs.mpirun import hostfile
from deeplearning.runs.plan import Node, Plan
from deeplearning.runs.variables import fill_in, variables

from tests.unit.node.runs_kit import CONFIG, member, members, record

ROOT = Path(__file__).resolve().parents[3]
RUN = {
    "run_id": "r1",
    "run_dir": "/efs/runs/c/r1",
    "data": "/efs/data/cifar10",
    "efs_mount": "/efs",
    "attempt": 0,
    "max_restarts": 3,
}


def nodes(count: int, gpus: int = 0) -> list[Node]:
    return [
        Node(
            f"deeplearning-worker{n}",
            f"10.0.0.{n + 10}",
            gpus,
            "ens5",
            tuple(range(20000 + 100 * n, 20040 + 100 * n)),
        )
        for n in range(1, count + 1)
    ]


def make_plan(distribution: str, count: int = 2, gpus: int = 0, **more: Any) -> Plan:
    (framework,) = (name for name, known in DISTRIBUTIONS.items() if distribution in known)
    return plans.make(record(framework, distribution, **more), nodes(count, gpus))


def roles(plan: Plan) -> dict[str, int]:
    return dict(Counter(process.role for process in plan.processes))


WORKERS_ONLY = ("multi_worker_mirrored", "ddp", "horovod")
KEY_VALUE_STORES = ("dist_sync", "dist_device_sync", "dist_async")


@pytest.mark.parametrize("distribution", WORKERS_ONLY)
@pytest.mark.parametrize(
    ("count", "gpus", "workers"),
    [(1, 0, 1), (1, 1, 1), (1, 8, 8), (2, 0, 2), (2, 1, 2), (2, 8, 16), (64, 0, 64), (64, 1, 64), (64, 8, 512)],
)
def test_a_worker_for_each_gpu_or_one_a_node(distribution: str, count: int, gpus: int, workers: int) -> None:
    plan = make_plan(distribution, count, gpus)
    assert roles(plan) == {"worker": workers}
    assert [process.rank for process in plan.processes] == list(range(workers))
    assert [process.node for process in plan.processes] == [
        node.name for node in plan.nodes for _ in range(workers // count)
    ]


@pytest.mark.parametrize("distribution", KEY_VALUE_STORES)
@pytest.mark.parametrize(("count", "gpus", "workers"), [(1, 0, 1), (1, 8, 8), (2, 0, 2), (2, 8, 16), (64, 8, 512)])
def test_mxnet_has_a_scheduler_and_a_server_a_node(distribution: str, count: int, gpus: int, workers: int) -> None:
    each = gpus if distribution == "dist_device_sync" and gpus else None
    plan = make_plan(distribution, count, gpus, processes_per_node=each)
    assert roles(plan) == {"scheduler": 1, "server": count, "worker": workers}
    assert plan.of("scheduler")[0].node == "deeplearning-worker1"
    assert [process.node for process in plan.of("server")] == [node.name for node in plan.nodes]


@pytest.mark.parametrize(
    ("processes", "gpus"), [(None, [tuple(range(8))]), (2, [(0, 1, 2, 3), (4, 5, 6, 7)]), (8, [(n,) for n in range(8)])]
)
def test_dist_device_sync_has_one_process_with_all_gpus_of_a_node_unless_told_otherwise(
    processes: int | None, gpus: list[tuple[int, ...]]
) -> None:
    plan = make_plan("dist_device_sync", 2, 8, processes_per_node=processes)
    assert [process.gpus for process in plan.of("worker")] == gpus * 2


@pytest.mark.parametrize("gpus", [0, 1, 8])
@pytest.mark.parametrize("distribution", ["local", "device"])
def test_mxnet_on_one_node_is_one_process_with_all_gpus(distribution: str, gpus: int) -> None:
    plan = make_plan(distribution, 1, gpus)
    assert roles(plan) == {"worker": 1}
    assert plan.processes[0].gpus == tuple(range(gpus))


@pytest.mark.parametrize("more", [{"count": 2}, {"count": 1, "processes_per_node": 2}])
def test_a_distribution_for_one_process_is_refused_on_more(more: dict[str, int]) -> None:
    with pytest.raises(UserError, match="one process on one node: set nodes=1"):
        make_plan("local", **more)


def test_two_nodes_of_eight_gpus_have_two_servers_and_sixteen_workers_as_with_the_old_scripts() -> None:
    plan = make_plan("parameter_server", 2, 8, script_args=("--job_name={job_name}",))
    assert roles(plan) == {"ps": 2, "worker": 16}
    assert [process.node for process in plan.of("ps")] == ["deeplearning-worker1", "deeplearning-worker2"]
    assert [process.gpus for process in plan.of("worker")] == [(n % 8,) for n in range(16)]
    assert [process.gpus for process in plan.of("ps")] == [(), ()]
    assert plan.of("worker")[8].node == "deeplearning-worker2"


@pytest.mark.parametrize(("count", "gpus", "workers"), [(1, 0, 1), (2, 0, 2), (2, 1, 2), (64, 8, 512)])
def test_a_script_that_knows_nothing_of_job_names_gets_a_chief(count: int, gpus: int, workers: int) -> None:
    plan = make_plan("parameter_server", count, gpus)
    assert roles(plan) == {"chief": 1, "ps": count, "worker": workers}
    assert plan.of("chief")[0].node == "deeplearning-worker1"
    assert [process.role for process in plan.leading] == ["chief"]


def test_workers_lead_a_run_without_a_chief() -> None:
    assert {process.role for process in make_plan("dist_sync", 3).leading} == {"worker"}


def test_servers_are_counted_in_all_and_go_round_the_nodes() -> None:
    plan = make_plan("dist_sync", 2, servers=3)
    assert [process.node[-1] for process in plan.of("server")] == ["1", "2", "1"]


@pytest.mark.parametrize(
    ("gpus", "processes", "parts"),
    [
        (0, 2, [(), ()]),
        (8, 1, [tuple(range(8))]),
        (8, 2, [(0, 1, 2, 3), (4, 5, 6, 7)]),
        (8, 3, [(0, 1), (2, 3), (4, 5)]),
        (1, 2, [(0,), (0,)]),
    ],
)
def test_gpus_are_dealt_out(gpus: int, processes: int, parts: list[tuple[int, ...]]) -> None:
    plan = make_plan("multi_worker_mirrored", 1, gpus, processes_per_node=processes)
    assert [process.gpus for process in plan.processes] == parts


def test_different_numbers_of_gpus_are_refused_unless_processes_are_counted() -> None:
    mixed = [*nodes(1, 8), Node("deeplearning-worker2", "10.0.0.12", 4)]
    with pytest.raises(UserError, match="deeplearning-worker1 has 8, deeplearning-worker2 has 4"):
        plans.make(record("pytorch", "ddp"), mixed)
    assert len(plans.make(record("pytorch", "ddp", processes_per_node=2), mixed).processes) == 4


def test_processes_of_a_node_have_different_ports_and_none_has_the_rendezvous_port() -> None:
    plan = make_plan("parameter_server", 2, 8)
    for node in plan.nodes:
        ports = [process.port for process in plan.on(node.name)]
        assert len(set(ports)) == len(ports) > 1 and len(node.ports) == 1 and node.ports[0] not in ports


def test_what_a_node_adds_to_a_plan_does_not_grow_with_the_nodes() -> None:
    """All wrappers read it."""

    def size(count: int) -> int:
        run = {**record("mxnet", "dist_sync"), "servers": None}
        allocator = Allocator(CONFIG, Folder("/r1"), run, True, lambda _: None, lambda _: None, lambda: False, 0.0)
        ports = tuple(range(20000, 20000 + allocator._port_count([member(1, gpus=8)] * count)))
        surveyed = [Node(f"deeplearning-worker{n}", "10.0.0.1", 8, "ens5", ports) for n in range(10000, 10000 + count)]
        return len(json.dumps(plans.as_json(plans.make(run, surveyed))))

    assert size(64) / 64 < 1.01 * size(16) / 16
    assert size(256) < 2**20


def test_too_few_ports_are_refused() -> None:
    with pytest.raises(UserError, match="too few free ports for 3 processes"):
        plans.make(record("pytorch", "ddp", processes_per_node=3), [Node("a", "10.0.0.1", ports=(1, 2, 3))])


@pytest.mark.parametrize(
    ("framework", "count", "gpus", "expected"),
    [
        ("tensorflow", 1, 0, "multi_worker_mirrored"),
        ("pytorch", 64, 8, "ddp"),
        ("tensorpack", 2, 8, "horovod"),
        ("mxnet", 2, 0, "dist_sync"),
        ("mxnet", 2, 8, "dist_device_sync"),
        ("mxnet", 1, 0, "local"),
        ("mxnet", 1, 3, "local"),
        ("mxnet", 1, 4, "device"),
    ],
)
def test_default_distributions(framework: str, count: int, gpus: int, expected: str) -> None:
    assert default_distribution(framework, count, gpus) == expected


def test_a_plan_survives_its_file() -> None:
    plan = make_plan("parameter_server", 2, 8)
    assert plans.from_json(json.loads(json.dumps(plans.as_json(plan)))) == plan


def test_mpirun_numbers_processes_as_the_plan_does() -> None:
    assert hostfile(make_plan("dist_sync", 2)) == "deeplearning-worker1 slots=3\ndeeplearning-worker2 slots=2\n"


def test_a_plan_prints_as_a_table() -> None:
    lines = plans.table(make_plan("dist_sync", 1, 2)).splitlines()
    assert lines[0].split() == ["process", "node", "address", "role", "rank", "gpus", "port"]
    assert lines[-1].split() == ["3", "deeplearning-worker1", "10.0.0.11", "worker", "1", "1", "20103"]


def test_tensorflow_gets_the_addresses_of_all_processes() -> None:
    plan = make_plan("multi_worker_mirrored", 2, 1)
    environment = variables(RUN, plan, plan.processes[1])
    assert json.loads(environment["TF_CONFIG"]) == {
        "cluster": {"worker": ["10.0.0.11:20100", "10.0.0.12:20200"]},
        "task": {"type": "worker", "index": 1},
    }
    assert environment["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.parametrize(
    ("framework", "distribution"),
    [(name, distribution) for name, known in DISTRIBUTIONS.items() for distribution in known],
)
def test_tensorflow_has_keras_2_however_it_is_distributed(framework: str, distribution: str) -> None:
    plan = plans.make(record(framework, distribution), nodes(1, 0))
    environment = variables(RUN, plan, plan.of("worker")[0])
    assert environment.get("TF_USE_LEGACY_KERAS") == ("1" if framework == "tensorflow" else None)


def test_servers_see_no_gpu() -> None:
    plan = make_plan("parameter_server", 1, 8)
    assert variables(RUN, plan, plan.of("ps")[0])["CUDA_VISIBLE_DEVICES"] == ""
    config = json.loads(variables(RUN, plan, plan.of("chief")[0])["TF_CONFIG"])
    assert config["task"] == {"type": "chief", "index": 0}
    assert {role: len(hosts) for role, hosts in config["cluster"].items()} == {"chief": 1, "ps": 1, "worker": 8}


@pytest.mark.parametrize("distribution", ["parameter_server", "ddp", "dist_sync"])
def test_no_process_of_a_run_on_processors_sees_a_gpu(distribution: str) -> None:
    plan = make_plan(distribution, 1, 2)
    for process in plan.processes:
        assert variables({**RUN, "processor": True}, plan, process)["CUDA_VISIBLE_DEVICES"] == ""
    assert len(plan.of("worker")) == 2


@pytest.mark.parametrize("processor", [True, False])
@pytest.mark.parametrize(
    ("framework", "distribution"),
    [(name, distribution) for name, known in DISTRIBUTIONS.items() for distribution in known],
)
def test_trackers_of_gpus_are_off_in_tensorpacks_runs_on_processors_alone(
    framework: str, distribution: str, processor: bool
) -> None:
    plan = plans.make(record(framework, distribution), nodes(1, 1))
    environment = variables({**RUN, "processor": processor}, plan, plan.of("worker")[0])
    expected = "off" if framework == "tensorpack" and processor else None
    assert environment.get("DEEPLEARNING_GPU_TRACKERS") == expected


def test_mxnet_gets_the_address_of_the_scheduler() -> None:
    plan = make_plan("dist_sync", 2, 0)
    environment = variables(RUN, plan, plan.of("worker")[1])
    assert {name: value for name, value in environment.items() if name.startswith("DMLC_")} == {
        "DMLC_ROLE": "worker",
        "DMLC_NUM_WORKER": "2",
        "DMLC_NUM_SERVER": "2",
        "DMLC_PS_ROOT_URI": "10.0.0.11",
        "DMLC_PS_ROOT_PORT": "20100",
        "DMLC_NODE_HOST": "10.0.0.12",
        "DMLC_INTERFACE": "ens5",
    }


def test_pytorch_gets_the_variables_of_torchrun_and_sees_all_gpus() -> None:
    plan = make_plan("ddp", 2, 8)
    environment = variables(RUN, plan, plan.processes[11])
    assert {name: environment[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")} == {
        "RANK": "11",
        "WORLD_SIZE": "16",
        "LOCAL_RANK": "3",
        "LOCAL_WORLD_SIZE": "8",
    }
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("10.0.0.11", "20139")
    assert (environment["GLOO_SOCKET_IFNAME"], environment["NCCL_SOCKET_IFNAME"]) == ("ens5", "=ens5")
    assert "CUDA_VISIBLE_DEVICES" not in environment


CAPTURED = "2.13.0"
"""The version of PyTorch whose torchrun the following was captured from."""
TORCHRUN = (
    {"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "ROLE_RANK": "0"},
    {"RANK": "1", "LOCAL_RANK": "1", "GROUP_RANK": "0", "ROLE_RANK": "1"},
    {"RANK": "2", "LOCAL_RANK": "0", "GROUP_RANK": "1", "ROLE_RANK": "2"},
    {"RANK": "3", "LOCAL_RANK": "1", "GROUP_RANK": "1", "ROLE_RANK": "3"},
)
"""What the workers of torchrun printed, of PyTorch's packages for CPUs, started on each of two nodes by `torchrun
--nnodes 2 --nproc-per-node 2 --max-restarts 3`. torch/distributed/elastic/agent/server/local_elastic_agent.py sets it,
torch/distributed/run.py sets OMP_NUM_THREADS and TORCHELASTIC_SIGNALS_TO_HANDLE."""
TORCHRUN_COMMON = {
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_WORLD_SIZE": "2",
    "ROLE_NAME": "default",
    "ROLE_WORLD_SIZE": "4",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29511",
    "OMP_NUM_THREADS": "1",
    "TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_p1dv8v6o/none_tyy73o4x/attempt_0/0/error.json",
    "TORCHELASTIC_MAX_RESTARTS": "3",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
}
NOT_HERE = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE", "OMP_NUM_THREADS"}
"""The agent reads the first two; the wrapper sets the last for all frameworks."""
OTHERS = {
    "MASTER_ADDR": "10.0.0.11",
    "MASTER_PORT": "20139",
    "TORCHELASTIC_RUN_ID": "r1",
    # Rank 0 opens the store, as there is no agent.
    "TORCHELASTIC_USE_AGENT_STORE": "False",
}


@pytest.mark.parametrize("variant", ["cpu", "gpu"])
def test_the_variables_of_torchrun_are_those_of_the_pinned_version(variant: str) -> None:
    """After new pins, capture them again, as the text below TORCHRUN describes."""
    pins = (ROOT / f"roles/framework/files/pytorch/requirements-{variant}.txt").read_text(encoding="utf-8")
    assert re.findall(r"^torch==([\d.]+)", pins, re.MULTILINE) == [CAPTURED]


@pytest.mark.parametrize("number", range(4))
def test_pytorch_gets_what_torchrun_sets(number: int) -> None:
    plan = make_plan("ddp", 2, 2)
    environment = variables(RUN, plan, plan.processes[number])
    expected = {**TORCHRUN[number], **TORCHRUN_COMMON, **OTHERS}
    for name in NOT_HERE:
        assert expected.pop(name) and name not in environment
    assert {name: environment.get(name) for name in expected} == expected
    # PyTorch Lightning computes a global rank from it.
    assert int(environment["NODE_RANK"]) * 2 + int(environment["LOCAL_RANK"]) == number


@pytest.mark.parametrize(("gpus", "processor", "expected"), [(0, False, "true"), (2, True, "true"), (2, False, None)])
def test_accelerate_forms_one_group_on_processors_too(gpus: int, processor: bool, expected: str | None) -> None:
    plan = make_plan("ddp", 2, gpus)
    for process in plan.processes:
        assert variables({**RUN, "processor": processor}, plan, process).get("ACCELERATE_USE_CPU") == expected


def test_torchruns_variables_follow_the_attempt() -> None:
    plan = make_plan("ddp", 2, 0)
    environment = variables({**RUN, "attempt": 2, "max_restarts": 5}, plan, plan.processes[1])
    assert (environment["TORCHELASTIC_RESTART_COUNT"], environment["TORCHELASTIC_MAX_RESTARTS"]) == ("2", "5")
    environment = variables({name: RUN[name] for name in RUN if name != "max_restarts"}, plan, plan.processes[1])
    assert environment["TORCHELASTIC_MAX_RESTARTS"] == "0"


def test_every_process_knows_itself() -> None:
    plan = make_plan("dist_sync", 2, 1)
    environment = variables({**RUN, "data": "/efs/data/x", "attempt": 2}, plan, plan.of("server")[1])
    assert {name: value for name, value in environment.items() if name.startswith("DEEPLEARNING_")} == {
        "DEEPLEARNING_RUN_ID": "r1",
        "DEEPLEARNING_RUN_DIR": "/efs/runs/c/r1",
        "DEEPLEARNING_DATA_DIR": "/efs/data/x",
        "DEEPLEARNING_FRAMEWORK": "mxnet",
        "DEEPLEARNING_DISTRIBUTION": "dist_sync",
        "DEEPLEARNING_RANK": "1",
        "DEEPLEARNING_WORLD": "2",
        "DEEPLEARNING_LOCAL_RANK": "0",
        "DEEPLEARNING_ROLE": "server",
        "DEEPLEARNING_RESTART": "2",
        "DEEPLEARNING_GPUS": "0",
    }


@pytest.mark.parametrize(
    ("distribution", "processor", "expected"),
    [
        ("multi_worker_mirrored", False, {"worker": "1"}),
        # They see all, and choose by their local rank.
        ("ddp", False, {"worker": "4"}),
        ("dist_sync", False, {"worker": "1", "server": "0", "scheduler": "0"}),
        ("dist_device_sync", False, {"worker": "4", "server": "0", "scheduler": "0"}),
        ("ddp", True, {"worker": "0"}),
        ("dist_device_sync", True, {"worker": "0", "server": "0", "scheduler": "0"}),
    ],
)
def test_every_process_is_told_how_many_gpus_it_has_to_see(
    distribution: str, processor: bool, expected: dict[str, str]
) -> None:
    plan = make_plan(distribution, 2, 4)
    start = {**RUN, "processor": processor}
    gpus = {(process.role, variables(start, plan, process)["DEEPLEARNING_GPUS"]) for process in plan.processes}
    assert gpus == set(expected.items())


OWN_VARIABLES = {
    "multi_worker_mirrored": {"TF_CONFIG"},
    "parameter_server": {"TF_CONFIG"},
    "local": set(),
    "device": set(),
    **dict.fromkeys(KEY_VALUE_STORES, {"DMLC_ROLE"}),
    "ddp": {"RANK"},
    "horovod": {"HOROVOD_CYCLE_TIME"},
}
"""Of each framework one that no other has, to tell them apart; `local` and `device` have one process."""


@pytest.mark.parametrize("distribution", sorted(plans.LAYOUTS))
def test_processes_of_every_distribution_have_the_variables_of_its_framework_alone(distribution: str) -> None:
    plan = make_plan(distribution, 1, 1)
    assert plan.processes
    for process in plan.processes:
        names = set(variables(RUN, plan, process)) & set().union(*OWN_VARIABLES.values())
        assert names == OWN_VARIABLES[distribution]


def test_placeholders_are_filled_in_and_nothing_else() -> None:
    plan = make_plan("parameter_server", 2, 0, script_args=("{job_name}",))
    arguments = ["--job_name={job_name}", "--task_index", "{task_index}", "--ps_hosts={ps_hosts}", "{worker_hosts}"]
    arguments += ["{data}:{run}", "{rank}/{world}", '{"a": "$HOME"}', "{other}", 'it\'s "quoted"']
    assert fill_in({**RUN, "arguments": arguments}, plan, plan.of("worker")[1]) == [
        "--job_name=worker",
        "--task_index",
        "1",
        "--ps_hosts=10.0.0.11:20100,10.0.0.12:20200",
        "10.0.0.11:20101,10.0.0.12:20201",
        "/efs/data/cifar10:/efs/runs/c/r1",
        "1/2",
        '{"a": "$HOME"}',
        "{other}",
        'it\'s "quoted"',
    ]


@pytest.mark.parametrize(("nodes", "processes", "accepted"), [(1, 1, 1), (2, 1, 1), (3, 1, 0), (3, 8, 1), (2, 6, 0)])
def test_mask_rcnn_is_refused_with_a_number_of_processes_that_it_cannot_use(
    nodes: int, processes: int, accepted: int
) -> None:
    run = record("tensorpack", "horovod", nodes=nodes, processes_per_node=processes)
    assert len(preview(run, members(3)).processes) == nodes * processes
    run["script"] = script.FASTERRCNN
    if accepted:
        assert len(preview(run, members(3)).processes) == nodes * processes
    else:
        with pytest.raises(UserError, match=f"^{nodes * processes} processes would train, and TensorPack's FasterRCNN"):
            preview(run, members(3))
