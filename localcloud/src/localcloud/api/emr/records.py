"""What the local cloud keeps of EMR's clusters."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from localcloud.api import paging
from localcloud.core.cloud import Cloud, arn
from localcloud.core.errors import AwsError
from localcloud.core.words import sentence

MASTER, CORE = "MASTER", "CORE"
ENDED = ("TERMINATED", "TERMINATED_WITH_ERRORS")
READY = ("RUNNING", "WAITING")


@dataclass(frozen=True)
class Reason:
    """Why something is in its state."""

    code: str = ""
    message: str = ""


@dataclass(frozen=True)
class BootstrapAction:
    name: str
    path: str
    args: tuple[str, ...]


@dataclass
class Node:
    """An instance of a cluster."""

    id: str
    instance: str
    """EC2's id"""
    role: str
    shown: Mapping[str, Any]
    """its type, names and addresses as EC2 had them at the launch"""
    created: float
    state: str = "PROVISIONING"
    """PROVISIONING, BOOTSTRAPPING, RUNNING, TERMINATED"""
    reason: Reason = Reason()
    started: bool = False
    """its machine was asked to run the bootstrap actions"""
    ready: float | None = None
    ended: float | None = None

    @property
    def alive(self) -> bool:
        return self.state != "TERMINATED"


@dataclass
class Group:
    id: str
    name: str
    role: str
    type: str
    requested: int
    created: float
    lost: int = 0
    """nodes that have died and are not replaced"""
    arrested: Reason | None = None
    """why no more nodes are launched"""
    retry_at: float = 0.0
    nodes: list[Node] = field(default_factory=list)

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.nodes if node.alive]


@dataclass
class Cluster:
    id: str
    region: str
    name: str
    created: float
    request: Mapping[str, Any]
    """the parameters of RunJobFlow"""
    instances: Mapping[str, Any]
    """its Instances, with the security groups"""
    vpc: str
    zone: str
    groups: list[Group]
    actions: tuple[BootstrapAction, ...]
    tags: dict[str, str]
    protected: bool
    replaces: bool
    """UnhealthyNodeReplacement"""
    keep_alive: bool
    idle_timeout: int | None = None
    idle_since: float = 0.0
    state: str = "STARTING"
    reason: Reason = Reason()
    ends_as: str = "TERMINATED"
    ready: float | None = None
    ended: float | None = None

    @property
    def arn(self) -> str:
        return arn("elasticmapreduce", self.region, f"cluster/{self.id}")

    @property
    def nodes(self) -> list[Node]:
        return [node for group in self.groups for node in group.nodes]

    @property
    def master(self) -> Node | None:
        """Return the primary node, also after its end."""
        return next((node for node in self.nodes if node.role == MASTER), None)

    @property
    def ending(self) -> bool:
        return self.state in ("TERMINATING", *ENDED)


@dataclass
class Records:
    clusters: dict[str, Cluster] = field(default_factory=dict)
    """of all regions, the ended ones included; the oldest first"""
    watching: bool = False


def new_id(prefix: str) -> str:
    return f"{prefix}-" + "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(13))


def records_of(cloud: Cloud) -> Records:
    records: Records = cloud.records("emr", Records)
    return records


def clusters_in(cloud: Cloud, region: str) -> Iterator[Cluster]:
    return (cluster for cluster in records_of(cloud).clusters.values() if cluster.region == region)


def invalid(message: str) -> AwsError:
    return AwsError("ValidationException", message)


def invalid_request(message: str) -> AwsError:
    return AwsError("InvalidRequestException", message)


def reason(code: str, part: str = "", **values: object) -> Reason:
    """Return EMR's reason for a state, in its own words."""
    return Reason(code, sentence("emr:DescribeCluster", code, part, **values))


def find(cloud: Cloud, region: str, cluster_id: Any, refused: Callable[[str], AwsError] = invalid_request) -> Cluster:
    cluster = records_of(cloud).clusters.get(str(cluster_id))
    if cluster is None or cluster.region != region:
        raise refused(sentence("emr:DescribeCluster", "InvalidRequestException", id=cluster_id))
    return cluster


def tags_of(cloud: Cloud, cluster_id: str) -> Mapping[str, str]:
    """Return the tags of a cluster; nothing if it does not exist."""
    cluster = records_of(cloud).clusters.get(cluster_id)
    return cluster.tags if cluster else {}


def page(items: list[Any], params: Mapping[str, Any], size: int) -> tuple[list[Any], dict[str, str]]:
    """Return the items after the marker, and the next marker if there are more."""
    shown, following = paging.page(items, params.get("Marker"), size, invalid_request("The marker is not valid."))
    return list(shown), {"Marker": following} if following else {}
