"""Select the subnets of new instances, and the instances to terminate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from localcloud.api.autoscaling.records import LaunchTemplateSpecification, Member, Subnet


def spread(subnets: Sequence[Subnet], occupied: Iterable[Subnet], count: int) -> list[Subnet]:
    """Return the subnets of `count` more instances: evenly over the zones."""
    subnets_used = Counter(occupied)
    zones_used = Counter(subnet.zone for subnet in subnets_used.elements())
    chosen: list[Subnet] = []
    for _ in range(count):
        best = min(subnets, key=lambda subnet: (zones_used[subnet.zone], subnets_used[subnet]))
        subnets_used[best] += 1
        zones_used[best.zone] += 1
        chosen.append(best)
    return chosen


def select_for_termination(members: Sequence[Member], current: LaunchTemplateSpecification, count: int) -> list[Member]:
    """Select instances to terminate: the unhealthy, then by zone balance, then by the default termination policy."""
    left = list(members)
    chosen: list[Member] = []
    for _ in range(min(count, len(left))):
        chosen.append(_select_one(left, current))
        left.remove(chosen[-1])
    return chosen


def _select_one(members: Sequence[Member], current: LaunchTemplateSpecification) -> Member:
    zones = Counter(member.subnet.zone for member in members)

    def order(member: Member) -> tuple[bool, int, bool, int, float, str]:
        """Instances of another launch template come first, then those of older versions, then older ones."""
        template = member.template
        return (
            member.health != "Unhealthy",
            -zones[member.subnet.zone],
            template.id == current.id,
            int(template.version),
            member.launched,
            member.id,
        )

    return min(members, key=order)
