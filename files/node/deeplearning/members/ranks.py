"""Assign ranks. The master is 1; the others keep theirs, and a new machine takes the lowest free one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Instance:
    """A machine as the API describes it."""

    instance_id: str
    master: bool
    private_ip: str
    private_dns: str
    instance_type: str
    launched: str
    rank_tag: str
    """empty if it has none"""
    run_tag: str = ""
    """the run that uses it; empty if none does"""


def assign(machines: Sequence[Instance], listed: Mapping[str, int]) -> dict[str, int]:
    """Return ranks by instance id. `listed`: the ranks of the current list, which take precedence over tags."""
    ranks = {machine.instance_id: 1 for machine in machines if machine.master}
    workers = [machine for machine in machines if not machine.master]
    workers.sort(key=lambda machine: (machine.launched, machine.instance_id))

    taken = {1}
    for preferred in (listed, {machine.instance_id: _tagged(machine) for machine in workers}):
        for machine in workers:
            rank = preferred.get(machine.instance_id, 0)
            if machine.instance_id not in ranks and rank and rank not in taken:
                ranks[machine.instance_id] = rank
                taken.add(rank)

    free = (rank for rank in itertools.count(2) if rank not in taken)
    for machine in workers:
        if machine.instance_id not in ranks:
            ranks[machine.instance_id] = next(free)
    return ranks


def to_tag(machines: Iterable[Instance], ranks: Mapping[str, int]) -> dict[str, int]:
    """Return the ranks that differ from their machines' tags."""
    return {
        machine.instance_id: ranks[machine.instance_id]
        for machine in machines
        if machine.rank_tag != str(ranks[machine.instance_id])
    }


def _tagged(machine: Instance) -> int:
    """Return the rank in a worker's tag, or 0 if it has none."""
    tag = machine.rank_tag
    return int(tag) if tag.isascii() and tag.isdigit() and len(tag) < 6 else 0
