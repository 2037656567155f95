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

Pairs = Mapping[tuple[str, str], float]
"""Gbit/s by two nodes, which are neighbours in a ring."""


def _figure(count: int) -> schema.Check:
    """Return the check of a figure, which is behind the first ranks of as many nodes."""

    def check(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != count + 1:
            raise schema.InvalidValue(f"a list of {count} ranks and a figure")
        return [*map(schema.between(0, _MOST), value[:count]), schema.number(0, 1e9)(value[count])]

    return check


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
    pairs = {(_name(names, a), _name(names, b)): speed for a, b, speed in figures["pairs"]}
    inside = {_name(names, rank): speed for rank, speed in figures["inside"]}
    if len(set(names.values())) == 1 and len(names) > 1:
        inside = {_name(names, 0): measured["gbits"]}
    return [*([judge_pairs(pairs)] if pairs else []), *([judge_inside(inside)] if inside else [])]


def _name(names: Mapping[int, str], rank: int) -> str:
    return names.get(rank, f"the node of rank {rank}")


def judge_pairs(speeds: Pairs) -> Check:
    """Name each node that is slow with both its neighbours."""
    nodes = dict.fromkeys(node for pair in speeds for node in pair)
    best = {node: max(speed for pair, speed in speeds.items() if node in pair) for node in nodes}
    others = {node: [speed for pair, speed in speeds.items() if node not in pair] for node in nodes}
    return _check("pairs", "to its neighbours by NCCL", "between nodes by NCCL", best, others, [*speeds.values()])


def judge_inside(speeds: Mapping[str, float]) -> Check:
    """Name each node whose GPUs exchange more slowly among themselves than those of the others."""
    others = {node: [speed for other, speed in speeds.items() if other != node] for node in speeds}
    return _check("inside", "between its GPUs", "inside each node", speeds, others, [*speeds.values()])


def _check(
    name: str,
    where: str,
    everywhere: str,
    speeds: Mapping[str, float],
    others: Mapping[str, Sequence[float]],
    figures: Sequence[float],
) -> Check:
    medians = {node: statistics.median(others[node]) for node in speeds} if len(figures) >= COMPARED else {}
    slow = [
        f"{node} has {speeds[node] / 8:.1f} GB/s {where}, and the median of the others is {median / 8:.1f}"
        for node, median in medians.items()
        if speeds[node] < SLOW * median
    ]
    more = " or more" if len(figures) > 1 else ""
    return Check(name, not slow, some(slow) or f"{min(figures) / 8:.1f} GB/s{more} {everywhere}")
