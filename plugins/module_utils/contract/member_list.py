# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The form of members.json, the list of a cluster's members that its master publishes and signs."""

from __future__ import annotations

from typing import Any

from . import schema
from .report import MEMBER_STATES

MAX_MACHINES = 99_999

MEMBER = {
    "rank": schema.between(0, MAX_MACHINES),
    "aliases": schema.tuple_of(schema.host_name),
    "instance_id": schema.instance,
    "private_ip": schema.ipv4_address,
    "private_dns": schema.host_name,
    "instance_type": schema.instance_type,
    "gpus": schema.gpus,
    "slots": schema.gpus,
    "host_keys": schema.tuple_of(schema.host_key, least=1),
    "state": schema.one_of(*MEMBER_STATES),
}
LIST = {
    "cluster": schema.name,
    "cluster_id": schema.word,
    "generation": schema.uint32,
    "desired": schema.between(0, MAX_MACHINES),
    "published_by": schema.instance,
    "published_at": schema.timestamp,
    "members": schema.list_of(schema.part(MEMBER, "a member")),
    "signature": schema.signature,
}


def validate(record: Any) -> dict[str, Any]:
    """Return the list's fields, and raise UserError if one of them, or of its members', is malformed."""
    return schema.validate(record, LIST, "the member list")
