# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""From what AWS says of instances to hosts, groups and variables: pure functions.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from ansible_collections.deeplearning.aws.plugins.module_utils._names import (
    CLUSTER_TAG,
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

PREFIX = "deeplearning_"
GROUPS = (MASTER, "workers", "cluster", "joining")
"""There always, with or without members."""

ENVIRONMENT: Mapping[str, Sequence[str]] = {
    "cluster": ("DEEPLEARNING_CLUSTER",),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "profile": ("AWS_PROFILE",),
    "role_arn": ("DEEPLEARNING_ROLE_ARN",),
}
"""Options that the environment can set, over the file."""
EXTRA_VARS: Mapping[str, str] = {
    "cluster": "cluster_name",
    "region": "cluster_region",
    "profile": "cluster_profile",
    "role_arn": "cluster_role_arn",
}
"""Options that extra vars can set, over both; and what they are handed on to the playbooks as."""

_RANK = re.compile(r"[1-9][0-9]{0,4}\Z")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")
_NOT_IN_GROUPS = re.compile(r"[^A-Za-z0-9_]")

Record = Mapping[str, Any]


@dataclass
class Host:
    name: str
    groups: list[str]
    variables: dict[str, Any]


@dataclass
class Place:
    """A member and where it stands; rank 0: none yet."""

    record: Record
    role: str
    rank: int = 0


@dataclass
class Cluster:
    """The members of one cluster, sorted into places."""

    name: str
    places: list[Place] = field(default_factory=list)

    @property
    def master(self) -> Record | None:
        return next((place.record for place in self.places if place.rank == 1), None)


def chosen(options: Mapping[str, Any], extra_vars: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The options that say which cluster: extra vars win over the environment, and that over the file."""
    settled = {}
    for option, variable in EXTRA_VARS.items():
        said = [extra_vars.get(variable), *(environment.get(name) for name in ENVIRONMENT[option]), options.get(option)]
        settled[option] = next((value for value in said if value not in (None, "", [])), "")
    settled["clusters"] = clusters_of(settled["cluster"])
    return settled


def clusters_of(value: Any) -> list[str]:
    """One name, or a list of them, also with commas between."""
    names = value if isinstance(value, list | tuple) else str(value).split(",")
    return list(dict.fromkeys(str(name).strip() for name in names if str(name).strip()))


def filters(clusters: Sequence[str], states: Sequence[str], more: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the server itself is to leave out."""
    groups = [group for cluster in clusters for group in Names(cluster).groups.values()]
    extra = [
        {"Name": name, "Values": [str(item) for item in (value if isinstance(value, list) else [value])]}
        for name, value in more.items()
    ]
    return [
        tag_filter(CLUSTER_TAG, *clusters),
        tag_filter(GROUP_TAG, *groups),
        {"Name": "instance-state-name", "Values": list(states)},
        *extra,
    ]


def record_of(instance: Mapping[str, Any]) -> dict[str, Any]:
    """The handful of fields of an instance that are wanted, fit for JSON."""
    tags = tags_of(instance.get("Tags"))
    return {
        "id": instance["InstanceId"],
        "cluster": tags.get(CLUSTER_TAG, ""),
        "group": tags.get(GROUP_TAG, ""),
        "rank": tags.get(RANK_TAG, ""),
        "user": tags.get(USER_TAG, ""),
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
        cluster.places.sort(key=lambda place: (place.rank or 1 << 20, place.record["id"]))
    return list(found.values())


def hosts(clusters: Sequence[Cluster], jump: bool = True) -> Iterator[Host]:
    """Hosts with their groups and variables. With several clusters the cluster's name is part of each host's."""
    for cluster in clusters:
        master = cluster.master
        args = _jump(master) if jump and master else ""
        for place in cluster.places:
            yield _host(cluster.name, place, len(clusters) > 1, args)


def _host(cluster: str, place: Place, several: bool, args: str) -> Host:
    record = place.record
    name = host_name(place.rank) if place.rank else str(record["id"])
    groups = [*_groups(place), f"zone_{sanitized(record['zone'])}", f"type_{sanitized(record['type'])}"]
    if several:
        groups.append(f"cluster_{sanitized(cluster)}")
        name = f"{cluster}-{name.removeprefix('deeplearning-')}" if place.rank else name
    address = record["public_address"] if place.role == MASTER and record["public_address"] else None
    variables = {
        "ansible_host": address or record["private_address"],
        f"{PREFIX}cluster": cluster,
        f"{PREFIX}rank": place.rank,
        f"{PREFIX}role": place.role,
        f"{PREFIX}instance_id": record["id"],
        f"{PREFIX}private_address": record["private_address"],
        f"{PREFIX}private_name": record["private_name"],
        f"{PREFIX}public_address": record["public_address"],
        f"{PREFIX}type": record["type"],
        f"{PREFIX}zone": record["zone"],
        f"{PREFIX}state": record["state"],
        f"{PREFIX}image": record["image"],
        f"{PREFIX}spot": record["spot"],
    }
    if _USER.match(record["user"]):
        variables["ansible_user"] = record["user"]
    if not address and args:
        variables["ansible_ssh_common_args"] = args
    return Host(name, groups, variables)


def _groups(place: Place) -> list[str]:
    if not place.rank:
        return ["joining"]
    return [MASTER if place.role == MASTER else "workers"]


def _jump(master: Record) -> str:
    """ssh's way through the master, from nothing but an address and a user: what comes from AWS ends in a command."""
    try:
        address = str(ip_address(master["public_address"]))
    except ValueError:
        return ""
    user = f"{master['user']}@" if _USER.match(master["user"]) else ""
    return f"-o ProxyJump={user}{address}"


def sanitized(text: str) -> str:
    return _NOT_IN_GROUPS.sub("_", text)
