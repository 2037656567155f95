"""Who gets which rank. The master is 1; the others keep theirs, and a new machine takes the lowest that is free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """As the API describes it."""

    instance_id: str
    master: bool
    private_ip: str
    private_dns: str
    instance_type: str
    launched: str
    rank_tag: str
    """empty if it has none"""


def assign(machines: Iterable[Machine], listed: Mapping[str, int]) -> dict[str, int]:
    """Ranks by instance id. `listed`: those of the list in force, which count for more than tags."""
    ranks: dict[str, int] = {}
    workers = []
    for machine in machines:
        if machine.master:
            ranks[machine.instance_id] = 1
        else:
            workers.append(machine)
    workers.sort(key=lambda machine: (machine.launched, machine.instance_id))

    taken = {1}
    for wishes in (listed, {machine.instance_id: _tagged(machine) for machine in workers}):
        for machine in workers:
            wish = wishes.get(machine.instance_id, 0)
            if machine.instance_id not in ranks and wish and wish not in taken:
                ranks[machine.instance_id] = wish
                taken.add(wish)

    free = 2
    for machine in workers:
        if machine.instance_id not in ranks:
            while free in taken:
                free += 1
            ranks[machine.instance_id] = free
            taken.add(free)
    return ranks


def to_tag(machines: Iterable[Machine], ranks: Mapping[str, int]) -> dict[str, int]:
    """The ranks that do not stand in their machines' tags."""
    return {
        machine.instance_id: ranks[machine.instance_id]
        for machine in machines
        if machine.rank_tag != str(ranks[machine.instance_id])
    }


def _tagged(machine: Machine) -> int:
    """0 for what is no rank of a worker."""
    tag = machine.rank_tag
    return int(tag) if tag.isascii() and tag.isdigit() and len(tag) < 6 else 0
