# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Who is a member of a cluster, and in which place: from what EC2 says of instances. Pure functions.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils._names import (
    CLUSTER_TAG,
    GPUS_TAG,
    GROUP_TAG,
    MASTER,
    RANK_TAG,
    USER_TAG,
    WORKER,
    Names,
    host_name,
    tag_filter,
    tags_of,
)

LIVING = ("pending", "running")
"""The states of machines that are there or coming."""

_RANK = re.compile(r"[1-9][0-9]{0,4}\Z")
_GPUS = re.compile(r"[0-9]{1,3}\Z")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")
_LAST = 1 << 20

Record = Mapping[str, Any]


@dataclass
class Place:
    """A member and where it stands; rank 0: none yet."""

    record: Record
    role: str
    rank: int = 0

    @property
    def name(self) -> str:
        """What it is called: by its instance id until it has a rank."""
        return host_name(self.rank) if self.rank else str(self.record["id"])


@dataclass
class Cluster:
    """The members of one cluster, sorted into places."""

    name: str
    places: list[Place] = field(default_factory=list)

    @property
    def master(self) -> Record | None:
        return next((place.record for place in self.places if place.rank == 1), None)


def filters(clusters: Sequence[str], states: Sequence[str] = LIVING) -> list[dict[str, Any]]:
    """What the server itself is to leave out."""
    groups = [group for cluster in clusters for group in Names(cluster).groups.values()]
    return [
        tag_filter(CLUSTER_TAG, *clusters),
        tag_filter(GROUP_TAG, *groups),
        {"Name": "instance-state-name", "Values": list(states)},
    ]


def record_of(instance: Mapping[str, Any]) -> dict[str, Any]:
    """The handful of fields of an instance that are wanted, fit for JSON."""
    tags = tags_of(instance.get("Tags"))
    user, gpus = tags.get(USER_TAG, ""), tags.get(GPUS_TAG, "")
    return {
        "id": instance["InstanceId"],
        "cluster": tags.get(CLUSTER_TAG, ""),
        "group": tags.get(GROUP_TAG, ""),
        "rank": tags.get(RANK_TAG, ""),
        # What tags say ends in commands: nothing but the name of a user is one.
        "user": user if _USER.match(user) else "",
        "gpus": int(gpus) if _GPUS.match(gpus) else None,
        "private_address": instance.get("PrivateIpAddress", ""),
        "private_name": instance.get("PrivateDnsName", ""),
        "public_address": instance.get("PublicIpAddress", ""),
        "type": instance.get("InstanceType", ""),
        "zone": instance.get("Placement", {}).get("AvailabilityZone", ""),
        "state": instance.get("State", {}).get("Name", ""),
        "image": instance.get("ImageId", ""),
        "spot": instance.get("InstanceLifecycle") == "spot",
        "launched": str(instance.get("LaunchTime", "")),
    }


def sort(records: Iterable[Record], clusters: Sequence[str]) -> list[Cluster]:
    """Members by cluster and place. What no group of the cluster has launched is no member, whatever its tags say.

    The master's place follows from its group; of two (an old one that still ends) the newer has it. A worker's place is
    its tag; whoever claims one that is not a worker's, or is taken by an older machine, has none yet.
    """
    found = {name: Cluster(name) for name in clusters}
    roles = {(name, group): role for name in clusters for role, group in Names(name).groups.items()}
    for record in records:
        role = roles.get((record["cluster"], record["group"]))
        if role:
            found[record["cluster"]].places.append(Place(record, role))
    for cluster in found.values():
        cluster.places.sort(key=lambda place: (place.record["launched"], place.record["id"]))
        masters = [place for place in cluster.places if place.role == MASTER]
        for place in masters[-1:]:
            place.rank = 1
        taken = {1}
        for place in cluster.places:
            rank = int(place.record["rank"]) if _RANK.match(place.record["rank"]) else 0
            if place.role == WORKER and rank and rank not in taken:
                place.rank = rank
                taken.add(rank)
        cluster.places.sort(key=lambda place: (place.rank or _LAST, place.record["id"]))
    return list(found.values())
