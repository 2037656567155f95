"""Which cluster this node belongs to: /etc/deeplearning/cluster.json."""

from __future__ import annotations

import json
from dataclasses import dataclass

from deeplearning import Refusal, paths, records


@dataclass(frozen=True)
class Config:
    cluster: str
    cluster_id: str
    """New with each new cluster, also with one of the same name."""
    region: str
    bucket: str
    vpc_cidrs: tuple[str, ...]
    user: str
    role: str
    """master or worker"""
    master_role_id: str
    """The unique id of the master's IAM role: what it begins its user id with."""
    master_trains: bool
    efs_mount: str
    efs_name: str
    default_framework: str | None
    gpus: int | None
    """What machines of this type have; None if nobody knows."""


FIELDS = {
    "cluster": records.name,
    "cluster_id": records.word,
    "region": records.word,
    "bucket": records.word,
    "vpc_cidrs": records.a_list(records.an_address_range),
    "user": records.word,
    "role": records.word,
    "master_role_id": records.word,
    "master_trains": records.flag,
    "efs_mount": records.path,
    "efs_name": records.word,
    "default_framework": records.an_optional(records.word),
    "gpus": records.an_optional(records.gpus),
}


def read_config() -> Config:
    try:
        with open(paths.CLUSTER, encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError) as error:
        raise Refusal(f"{paths.CLUSTER} cannot be read ({error}): configure this node (configure.yml).") from None
    fields = records.checked(record, FIELDS, paths.CLUSTER)
    return Config(**{**fields, "vpc_cidrs": tuple(fields["vpc_cidrs"])})
