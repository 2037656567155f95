# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The form of cluster.json, which tells a node what cluster it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import schema
from .frameworks import FRAMEWORKS

FIELDS = {
    "cluster": schema.name,
    "cluster_id": schema.word,
    "region": schema.word,
    "bucket": schema.word,
    "vpc_cidrs": schema.tuple_of(schema.ipv4_network),
    "user": schema.word,
    "role": schema.one_of("master", "worker"),
    "master_role_id": schema.word,
    "master_trains": schema.boolean,
    "efs_mount": schema.path,
    "efs_name": schema.word,
    "default_framework": schema.optional(schema.one_of(*FRAMEWORKS)),
    "monitoring": schema.boolean,
    "gpus": schema.optional(schema.gpus),
    "bundle": schema.or_empty(schema.sha256),
    "job_flow": schema.or_empty(schema.word),
    "emr_idle_seconds": schema.uint32,
    "idle_seconds": schema.uint32,
}


def shared(settings: Mapping[str, Any], facts: Mapping[str, Any], emr: bool) -> dict[str, Any]:
    """Return the fields that all nodes share: by the settings of the cluster, and by what it has in AWS.

    `facts` has `file_system_id` and the `domain` of AWS's services as well, and `job_flow` if there is one.
    """
    return {
        **{name: facts[name] for name in ("cluster_id", "bucket", "vpc_cidrs", "user", "master_role_id")},
        **{name: settings[name] for name in ("region", "master_trains", "efs_mount", "monitoring")},
        "cluster": settings["name"],
        "efs_name": f"{facts['file_system_id']}.efs.{settings['region']}.{facts['domain']}",
        "default_framework": settings["default_framework"] or None,
        "job_flow": facts.get("job_flow", ""),
        "emr_idle_seconds": settings["emr_idle_minutes"] * 60 if emr else 0,
        "idle_seconds": settings["idle_minutes"] * 60,
    }


def build(cluster: Mapping[str, Any], role: str, gpus: int | None) -> dict[str, Any]:
    """Return the content for one node. `cluster`: the fields that all nodes share; those below may be missing."""
    defaults = {
        "schema": schema.VERSION,
        "monitoring": False,
        "bundle": "",
        "job_flow": "",
        "emr_idle_seconds": 0,
        "idle_seconds": 0,
    }
    record = {**defaults, **cluster, "role": role, "gpus": gpus}
    schema.validate(record, FIELDS, "cluster.json")
    return record


def validate(record: Any, name: str) -> dict[str, Any]:
    """Return the fields of the file with this name, and raise UserError if one is malformed."""
    return schema.validate(record, FIELDS, name)
