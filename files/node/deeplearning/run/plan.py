"""The launch plan: which processes a start of a run has, where, and as what.

Plans are made by pure functions of the nodes and of what was asked, and are data: written beside the run, printed as a
table, read by each process's wrapper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deeplearning import Refusal

WORKER, CHIEF, PS, SERVER, SCHEDULER = "worker", "chief", "ps", "server", "scheduler"


@dataclass(frozen=True)
class Node:
    """A member as the survey found it just before the start."""

    name: str
    address: str
    gpus: int = 0
    interface: str = ""
    ports: tuple[int, ...] = ()
    """Free ones."""
    efa: int = 0
    """Devices of AWS's fast network."""


@dataclass(frozen=True)
class Process:
    node: str
    role: str
    rank: int
    """The number within the role."""
    local_rank: int = 0
    """The number among those of this role on this node."""
    gpus: tuple[int, ...] | None = None
    """Those that it may see; None: all, since the script chooses by its local rank."""
    port: int = 0

    @property
    def name(self) -> str:
        return f"{self.node}.{self.role}{self.rank}"


@dataclass(frozen=True)
class Options:
    """What was asked, as far as it shapes a plan."""

    framework: str
    distribution: str
    processes_per_node: int | None = None
    servers: int | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    framework: str
    distribution: str
    nodes: tuple[Node, ...]
    processes: tuple[Process, ...]
    """Node by node: the order in which mpirun numbers them."""

    def of(self, role: str) -> list[Process]:
        return sorted((process for process in self.processes if process.role == role), key=lambda process: process.rank)

    def on(self, node: str) -> list[Process]:
        return [process for process in self.processes if process.node == node]

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    @property
    def leading(self) -> list[Process]:
        """The run has ended well when these have; servers never exit by themselves."""
        return self.of(CHIEF) or self.of(WORKER)

    def host(self, process: Process) -> str:
        return f"{self.node(process.node).address}:{process.port}"


def made(options: Options, nodes: Sequence[Node]) -> Plan:
    laid_out = LAYOUTS[options.distribution](options, nodes)
    processes: list[Process] = []
    for node in nodes:
        mine = [process for process in laid_out if process.node == node.name]
        if node.ports and len(mine) >= len(node.ports):
            raise Refusal(f"{node.name} has too few free ports for {len(mine)} processes: give fewer of them.")
        # The last port is nobody's own: it is where processes meet.
        ports = node.ports[:-1] or (0,) * len(mine)
        processes += [Process(**{**asdict(process), "port": port}) for process, port in zip(mine, ports)]
    return Plan(options.framework, options.distribution, tuple(nodes), tuple(processes))


def as_json(plan: Plan) -> dict[str, Any]:
    return asdict(plan)


def from_json(record: dict[str, Any]) -> Plan:
    nodes = tuple(Node(**{**node, "ports": tuple(node["ports"])}) for node in record["nodes"])
    processes = tuple(
        Process(**{**process, "gpus": None if process["gpus"] is None else tuple(process["gpus"])})
        for process in record["processes"]
    )
    return Plan(record["framework"], record["distribution"], nodes, processes)


def workers(options: Options, nodes: Sequence[Node], share_gpus: bool = True) -> list[Process]:
    """As many on each node: what was asked, or one for each GPU, or one."""
    counts = {node.gpus for node in nodes}
    if options.processes_per_node is None and len(counts) > 1:
        each = ", ".join(f"{node.name} has {node.gpus}" for node in nodes)
        raise Refusal(f"The numbers of GPUs differ ({each}): give processes_per_node. Example: processes_per_node=1")
    processes: list[Process] = []
    for node in nodes:
        count = options.processes_per_node or node.gpus or 1
        for local in range(count):
            gpus = part(node.gpus, count, local) if share_gpus else None
            processes.append(Process(node.name, WORKER, len(processes), local, gpus))
    return processes


def part(gpus: int, processes: int, local: int) -> tuple[int, ...]:
    """The GPUs of one process of a node: the same number each; shared if there are more processes."""
    if not gpus:
        return ()
    if processes > gpus:
        return (local % gpus,)
    each = gpus // processes
    return tuple(range(local * each, (local + 1) * each))


def spread(role: str, count: int, nodes: Sequence[Node]) -> list[Process]:
    """Round and round the nodes, as the old launchers did. They need no GPU."""
    return [Process(nodes[n % len(nodes)].name, role, n, n // len(nodes), ()) for n in range(count)]


def only_workers(options: Options, nodes: Sequence[Node]) -> list[Process]:
    return workers(options, nodes)


def workers_that_choose(options: Options, nodes: Sequence[Node]) -> list[Process]:
    return workers(options, nodes, share_gpus=False)


def one_process(options: Options, nodes: Sequence[Node]) -> list[Process]:
    if len(nodes) > 1 or (options.processes_per_node or 1) > 1:
        raise Refusal(
            f"{options.distribution} is one process on one node: give nodes=1, or another distribution. "
            "Example: -e distribution=dist_sync"
        )
    return [Process(nodes[0].name, WORKER, 0, 0, tuple(range(nodes[0].gpus)))]


def parameter_servers(options: Options, nodes: Sequence[Node]) -> list[Process]:
    """A script that asks for its job's name is started as the old generator did it: servers and workers, no more."""
    chiefs = [] if any("{job_name}" in word for word in options.arguments) else spread(CHIEF, 1, nodes)
    return chiefs + spread(PS, options.servers or len(nodes), nodes) + workers(options, nodes)


def key_value_store(options: Options, nodes: Sequence[Node]) -> list[Process]:
    servers = spread(SERVER, options.servers or len(nodes), nodes)
    return spread(SCHEDULER, 1, nodes) + servers + workers(options, nodes)


LAYOUTS: dict[str, Callable[[Options, Sequence[Node]], list[Process]]] = {
    "multi_worker_mirrored": only_workers,
    "parameter_server": parameter_servers,
    "local": one_process,
    "device": one_process,
    "dist_sync": key_value_store,
    "dist_device_sync": key_value_store,
    "dist_async": key_value_store,
    "ddp": workers_that_choose,
    "horovod": workers_that_choose,
}

DISTRIBUTIONS = {
    "tensorflow": ("multi_worker_mirrored", "parameter_server", "horovod"),
    "mxnet": ("dist_sync", "dist_device_sync", "dist_async", "local", "device"),
    "pytorch": ("ddp", "horovod"),
    "tensorpack": ("horovod",),
}
ON_ONE_NODE = ("local", "device")


def default_distribution(framework: str, nodes: int, gpus: int) -> str:
    if framework != "mxnet":
        return DISTRIBUTIONS[framework][0]
    if nodes == 1:
        return "device" if gpus >= 4 else "local"
    return "dist_device_sync" if gpus else "dist_sync"


def table(plan: Plan) -> str:
    rows = [["process", "node", "address", "role", "rank", "gpus", "port"]]
    for number, process in enumerate(plan.processes):
        gpus = "all" if process.gpus is None else ",".join(map(str, process.gpus)) or "-"
        address = plan.node(process.node).address
        port = str(process.port or "-")
        rows.append([str(number), process.node, address, process.role, str(process.rank), gpus, port])
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
