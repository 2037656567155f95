"""The launch plan: which processes an attempt starts, where, and as what.

Plans are made by pure functions of a run's record and nodes. They are data: stored with the attempt, printed as a
table, and read by each process's wrapper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

from deeplearning.contract.errors import UserError
from deeplearning.contract.frameworks import distribution_problem
from deeplearning.contract.tables import text_table

WORKER, CHIEF, PS, SERVER, SCHEDULER = "worker", "chief", "ps", "server", "scheduler"


@dataclass(frozen=True)
class Node:
    """A member as surveyed just before the attempt."""

    name: str
    address: str
    gpus: int = 0
    interface: str = ""
    ports: tuple[int, ...] = ()
    """Free ports; in a plan only the last one, where all processes rendezvous."""
    efa: int = 0
    """The number of EFA devices."""
    buses: tuple[str, ...] = ()
    """Of each GPU, its place on the bus as in /sys; empty if that is not known."""


@dataclass(frozen=True)
class Process:
    node: str
    role: str
    rank: int
    """The number within the role."""
    local_rank: int = 0
    """The number within the role on this node."""
    gpus: tuple[int, ...] | None = None
    """The GPUs that it may see; None for all, if the script chooses by its local rank."""
    port: int = 0

    @property
    def name(self) -> str:
        return f"{self.node}.{self.role}{self.rank}"

    def summary(self) -> dict[str, Any]:
        """Return what events and answers show of it."""
        return {"node": self.node, "role": self.role, "rank": self.rank, "gpus": self.gpus}


Run = Mapping[str, Any]
"""The record of a run, of which its distribution, processes_per_node, servers and script_args shape the plan."""


@dataclass(frozen=True)
class Plan:
    framework: str
    distribution: str
    nodes: tuple[Node, ...]
    processes: tuple[Process, ...]
    """In the order in which mpirun numbers them, which is node by node."""

    def of(self, role: str) -> list[Process]:
        return sorted((process for process in self.processes if process.role == role), key=lambda process: process.rank)

    def on(self, node: str) -> list[Process]:
        return self._by_node.get(node, [])

    def node(self, name: str) -> Node:
        return self._nodes[name]

    @cached_property
    def _by_node(self) -> dict[str, list[Process]]:
        return _by_node(self.processes)

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @property
    def leading(self) -> list[Process]:
        """Return the processes whose success is the run's success; servers never exit by themselves."""
        return self.of(CHIEF) or self.of(WORKER)

    def host(self, process: Process) -> str:
        return f"{self.node(process.node).address}:{process.port}"


def make(run: Run, nodes: Sequence[Node]) -> Plan:
    problem = distribution_problem(run["framework"], run["distribution"])
    if problem:
        # The run was created by a program that had it.
        raise UserError(problem)
    layout = LAYOUTS[run["distribution"]](run, nodes)
    by_node = _by_node(layout)
    processes: list[Process] = []
    for node in nodes:
        local = by_node.get(node.name, [])
        if node.ports and len(local) >= len(node.ports):
            raise UserError(f"{node.name} has too few free ports for {len(local)} processes: start fewer of them.")
        # No process gets the last port.
        ports = node.ports[:-1] or (0,) * len(local)
        processes += [replace(process, port=port) for process, port in zip(local, ports)]
    # All wrappers read the plan: it has no more ports than they need.
    rendezvous = (replace(node, ports=node.ports[-1:]) for node in nodes)
    return Plan(run["framework"], run["distribution"], tuple(rendezvous), tuple(processes))


def _by_node(processes: Sequence[Process]) -> dict[str, list[Process]]:
    by_node: dict[str, list[Process]] = {}
    for process in processes:
        by_node.setdefault(process.node, []).append(process)
    return by_node


def as_json(plan: Plan) -> dict[str, Any]:
    return asdict(plan)


