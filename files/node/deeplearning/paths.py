"""Where things are on a node."""

from __future__ import annotations

CLUSTER = "/etc/deeplearning/cluster.json"
"""Written by the role cluster_env: which cluster this is."""

STATE = "/var/lib/deeplearning"
APPLIED = f"{STATE}/members.json"
"""The member list that this node goes by: a copy of the published one, put here once it has been checked."""
REPORTS = f"{STATE}/reports.json"
"""Of all members, as the master read them last: a tick reads only those that have changed."""

RUNTIME = "/run/deeplearning"
"""What is forgotten at a reboot."""
STANDING = f"{RUNTIME}/standing"
"""What the last `members apply` left behind, file by file."""

ENVIRONMENTS = "/opt/deeplearning/env"
TRAINERS = "/opt/deeplearning/trainers"
WORKERS = "/opt/deeplearning/workers"
HOSTFILE = "/opt/deeplearning/hostfile"

SHARED = ("data", "runs")
"""On the shared file system, for the users of all clusters: they belong to root and are sticky, like /tmp."""


def published(efs_mount: str, cluster: str) -> str:
    return f"{efs_mount}/.deeplearning/{cluster}/members.json"
