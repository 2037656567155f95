# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The ids of EC2's resources: which kind an id names, and which of several ids still exist."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .client import Aws

_ENDING = r"-(?:[0-9a-f]{8}|[0-9a-f]{17})"
"""The oldest ids have 8 digits."""
_GONE = frozenset({"shutting-down", "terminated", "deleting", "deleted", "failed"})
"""The states of resources that AWS still lists although they are ending, or have ended."""


@dataclass(frozen=True)
class IdKind:
    """A kind of resources with ids of one form."""

    prefix: str
    operation: str
    key: str
    """The key of the list in the operation's answer."""
    id: str
    """The key of the id in an item."""
    filter: str
    filters: str = "Filters"
    """The operation's parameter for filters."""


ID_KINDS: Mapping[str, IdKind] = {
    "instance": IdKind("i", "describe_instances", "Reservations", "InstanceId", "instance-id"),
    "nat_gateway": IdKind(
        "nat", "describe_nat_gateways", "NatGateways", "NatGatewayId", "nat-gateway-id", filters="Filter"
    ),
    "address": IdKind("eipalloc", "describe_addresses", "Addresses", "AllocationId", "allocation-id"),
    "network_interface": IdKind(
        "eni", "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId", "network-interface-id"
    ),
    "volume": IdKind("vol", "describe_volumes", "Volumes", "VolumeId", "volume-id"),
}
"""By the names of our kinds."""


def matches(prefix: str, value: str) -> bool:
    """Return whether a text is an id that begins with `prefix` and a hyphen, in the form that AWS gives to ids."""
    return re.fullmatch(re.escape(prefix) + _ENDING, value) is not None


def kind_of_id(resource_id: str) -> str:
    """Return the kind of resource that an id names; empty if the id has another form."""
    for kind, form in ID_KINDS.items():
        if matches(form.prefix, resource_id):
            return kind
    return ""


def describe(aws: Aws, kind: str, filter_name: str, values: Iterable[str]) -> list[Any]:
    """Return what AWS lists of a kind for one filter. A filter, unlike a list of ids, accepts ids that are gone."""
    form = ID_KINDS[kind]
    selected = sorted(set(values))
    if not selected:
        return []
    params: dict[str, Any] = {form.filters: [{"Name": filter_name, "Values": selected}]}
    if kind == "instance":
        return aws.instances(**params)
    return aws.pages("ec2", form.operation, form.key, **params)


def describe_ids(aws: Aws, kind: str, ids: Iterable[str]) -> list[Any]:
    """Return what AWS lists of these ids of one kind."""
    return describe(aws, kind, ID_KINDS[kind].filter, ids)


def existing_ids(aws: Aws, ids: Sequence[str]) -> frozenset[str]:
    """Return those of the ids whose resources exist and are not being deleted, with a call for each kind of id."""
    existing = set()
    for kind, form in ID_KINDS.items():
        of_kind = [resource_id for resource_id in ids if kind_of_id(resource_id) == kind]
        for item in describe_ids(aws, kind, of_kind):
            if state_of(item) not in _GONE:
                existing.add(str(item[form.id]))
    return frozenset(existing)


def state_of(item: Mapping[str, Any]) -> str:
    """Return the state of an item of EC2's answers; empty if its kind has none."""
    state = item.get("State") or item.get("Status") or ""
    if isinstance(state, Mapping):
        state = state.get("Name", "")
    return str(state).lower()