def from_json(record: dict[str, Any]) -> Plan:
    nodes = tuple(
        Node(**{**node, "ports": tuple(node["ports"]), "buses": tuple(node.get("buses", ()))})
        for node in record["nodes"]
    )
    processes = tuple(
        Process(**{**process, "gpus": None if process["gpus"] is None else tuple(process["gpus"])})
        for process in record["processes"]
    )
    return Plan(record["framework"], record["distribution"], nodes, processes)


def workers(run: Run, nodes: Sequence[Node], share_gpus: bool = True) -> list[Process]:
    """Return the same number of workers on each node: as requested, or one per GPU, or one."""
    counts = {node.gpus for node in nodes}
    if run["processes_per_node"] is None and len(counts) > 1:
        each = ", ".join(f"{node.name} has {node.gpus}" for node in nodes)
        raise UserError(f"The numbers of GPUs differ ({each}): set processes_per_node. Example: processes_per_node=1")
    processes: list[Process] = []
    for node in nodes:
        count = run["processes_per_node"] or node.gpus or 1
        for local in range(count):
            gpus = gpu_share(node.gpus, count, local) if share_gpus else None
            processes.append(Process(node.name, WORKER, len(processes), local, gpus))
    return processes


def gpu_share(gpus: int, processes: int, local: int) -> tuple[int, ...]:
    """Return the GPUs of one of a node's processes: the same number for each; shared if there are more processes."""
    if not gpus:
        return ()
    if processes > gpus:
        return (local % gpus,)
    each = gpus // processes
    return tuple(range(local * each, (local + 1) * each))


def spread(role: str, count: int, nodes: Sequence[Node]) -> list[Process]:
    """Return processes without GPUs, dealt out to the nodes in turn as the old launchers did."""
    return [Process(nodes[n % len(nodes)].name, role, n, n // len(nodes), ()) for n in range(count)]


def one_process(run: Run, nodes: Sequence[Node]) -> list[Process]:
    if len(nodes) > 1 or (run["processes_per_node"] or 1) > 1:
        raise UserError(
            f"{run['distribution']} is one process on one node: set nodes=1, or another distribution. "
            "Example: -e distribution=dist_sync"
        )
    return [Process(nodes[0].name, WORKER, 0, 0, tuple(range(nodes[0].gpus)))]


def parameter_servers(run: Run, nodes: Sequence[Node]) -> list[Process]:
    """A script that takes its job's name is started as the old generator did: with servers and workers, no chief."""
    chiefs = [] if any("{job_name}" in word for word in run["script_args"]) else spread(CHIEF, 1, nodes)
    return chiefs + spread(PS, run["servers"] or len(nodes), nodes) + workers(run, nodes)


def key_value_store(run: Run, nodes: Sequence[Node]) -> list[Process]:
    servers = spread(SERVER, run["servers"] or len(nodes), nodes)
    return spread(SCHEDULER, 1, nodes) + servers + workers(run, nodes)


def device_key_value_store(run: Run, nodes: Sequence[Node]) -> list[Process]:
    """By default one worker on each node, which sums gradients on all its GPUs before it sends them."""
    return key_value_store({**run, "processes_per_node": run["processes_per_node"] or 1}, nodes)


LAYOUTS: dict[str, Callable[[Run, Sequence[Node]], list[Process]]] = {
    "multi_worker_mirrored": workers,
    "parameter_server": parameter_servers,
    "local": one_process,
    "device": one_process,
    "dist_sync": key_value_store,
    "dist_device_sync": device_key_value_store,
    "dist_async": key_value_store,
    "ddp": partial(workers, share_gpus=False),
    "horovod": partial(workers, share_gpus=False),
}


def table(plan: Plan) -> str:
    rows = [["process", "node", "address", "role", "rank", "gpus", "port"]]
    for number, process in enumerate(plan.processes):
        gpus = "all" if process.gpus is None else ",".join(map(str, process.gpus)) or "-"
        address = plan.node(process.node).address
        port = str(process.port or "-")
        rows.append([str(number), process.node, address, process.role, str(process.rank), gpus, port])
    return "\n".join(text_table(rows))
