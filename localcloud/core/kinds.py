"""The kinds of EC2's resources, which data/ec2_kinds.toml lists."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from localcloud.core.errors import AwsError
from localcloud.core.settings import DATA


@dataclass(frozen=True)
class Kind:
    type: str
    missing: str = ""
    words: str = ""
    created_by: str = ""
    listed_in: str = ""
    id_in: str = ""
    late_once: bool = False

    def not_found(self, resource_id: str, code: str = "") -> AwsError:
        words = self.words or f"The {self.type} ID '{{}}'"
        return AwsError(code or self.missing, f"{words.format(resource_id)} does not exist")


KINDS: Mapping[str, Kind] = {
    prefix: Kind(**entry)
    for prefix, entry in tomllib.loads((DATA / "ec2_kinds.toml").read_text(encoding="utf-8")).items()
}
"""by the prefix of their ids"""


def type_of(resource_id: str) -> str:
    """Return the type of a resource in ARNs and tags; empty if there is no such type."""
    kind = KINDS.get(resource_id.rpartition("-")[0])
    return kind.type if kind else ""
