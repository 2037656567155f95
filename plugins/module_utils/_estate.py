# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""An estate: all that a cluster has in one account and region, as far as it bears the cluster's tag or is known to be
its own. Here is what follows from it; `_estate_reading` finds it.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LIVE = "live"
GOING = "going"
"""it is being deleted and needs nobody for that"""
DEAD = "dead"
"""a record that AWS itself removes after a while"""

WORDS: Mapping[str, tuple[str, str]] = {
    "auto_scaling_group": ("Auto Scaling group", "Auto Scaling groups"),
    "instance": ("instance", "instances"),
    "launch_template": ("launch template", "launch templates"),
    "placement_group": ("placement group", "placement groups"),
    "key_pair": ("key pair", "key pairs"),
    "mount_target": ("mount target", "mount targets"),
    "mount_target_access": ("security group on a mount target of others", "security groups on mount targets of others"),
    "file_system": ("file system", "file systems"),
    "nat_gateway": ("NAT gateway", "NAT gateways"),
    "address": ("Elastic IP address", "Elastic IP addresses"),
    "endpoint": ("VPC endpoint", "VPC endpoints"),
    "network_interface": ("network interface", "network interfaces"),
    "volume": ("volume", "volumes"),
    "subnet": ("subnet", "subnets"),
    "route_table": ("route table", "route tables"),
    "internet_gateway": ("internet gateway", "internet gateways"),
    "security_group": ("security group", "security groups"),
    "vpc": ("VPC", "VPCs"),
    "instance_profile": ("instance profile", "instance profiles"),
    "role": ("IAM role", "IAM roles"),
    "bucket": ("bucket", "buckets"),
}
"""What people call the kinds of things that a cluster has, in the order in which they are told of."""

_COSTS: Mapping[str, str] = {
    "instance": "by the second",
    "nat_gateway": "by the hour",
    "address": "by the hour",
    "volume": "by the gigabyte",
    "file_system": "by the gigabyte",
    "bucket": "by the gigabyte",
}


@dataclass(frozen=True)
class Thing:
    kind: str
    id: str
    name: str = ""
    state: str = ""
    phase: str = LIVE
    ours: bool = True
    """the cluster made it; a thing that only bears its tag, or hangs on one of its things, is somebody else's"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """what else is needed to see to it"""

    @property
    def costs(self) -> str:
        """How it is paid for; nothing for what is free."""
        if self.phase == DEAD or self.state in ("stopped", "shutting-down"):
            return ""
        return _COSTS.get(self.kind, "")

    def in_words(self) -> str:
        what = WORDS.get(self.kind, (self.kind.replace("_", " "), ""))[0]
        name = f" ({self.name})" if self.name and self.name != self.id else ""
        return f"{what} {self.id}{name}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "ours": self.ours,
            "costs": self.costs,
        }


@dataclass(frozen=True)
class Estate:
    cluster: str
    account: str
    region: str
    things: Sequence[Thing] = ()

    def of(self, kind: str) -> list[Thing]:
        """Those of a kind that are not dead."""
        return [thing for thing in self.things if thing.kind == kind and thing.phase != DEAD]

    def named(self, kind: str, what: str) -> Thing | None:
        """The one that is called so, after the cluster."""
        return next((thing for thing in self.of(kind) if thing.name == f"{self.cluster}-{what}"), None)

    @property
    def living(self) -> list[Thing]:
        return [thing for thing in self.things if thing.phase != DEAD]


def kept(estate: Estate, keep: bool) -> list[Thing]:
    """What may stay when a cluster goes: its file system, if that is to be kept."""
    return [thing for thing in estate.of("file_system") if keep and thing.ours]


def remains(estate: Estate, keep: bool) -> list[Thing]:
    """What must not be there when a cluster has gone."""
    may_stay = kept(estate, keep)
    return [thing for thing in estate.living if thing not in may_stay]


def counted(things: Iterable[Thing]) -> list[str]:
    """Such as `3 instances`, `1 NAT gateway`."""
    numbers: dict[str, int] = {}
    for thing in things:
        numbers[thing.kind] = numbers.get(thing.kind, 0) + 1
    order = [*WORDS, *sorted(set(numbers) - set(WORDS))]
    found = []
    for kind in order:
        if kind in numbers:
            one, many = WORDS.get(kind, (kind.replace("_", " "),) * 2)
            found.append(f"{numbers[kind]} {one if numbers[kind] == 1 else many}")
    return found


# The state of a cluster


@dataclass(frozen=True)
class Health:
    state: str
    """absent, creating, ready, degraded, failed"""
    asked: int
    got: int
    why: Sequence[str] = ()


def health_of(estate: Estate, explained: Mapping[str, Sequence[str]] | None = None) -> Health:
    """In one word, from what exists. `explained` says for each group why machines are missing."""
    groups = [thing for thing in estate.of("auto_scaling_group") if thing.ours]
    asked = sum(int(group.facts["most"]) for group in groups)
    got = sum(len(group.facts["in_service"]) for group in groups)
    if not [thing for thing in remains(estate, keep=True) if thing.ours]:
        return Health("absent", 0, 0)
    reasons = [reason for group in groups for reason in (explained or {}).get(group.name, ())]
    if any(group.phase == GOING for group in groups):
        return Health("failed", asked, got, ["its machines are being removed"])
    missing = [
        what for what in ("master", "workers") if not any(group.name == f"{estate.cluster}-{what}" for group in groups)
    ]
    if missing:
        return Health("creating", asked, got, [f"there is no group of {' and no group of '.join(missing)} yet"])
    return _health_of_groups(estate, groups, asked, got, reasons)


def _health_of_groups(estate: Estate, groups: Sequence[Thing], asked: int, got: int, reasons: Sequence[str]) -> Health:
    coming = sum(int(group.facts["coming"]) for group in groups)
    wanted = sum(int(group.facts["desired"]) for group in groups)
    slow = [
        f"{WORDS[thing.kind][0]} {thing.id} is {thing.state}"
        for thing in (*estate.of("nat_gateway"), *estate.of("mount_target"))
        if thing.state in ("pending", "creating")
    ]
    master = next(group for group in groups if group.name == f"{estate.cluster}-master")
    if coming or (got < wanted and not reasons):
        return Health("creating", asked, got, [f"{wanted - got} of {wanted} machines are not in service yet", *slow])
    if not master.facts["in_service"]:
        return Health("failed", asked, got, reasons or ["the master is not there"])
    if slow:
        return Health("creating", asked, got, slow)
    if got < asked:
        return Health("degraded", asked, got, reasons or [f"{asked - got} of {asked} machines are missing"])
    return Health("ready", asked, got)
