"""On the master: find nodes that are slower than the others, by what NCCL reached between and inside them.

NCCL uses all network cards and links of a node. Its figures are compared with each other, as few are published.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from deeplearning.contract import schema
from deeplearning.health.checks import Check, some
from deeplearning.runs.plan import WORKER

SLOW = 0.8
"""Below this share of the median of the others, a node is slow. Nothing else uses the network of the nodes then."""
COMPARED = 3
"""Of fewer figures, nothing says which of them is the slow one."""
_MOST = 100_000


def _figure(count: int) -> schema.Check:
    """Return the check of a figure, which is behind the first ranks of as many nodes."""

    def check(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != count + 1:
            raise schema.InvalidValue(f"a list of {count} ranks and a figure")
        return [*map(schema.between(0, _MOST), value[:count]), schema.number(0, 1e9)(value[count])]

    return check


_WORDS = {
    "pairs": ("to its neighbours by NCCL", "between nodes by NCCL"),
    "inside": ("between its GPUs", "inside each node"),
}
"""By the name of the check: where a node is slow, and where all of them are not."""
_FIGURES = {
    "pairs": schema.list_of(_figure(2), most=_MOST),
    "inside": schema.list_of(_figure(1), most=_MOST),
}


def checks(measured: Mapping[str, Any], processes: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Judge the figures in preflight.json. Raise UserError if they are malformed.

    `processes`: those of the run, as in its state. Only PyTorch's preflight compares nodes; on one node its sum is of
    the GPUs inside it.
    """
    if not measured.get("nccl"):
        return []
    figures = schema.validate_part({name: measured.get(name, []) for name in _FIGURES}, _FIGURES, "preflight.json")
    names = {process["rank"]: str(process["node"]) for process in processes if process["role"] == WORKER}
    results = []

    def node(rank: int) -> str:
        return names.get(rank, f"the node of rank {rank}")

    for name, listed in figures.items():
        speeds = {tuple(map(node, ranks)): speed for *ranks, speed in listed}
        if name == "inside" and len(set(names.values())) == 1 and len(names) > 1:
            speeds = {(node(0),): measured["gbits"]}
        if speeds:
            results.append(judge(name, speeds))
    return results


def judge(name: str, speeds: Mapping[tuple[str, ...], float]) -> Check:
    """Name each node that is slow in all its figures: with both its neighbours, or among its own GPUs.

    `speeds`: Gbit/s by two nodes, which are neighbours in a ring, or by the node whose GPUs exchange.
    """
    where, everywhere = _WORDS[name]
    compared = dict.fromkeys(node for nodes in speeds for node in nodes) if len(speeds) >= COMPARED else {}
    slow = []
    for node in compared:
        best = max(speed for nodes, speed in speeds.items() if node in nodes)
        median = statistics.median(speed for nodes, speed in speeds.items() if node not in nodes)
        if best < SLOW * median:
            than = f"the median of the others is {median / 8:.1f}"
            slow.append(f"{node} has {best / 8:.1f} GB/s {where}, and {than}")
    more = " or more" if len(speeds) > 1 else ""
    return Check(name, not slow, some(slow) or f"{min(speeds.values()) / 8:.1f} GB/s{more} {everywhere}")
