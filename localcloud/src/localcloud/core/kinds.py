"""The kinds of EC2's resources, which data/ec2_kinds.toml lists."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from localcloud.core.errors import AwsError
from localcloud.core.settings import DATA
from localcloud.core.words import aws_error


@dataclass(frozen=True)
class Kind:
    type: str
    missing: str = ""
    created_by: str = ""
    listed_in: str = ""
    id_in: str = ""
    late_once: bool = False

    def not_found(self, resource_id: str, operation: str = "*", code: str = "") -> AwsError:
        return aws_error(f"ec2:{operation}", code or self.missing, id=resource_id)


KINDS: Mapping[str, Kind] = {
    prefix: Kind(**entry)
    for prefix, entry in tomllib.loads((DATA / "ec2_kinds.toml").read_text(encoding="utf-8")).items()
}
"""by the prefix of their ids"""


def type_of(resource_id: str) -> str:
    """Return the type of a resource in ARNs and tags; empty if there is no such type."""
    kind = KINDS.get(resource_id.rpartition("-")[0])
    return kind.type if kind else ""
