"""Where the next instance goes, and which one goes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from localcloud.autoscaling.records import Member, Place, Spec

POLICIES = (
    "AllocationStrategy",
    "ClosestToNextInstanceHour",
    "Default",
    "NewestInstance",
    "OldestInstance",
    "OldestLaunchConfiguration",
    "OldestLaunchTemplate",
)

Key = Callable[[Member], tuple[float, ...]]


def spread(places: Sequence[Place], taken: Iterable[Place], failed: Collection[Place], count: int) -> list[Place]:
    """Places for so many more: evenly over the zones, those that have just failed last."""
    places_taken = Counter(taken)
    zones_taken = Counter(place.zone for place in places_taken.elements())
    chosen: list[Place] = []
    for _ in range(count):
        best = min(places, key=lambda place: (place in failed, zones_taken[place.zone], places_taken[place]))
        places_taken[best] += 1
        zones_taken[best.zone] += 1
        chosen.append(best)
    return chosen


def lopsided(places: Sequence[Place], taken: Iterable[Place]) -> Place | None:
    """Where one more would even out the zones; None where they are even enough."""
    zones = {place.zone: 0 for place in places}
    for place in taken:
        if place.zone in zones:
            zones[place.zone] += 1
    if not zones or max(zones.values()) - min(zones.values()) < 2:
        return None
    return next(place for place in places if zones[place.zone] == min(zones.values()))


def first_to_go(
    members: Sequence[Member], policies: Sequence[str], current: Spec | None, now: float, count: int
) -> list[Member]:
    """Which are ended when the group shrinks: the unhealthy, then by zone balance, then by the policies in turn."""
    left = list(members)
    chosen: list[Member] = []
    for _ in range(min(count, len(left))):
        chosen.append(_next_to_go(left, policies, current, now))
        left.remove(chosen[-1])
    return chosen


def _next_to_go(members: Sequence[Member], policies: Sequence[str], current: Spec | None, now: float) -> Member:
    unhealthy = [member for member in members if member.health == "Unhealthy"]
    if unhealthy:
        return unhealthy[0]
    zones = Counter(member.place.zone for member in members)
    fullest = max(zones.values())
    left = [member for member in members if zones[member.place.zone] == fullest]
    for policy in policies:
        key = _key(policy, current, now)
        if key is not None:
            least = min(key(member) for member in left)
            left = [member for member in left if key(member) == least]
    return min(left, key=lambda member: (member.launched, member.id))


def _key(policy: str, current: Spec | None, now: float) -> Key | None:
    def launch_source(member: Member) -> tuple[float, ...]:
        """A configuration's go first, then those of another template, then the older versions'."""
        if member.template is None:
            return (0.0, member.launched)
        same = current is not None and member.template.id == current.id
        return (1.0, float(same), float(member.template.version))

    keys: dict[str, Key] = {
        "Default": launch_source,
        "OldestLaunchTemplate": launch_source,
        "OldestLaunchConfiguration": launch_source,
        "OldestInstance": lambda member: (member.launched,),
        "NewestInstance": lambda member: (-member.launched,),
        "ClosestToNextInstanceHour": lambda member: (3600 - (now - member.launched) % 3600,),
    }
    return keys.get(policy)
