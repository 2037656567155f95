"""Launch plans as tables: who runs where, as what, with which GPUs, and what each process is told."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from deeplearning import Refusal
from deeplearning.run import plan as plans
from deeplearning.run.mpirun import hostfile
from deeplearning.run.plan import Node, Options, Plan
from deeplearning.run.variables import Run, filled, variables

RUN = Run("r1", "/efs/runs/c/r1", "/efs/data/cifar10", 0)


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


def plan(distribution: str, count: int = 2, gpus: int = 0, **more: Any) -> Plan:
    framework = next(name for name, known in plans.DISTRIBUTIONS.items() if distribution in known)
    return plans.made(Options(framework, distribution, **more), nodes(count, gpus))


def roles(made: Plan) -> dict[str, int]:
    return dict(Counter(process.role for process in made.processes))


WORKERS_ONLY = ("multi_worker_mirrored", "ddp", "horovod")
KEY_VALUE_STORES = ("dist_sync", "dist_device_sync", "dist_async")


@pytest.mark.parametrize("distribution", WORKERS_ONLY)
@pytest.mark.parametrize(
    ("count", "gpus", "workers"),
    [(1, 0, 1), (1, 1, 1), (1, 8, 8), (2, 0, 2), (2, 1, 2), (2, 8, 16), (64, 0, 64), (64, 1, 64), (64, 8, 512)],
)
def test_a_worker_for_each_gpu_or_one_a_node(distribution: str, count: int, gpus: int, workers: int) -> None:
    made = plan(distribution, count, gpus)
    assert roles(made) == {"worker": workers}
    assert [process.rank for process in made.processes] == list(range(workers))
    assert [process.node for process in made.processes] == [
        node.name for node in made.nodes for _ in range(workers // count)
    ]


@pytest.mark.parametrize("distribution", KEY_VALUE_STORES)
@pytest.mark.parametrize(("count", "gpus", "workers"), [(1, 0, 1), (1, 8, 8), (2, 0, 2), (2, 8, 16), (64, 8, 512)])
def test_mxnet_has_a_scheduler_and_a_server_a_node(distribution: str, count: int, gpus: int, workers: int) -> None:
    made = plan(distribution, count, gpus)
    assert roles(made) == {"scheduler": 1, "server": count, "worker": workers}
    assert made.of("scheduler")[0].node == "deeplearning-worker1"
    assert [process.node for process in made.of("server")] == [node.name for node in made.nodes]


@pytest.mark.parametrize("gpus", [0, 1, 8])
@pytest.mark.parametrize("distribution", ["local", "device"])
def test_mxnet_on_one_node_is_one_process_with_all_gpus(distribution: str, gpus: int) -> None:
    made = plan(distribution, 1, gpus)
    assert roles(made) == {"worker": 1}
    assert made.processes[0].gpus == tuple(range(gpus))


@pytest.mark.parametrize("more", [{"count": 2}, {"count": 1, "processes_per_node": 2}])
def test_what_is_for_one_process_is_refused_on_more(more: dict[str, int]) -> None:
    with pytest.raises(Refusal, match="one process on one node: give nodes=1"):
        plan("local", **more)


def test_two_nodes_of_eight_gpus_have_two_servers_and_sixteen_workers_as_the_old_users_had_it() -> None:
    made = plan("parameter_server", 2, 8, arguments=("--job_name={job_name}",))
    assert roles(made) == {"ps": 2, "worker": 16}
    assert [process.node for process in made.of("ps")] == ["deeplearning-worker1", "deeplearning-worker2"]
    assert [process.gpus for process in made.of("worker")] == [(n % 8,) for n in range(16)]
    assert [process.gpus for process in made.of("ps")] == [(), ()]
    assert made.of("worker")[8].node == "deeplearning-worker2"


@pytest.mark.parametrize(("count", "gpus", "workers"), [(1, 0, 1), (2, 0, 2), (2, 1, 2), (64, 8, 512)])
def test_a_script_that_knows_nothing_of_job_names_gets_a_chief(count: int, gpus: int, workers: int) -> None:
    made = plan("parameter_server", count, gpus)
    assert roles(made) == {"chief": 1, "ps": count, "worker": workers}
    assert made.of("chief")[0].node == "deeplearning-worker1"
    assert [process.role for process in made.leading] == ["chief"]


def test_workers_decide_when_a_run_has_ended() -> None:
    assert {process.role for process in plan("dist_sync", 3).leading} == {"worker"}


def test_servers_are_counted_in_all_and_go_round_the_nodes() -> None:
    made = plan("dist_sync", 2, servers=3)
    assert [process.node[-1] for process in made.of("server")] == ["1", "2", "1"]


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
    made = plan("multi_worker_mirrored", 1, gpus, processes_per_node=processes)
    assert [process.gpus for process in made.processes] == parts


def test_different_numbers_of_gpus_are_refused_unless_processes_are_counted() -> None:
    mixed = [*nodes(1, 8), Node("deeplearning-worker2", "10.0.0.12", 4)]
    with pytest.raises(Refusal, match="deeplearning-worker1 has 8, deeplearning-worker2 has 4"):
        plans.made(Options("pytorch", "ddp"), mixed)
    assert len(plans.made(Options("pytorch", "ddp", processes_per_node=2), mixed).processes) == 4


def test_no_two_processes_of_a_node_share_a_port_and_the_meeting_place_is_nobodys() -> None:
    made = plan("parameter_server", 2, 8)
    for node in made.nodes:
        ports = [process.port for process in made.on(node.name)]
        assert len(set(ports)) == len(ports) and set(ports) <= set(node.ports[:-1])


def test_too_few_ports_are_refused() -> None:
    with pytest.raises(Refusal, match="too few free ports for 3 processes"):
        plans.made(Options("pytorch", "ddp", processes_per_node=3), [Node("a", "10.0.0.1", ports=(1, 2, 3))])


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
    assert plans.default_distribution(framework, count, gpus) == expected


def test_a_plan_survives_its_file() -> None:
    made = plan("parameter_server", 2, 8)
    assert plans.from_json(json.loads(json.dumps(plans.as_json(made)))) == made


def test_mpirun_numbers_processes_as_the_plan_does() -> None:
    assert hostfile(plan("dist_sync", 2)) == "deeplearning-worker1 slots=3\ndeeplearning-worker2 slots=2\n"


def test_a_plan_prints_as_a_table() -> None:
    lines = plans.table(plan("dist_sync", 1, 2)).splitlines()
    assert lines[0].split() == ["process", "node", "address", "role", "rank", "gpus", "port"]
    assert lines[-1].split() == ["3", "deeplearning-worker1", "10.0.0.11", "worker", "1", "1", "20103"]


def test_tensorflow_is_told_everybodys_place() -> None:
    made = plan("multi_worker_mirrored", 2, 1)
    told = variables(RUN, made, made.processes[1])
    assert json.loads(told["TF_CONFIG"]) == {
        "cluster": {"worker": ["10.0.0.11:20100", "10.0.0.12:20200"]},
        "task": {"type": "worker", "index": 1},
    }
    assert told["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.parametrize(
    ("framework", "distribution"), [(name, one) for name, known in plans.DISTRIBUTIONS.items() for one in known]
)
def test_tensorflow_has_keras_2_however_it_is_distributed(framework: str, distribution: str) -> None:
    made = plans.made(Options(framework, distribution), nodes(1, 0))
    told = variables(RUN, made, made.of("worker")[0])
    assert told.get("TF_USE_LEGACY_KERAS") == ("1" if framework == "tensorflow" else None)


def test_servers_see_no_gpu() -> None:
    made = plan("parameter_server", 1, 8)
    assert variables(RUN, made, made.of("ps")[0])["CUDA_VISIBLE_DEVICES"] == ""
    config = json.loads(variables(RUN, made, made.of("chief")[0])["TF_CONFIG"])
    assert config["task"] == {"type": "chief", "index": 0}
    assert {role: len(hosts) for role, hosts in config["cluster"].items()} == {"chief": 1, "ps": 1, "worker": 8}


def test_mxnet_is_told_where_the_scheduler_is() -> None:
    made = plan("dist_sync", 2, 0)
    told = variables(RUN, made, made.of("worker")[1])
    assert {name: value for name, value in told.items() if name.startswith("DMLC_")} == {
        "DMLC_ROLE": "worker",
        "DMLC_NUM_WORKER": "2",
        "DMLC_NUM_SERVER": "2",
        "DMLC_PS_ROOT_URI": "10.0.0.11",
        "DMLC_PS_ROOT_PORT": "20100",
        "DMLC_NODE_HOST": "10.0.0.12",
        "DMLC_INTERFACE": "ens5",
    }


def test_pytorch_is_told_as_torchrun_would_and_sees_all_gpus() -> None:
    made = plan("ddp", 2, 8)
    told = variables(RUN, made, made.processes[11])
    assert {name: told[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")} == {
        "RANK": "11",
        "WORLD_SIZE": "16",
        "LOCAL_RANK": "3",
        "LOCAL_WORLD_SIZE": "8",
    }
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("10.0.0.11", "20139")
    assert told["GLOO_SOCKET_IFNAME"] == told["NCCL_SOCKET_IFNAME"] == "ens5"
    assert "CUDA_VISIBLE_DEVICES" not in told


def test_every_process_knows_itself() -> None:
    made = plan("dist_sync", 2, 1)
    told = variables(Run("r1", "/efs/runs/c/r1", "/efs/data/x", 2), made, made.of("server")[1])
    assert {name: value for name, value in told.items() if name.startswith("DEEPLEARNING_")} == {
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
    }


@pytest.mark.parametrize("distribution", sorted(plans.LAYOUTS))
def test_every_distribution_can_tell_every_process(distribution: str) -> None:
    made = plan(distribution, 1, 1)
    assert all(variables(RUN, made, process) for process in made.processes)


def test_words_in_braces_are_filled_in_and_nothing_else() -> None:
    made = plan("parameter_server", 2, 0, arguments=("{job_name}",))
    given = ["--job_name={job_name}", "--task_index", "{task_index}", "--ps_hosts={ps_hosts}", "{worker_hosts}"]
    given += ["{data}:{run}", "{rank}/{world}", '{"a": "$HOME"}', "{other}", 'it\'s "quoted"']
    assert filled(given, RUN, made, made.of("worker")[1]) == [
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
