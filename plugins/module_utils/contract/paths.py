# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Where files are on a node, and on the shared file system."""

from __future__ import annotations

PROGRAM = "/usr/local/bin/deeplearning"
"""The command that playbooks and units call."""
LIBRARY = "/opt/deeplearning/lib/deeplearning"
"""The Python package that it runs."""

CLUSTER = "/etc/deeplearning/cluster.json"
"""Which cluster the node belongs to. The role that installs the program writes it."""

STATE = "/var/lib/deeplearning"
APPLIED = f"{STATE}/members.json"
"""The member list that this node uses: a copy of the published one, written when it has been verified."""
REPORTS = f"{STATE}/reports.json"
"""The master's cache of all members' reports: a tick reads only those that have changed."""

MASTER_ADDRESS = f"{STATE}/master-address"
"""On workers: the allocation id of the address that they give to a new master, which gets none at its launch."""

RUNTIME = "/run/deeplearning"
"""What is lost at a reboot."""
CONFIGURING = f"{RUNTIME}/configuring"
"""Exists while the machine configures itself, and after it has failed to. Until then the timer reports nothing."""
CHECK_TIMES = f"{RUNTIME}/check-times.json"
"""On the master: when it checks the members again, and what it saw last."""
STOPPED_RUNS = f"{RUNTIME}/stopped-runs"
"""On the master: the runs that were stopped because the cluster's machines are about to end."""
LOGIN_MESSAGE = "/run/motd.d/deeplearning"
"""On the master: what pam_motd prints to people who log in, about the end of the cluster."""
HELD = f"{RUNTIME}/held"
"""Why this node is kept out of runs. It exists until the node boots, or until an operator releases it."""
UNCHANGED = f"{RUNTIME}/unchanged"
"""The state of all files after the last `members apply`."""

NVIDIA_DRIVER = "/proc/driver/nvidia/version"
"""Exists if the machine has NVIDIA GPUs and their driver is loaded."""

ENVIRONMENTS = "/opt/deeplearning/env"
PACKAGES = "/opt/deeplearning/packages"
"""What runs' requirements add to environments."""
TRAINERS = "/opt/deeplearning/trainers"
NODE_DATA = "/opt/deeplearning/data"
"""Data sets on a node's own disk."""
WORKERS = "/opt/deeplearning/workers"
HOSTFILE = "/opt/deeplearning/hostfile"
ADDRESSES = "/opt/deeplearning/addresses"

MONITORING = "/etc/deeplearning/monitoring"
PROMETHEUS = f"{MONITORING}/prometheus.yml"
ALERTS = f"{MONITORING}/alerts.yml"
NODE_TARGETS = f"{MONITORING}/nodes.json"
GPU_TARGETS = f"{MONITORING}/gpus.json"
"""Where Prometheus finds the members. They follow the member list."""
METRICS = "/var/lib/prometheus/node-exporter/deeplearning.prom"
"""What the master's node exporter adds to its own figures. The folder is that of its package."""

MARKER = ".deeplearning.json"
"""A file that is written last, in an environment or a data set, and describes it."""

SHARED = ("data", "runs")
"""Folders of the shared file system for the users of all clusters: root's, and sticky, like /tmp."""


def dataset(efs_mount: str, data: str) -> str:
    """Return a folder on the nodes that is named by its path, or by its name among the data sets."""
    return data if data.startswith("/") else f"{efs_mount}/data/{data}"


def is_in_environment(python: str) -> bool:
    """Return whether a Python is that of an environment of this collection, and not the user's own."""
    return python.startswith(f"{ENVIRONMENTS}/")


def runs(efs_mount: str, cluster: str) -> str:
    return f"{efs_mount}/runs/{cluster}"


def wheels(efs_mount: str) -> str:
    """Return the folder of the wheels that one node builds for all."""
    return f"{efs_mount}/.deeplearning/wheels"


def published(efs_mount: str, cluster: str) -> str:
    return f"{efs_mount}/.deeplearning/{cluster}/members.json"


def check_requests(efs_mount: str, cluster: str) -> str:
    """Return the folder in which nodes ask the master to check the members at once."""
    return f"{efs_mount}/.deeplearning/{cluster}/check"


def health(efs_mount: str, cluster: str) -> str:
    """Return the folder that nodes write to while a health check runs."""
    return f"{efs_mount}/.deeplearning/{cluster}/health"


def load(efs_mount: str, cluster: str) -> str:
    """Return the folder in which each node writes how busy it is: <instance id>.json."""
    return f"{efs_mount}/.deeplearning/{cluster}/load"
