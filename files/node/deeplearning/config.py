"""Which cluster this node belongs to: /etc/deeplearning/cluster.json."""

from __future__ import annotations

import json
from dataclasses import dataclass

from deeplearning.contract import cluster_config, paths
from deeplearning.contract.errors import UserError


@dataclass(frozen=True)
class Config:
    cluster: str
    cluster_id: str
    """A new one for each cluster, even if it has the name of an earlier one."""
    region: str
    bucket: str
    vpc_cidrs: tuple[str, ...]
    user: str
    role: str
    """master or worker"""
    master_role_id: str
    """The unique id of the master's IAM role, with which its user id begins."""
    master_trains: bool
    efs_mount: str
    efs_name: str
    default_framework: str | None
    gpus: int | None
    """How many GPUs machines of this type have; None if that is unknown."""
    bundle: str
    """The SHA-256 of the bundle that configured the node; empty if none did."""
    job_flow: str = ""
    """The id of the EMR cluster; empty for machines of Auto Scaling groups."""
    emr_idle_seconds: int = 0
    """Idle seconds after which EMR terminates the cluster; 0 for never."""
    idle_seconds: int = 0
    """Idle seconds after which Auto Scaling terminates the machines; 0 for never."""
    monitoring: bool = False
    """Whether Prometheus runs on the master."""


def read_config() -> Config:
    try:
        with open(paths.CLUSTER, encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{paths.CLUSTER} cannot be read ({error}): configure this node. Example: ansible-playbook "
            "deeplearning.aws.configure"
        ) from None
    return Config(**cluster_config.validate(record, paths.CLUSTER))
