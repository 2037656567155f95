# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The resources of a cluster in one account and region, and the cluster's health. `resource_reader` finds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils.contract.names import EMR_SERVICE, Names
from ...module_utils.messages import place
from .kinds import IMAGES, KINDS, kind_of

LIVE = "live"
GOING = "going"
"""It is being deleted."""
DEAD = "dead"
"""A record that AWS removes after a while."""


@dataclass(frozen=True)
class Resource:
    kind: str
    id: str
    name: str = ""
    state: str = ""
    phase: str = LIVE
    ours: bool = True
    """Whether the cluster created it. Others may put its tag on resources, or attach resources to its own."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further attributes that messages and the teardown need."""

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.id

    @property
    def costs(self) -> str:
        """How it is billed. Empty: it is free."""
        if self.phase == DEAD or self.state in ("stopped", "shutting-down"):
            return ""
        return kind_of(self.kind).costs

    def describe(self) -> str:
        name = f" ({self.name})" if self.name and self.name != self.id else ""
        return f"{kind_of(self.kind).one} {self.id}{name}"

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
class ClusterResources:
    cluster: str
    account: str
    region: str
    resources: Sequence[Resource] = ()

    @property
    def place(self) -> str:
        """Return the region and the account, as messages name them."""
        return place(self.region, self.account)

    def of_kind(self, kind: str) -> list[Resource]:
        """Return the resources of a kind that are not dead."""
        return [resource for resource in self.resources if resource.kind == kind and resource.phase != DEAD]

    @property
    def groups(self) -> list[Resource]:
        """Its own Auto Scaling groups."""
        return [group for group in self.of_kind("auto_scaling_group") if group.ours]

    def find_by_name(self, kind: str, what: str) -> Resource | None:
        """Return the resource named `<cluster>-<what>`, if any."""
        return next((resource for resource in self.of_kind(kind) if resource.name == f"{self.cluster}-{what}"), None)

    @property
    def current(self) -> list[Resource]:
        return [resource for resource in self.resources if resource.phase != DEAD]


def retained(resources: ClusterResources, keep: bool) -> list[Resource]:
    """Return what stays when a cluster is removed: its images, and its file system, if that is to be kept."""
    kinds = IMAGES | {"file_system"} if keep else IMAGES
    return [resource for resource in resources.current if resource.kind in kinds and resource.ours]


def leftovers(resources: ClusterResources, keep: bool) -> list[Resource]:
    """Return what must not exist after a teardown."""
    may_stay = retained(resources, keep)
    return [resource for resource in resources.current if resource not in may_stay]


def is_of_emr(resources: ClusterResources) -> bool:
    """Return whether the machines are EMR's, or were: the role of EMR's service outlives them."""
    service = Names(resources.cluster, resources.account, resources.region).identity(EMR_SERVICE)
    return bool(resources.of_kind("emr_cluster")) or any(role.id == service for role in resources.of_kind("role"))


def count_by_kind(resources: Iterable[Resource]) -> list[str]:
    """Return texts such as `3 instances` and `1 NAT gateway`."""
    numbers = Counter(resource.kind for resource in resources)
    order = [*KINDS, *sorted(set(numbers) - set(KINDS))]
    return [kind_of(kind).in_words(numbers[kind]) for kind in order if kind in numbers]


# The state of a cluster


@dataclass(frozen=True)
class Health:
    state: str
    """One of: absent, creating, ready, degraded, failed."""
    most: int
    in_service: int
    why: Sequence[str] = ()


@dataclass(frozen=True)
class Shortage:
    """Why a group has fewer machines than it may have."""

    reasons: Sequence[str] = ()
    failed: int = 0
    """Machines that keep their places after they failed to configure themselves: they do not come into service."""
    configuring: Sequence[str] = ()
    """What is known of machines that configure themselves, or have failed to."""


def health_of(resources: ClusterResources, shortages: Mapping[str, Shortage] | None = None) -> Health:
    """Return the health. `shortages`: by the names of groups."""
    clusters, groups = resources.of_kind("emr_cluster")[:1], resources.groups
    sources = clusters or groups
    most = sum(int(source.facts["most"]) for source in sources)
    in_service = sum(len(source.facts["in_service"]) for source in sources)
    if clusters:
        state, why = _state_of_emr(clusters[0], most, in_service)
    elif not [resource for resource in leftovers(resources, keep=True) if resource.ours]:
        state, why = "absent", ()
    else:
        short = [shortages[group.name] for group in groups if group.name in shortages] if shortages else []
        state, why = _state_of_groups(resources, most, in_service, short)
    return Health(state, most, in_service, why)


_ENDED = (
    "its groups are set to 0 machines, as cluster_ttl_hours and cluster_idle_minutes do; its file system stays, and "
    "site.yml brings the machines back"
)
_NO_EMR = "there is no EMR cluster: it is not created yet, or has ended, as it does after cluster_emr_idle_minutes"


def _state_of_groups(
    resources: ClusterResources, most: int, in_service: int, short: Sequence[Shortage]
) -> tuple[str, Sequence[str]]:
    groups = {group.name.removeprefix(f"{resources.cluster}-"): group for group in resources.groups}
    if any(group.phase == GOING for group in groups.values()):
        return "failed", ["its machines are being removed"]
    if is_of_emr(resources):
        return "failed", [_NO_EMR]
    missing = [what for what in ("master", "workers") if what not in groups]
    if missing:
        return "creating", [f"there is no group of {' and no group of '.join(missing)} yet"]
    reasons = [reason for shortage in short for reason in shortage.reasons]
    coming = sum(int(group.facts["coming"]) for group in groups.values()) - sum(shortage.failed for shortage in short)
    desired = sum(int(group.facts["desired"]) for group in groups.values())
    slow = [
        f"{KINDS[resource.kind].one} {resource.id} is {resource.state}"
        for resource in (*resources.of_kind("nat_gateway"), *resources.of_kind("mount_target"))
        if resource.state in ("pending", "creating")
    ]
    if not groups["master"].facts["most"]:
        return "failed", [_ENDED]
    if coming or (in_service < desired and not reasons):
        pending = f"{desired - in_service} of {desired} machines are not in service yet"
        return "creating", [pending, *slow, *(line for shortage in short for line in shortage.configuring)]
    if not groups["master"].facts["in_service"]:
        return "failed", reasons or ["the master is not there"]
    if slow:
        return "creating", slow
    if in_service < most:
        return "degraded", reasons or [f"{most - in_service} of {most} machines are missing"]
    return "ready", ()


def _state_of_emr(cluster: Resource, most: int, in_service: int) -> tuple[str, Sequence[str]]:
    if cluster.phase == GOING:
        return "failed", [cluster.facts["reason"] or "EMR is terminating it"]
    if cluster.state in ("starting", "bootstrapping") or in_service < most:
        why = f"the EMR cluster is {cluster.state}, and {most - in_service} of {most} machines are not in service yet"
        return "creating", [why]
    return "ready", ()
