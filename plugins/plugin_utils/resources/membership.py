# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Find out which instances are nodes of a cluster, and their ranks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils.aws.client import Aws
from ...module_utils.contract.hosts import inventory_name
from ...module_utils.contract.names import (
    CLUSTER_TAG,
    CORE,
    EMR_NODE,
    GPUS_TAG,
    GROUP_ROLE_TAG,
    GROUP_TAG,
    JOB_FLOW_TAG,
    MASTER,
    PRIMARY,
    RANK_TAG,
    USER_TAG,
    WORKER,
    Names,
    tag_filter,
    tags_of,
)

LIVING = ("pending", "running")
"""The states of instances that run or will."""

_RANK = re.compile(r"[1-9][0-9]{0,4}\Z")
_GPUS = re.compile(r"[0-9]{1,3}\Z")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")
_LAST = 1 << 20
_EMR_ROLES = {PRIMARY: MASTER, CORE: WORKER}
"""Our roles by EMR's of instance groups."""

InstanceRecord = Mapping[str, Any]
"""What `record_of` returns."""


@dataclass
class ClusterNode:
    """A machine of a cluster. Rank 0: it has none yet."""

    record: InstanceRecord
    role: str
    rank: int = 0

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def identity(self) -> str:
        """The role in the name of its IAM role: all nodes of EMR have one."""
        return EMR_NODE if self.record["job_flow"] else self.role

    @property
    def name(self) -> str:
        """Its inventory name: the instance id until it has a rank."""
        return inventory_name(self.rank) if self.rank else self.id


@dataclass
class Cluster:
    name: str
    nodes: list[ClusterNode] = field(default_factory=list)

    @property
    def job_flow(self) -> str:
        """The id of the EMR cluster, if it is one."""
        return str(self.nodes[0].record["job_flow"]) if self.nodes else ""

    @property
    def master(self) -> InstanceRecord | None:
        return next((node.record for node in self.nodes if node.rank == 1), None)


def instance_filters(clusters: Sequence[str], states: Sequence[str] = LIVING) -> list[dict[str, Any]]:
    """Return filters of DescribeInstances for the nodes of these clusters. `clusters_from` decides which are nodes."""
    return [
        tag_filter(CLUSTER_TAG, *clusters),
        {"Name": "instance-state-name", "Values": list(states)},
    ]


def read_records(aws: Aws, filters: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of the instances that the filters of DescribeInstances select, with a call for each 1,000."""
    return [record_of(instance) for instance in aws.instances(Filters=filters, MaxResults=1000)]


def record_of(instance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an instance that this collection uses, fit for JSON."""
    tags = tags_of(instance.get("Tags"))
    gpus, user = tags.get(GPUS_TAG, ""), tags.get(USER_TAG, "")
    return {
        "id": instance["InstanceId"],
        "cluster": tags.get(CLUSTER_TAG, ""),
        "group": tags.get(GROUP_TAG, ""),
        "job_flow": tags.get(JOB_FLOW_TAG, ""),
        "group_role": tags.get(GROUP_ROLE_TAG, ""),
        "rank": tags.get(RANK_TAG, ""),
        # It ends up in commands, so only the name of a user is accepted.
        "user": user if _USER.match(user) else "",
        "gpus": int(gpus) if _GPUS.match(gpus) else None,
        "private_address": instance.get("PrivateIpAddress") or "",
        "private_name": instance.get("PrivateDnsName") or "",
        "public_address": instance.get("PublicIpAddress") or "",
        "type": instance.get("InstanceType") or "",
        "zone": instance.get("Placement", {}).get("AvailabilityZone", ""),
        "state": instance.get("State", {}).get("Name", ""),
        "image": instance.get("ImageId", ""),
        "spot": instance.get("InstanceLifecycle") == "spot",
        "launched": str(instance.get("LaunchTime", "")),
    }


def clusters_from(records: Iterable[InstanceRecord], names: Sequence[str]) -> list[Cluster]:
    """Return each cluster with its nodes, sorted by rank.

    Only instances that its Auto Scaling groups have launched are nodes, or without any those of the newest EMR cluster.
    The newest instance of the master's group has rank 1; an older one is being replaced. The rank of a worker is its
    tag. It has none yet if the tag is not the rank of a worker, or if an older machine has the same.
    """
    records = list(records)
    clusters = {name: Cluster(name) for name in names}
    roles = {(name, group): role for name in names for role, group in Names(name).groups.items()}
    for record in records:
        role = roles.get((record["cluster"], record["group"]))
        if role:
            clusters[record["cluster"]].nodes.append(ClusterNode(record, role))
    for cluster in clusters.values():
        if not cluster.nodes:
            cluster.nodes = _nodes_of_emr([record for record in records if record["cluster"] == cluster.name])
        _rank(cluster.nodes)
        cluster.nodes.sort(key=lambda node: (node.rank or _LAST, node.id))
    return list(clusters.values())


def _nodes_of_emr(records: Iterable[InstanceRecord]) -> list[ClusterNode]:
    """Return the nodes of the newest EMR cluster. Only AWS can set the tags by which they are found."""
    launched = [record for record in records if record["job_flow"] and record["group_role"] in _EMR_ROLES]
    primaries = [record for record in launched if _EMR_ROLES[record["group_role"]] == MASTER]
    newest = max(primaries, key=lambda record: (record["launched"], record["id"]), default=None)
    return [
        ClusterNode(record, _EMR_ROLES[record["group_role"]])
        for record in launched
        if newest and record["job_flow"] == newest["job_flow"]
    ]


def _rank(nodes: Sequence[ClusterNode]) -> None:
    by_age = sorted(nodes, key=lambda node: (node.record["launched"], node.id))
    for node in [node for node in by_age if node.role == MASTER][-1:]:
        node.rank = 1
    taken = {1}
    for node in by_age:
        rank = int(node.record["rank"]) if _RANK.match(node.record["rank"]) else 0
        if node.role == WORKER and rank and rank not in taken:
            node.rank = rank
            taken.add(rank)
