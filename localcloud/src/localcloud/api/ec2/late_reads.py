"""What a call of EC2 has created is not seen by the first call after it: a list leaves it out, and to a call that names
it, it does not exist. Tags follow their resource. The fault `late-reads` makes this last.

https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html describes both. Late are the kinds that have
`created_by` in data/ec2_kinds.toml; of those with `late_once`, only the first in an account.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from localcloud.core.cloud import Call, Cloud, Handler
from localcloud.core.kinds import KINDS, Kind

_CODES_OF_ROUTES = {"InternetGatewayId": "InvalidGatewayID.NotFound", "NatGatewayId": "InvalidNatGatewayID.NotFound"}


@dataclass(frozen=True)
class Created:
    kind: Kind
    time: float


def apply(call: Call) -> bool:
    """Return whether a call of EC2 may miss a resource, or create one that others miss."""
    return call.cloud.lateness.applies or call.cloud.faults.read_delay() is not None


def answer(call: Call, handler: Handler | None) -> dict[str, Any]:
    """Answer a call without the resources that it misses, or raise AwsError if it names one."""
    created = _created(call.cloud)
    names = dict.fromkeys(_names({key: value for key, value in call.params.items() if not key.startswith("Filter")}))
    # All of them: the next call knows each.
    if unseen := [name for name in names if name in created and _misses(call.cloud, name)]:
        kind = created[unseen[0]].kind
        code = _CODES_OF_ROUTES.get(kind.id_in, "") if call.operation in ("CreateRoute", "ReplaceRoute") else ""
        raise kind.not_found(unseen[0], call.operation if code else "*", code)
    answer = dict((handler(call) if handler else call.moto()) or {})
    for kind in KINDS.values():
        if call.operation == kind.created_by:
            # Some answers hold the resource, others its id alone.
            resource = next((value for value in answer.values() if isinstance(value, Mapping)), answer)
            resource_id = str(resource.get(kind.id_in) or answer[kind.id_in])
            created.setdefault(resource_id, Created(kind, call.cloud.lateness.time))
        if call.operation.startswith("Describe") and kind.listed_in and kind.listed_in in answer:
            answer[kind.listed_in] = [
                item
                for item in answer[kind.listed_in]
                if item[kind.id_in] in names or not _misses(call.cloud, item[kind.id_in])
            ]
    if call.operation == "DescribeTags":
        answer["Tags"] = [tag for tag in answer["Tags"] if not _misses(call.cloud, tag["ResourceId"])]
    return answer


def _created(cloud: Cloud) -> dict[str, Created]:
    created: dict[str, Created] = cloud.records("late-reads", dict)
    return created


def _misses(cloud: Cloud, resource_id: str) -> bool:
    created = _created(cloud).get(resource_id)
    if created is None:
        return False
    is_young = cloud.clock.time() < created.time + (cloud.faults.read_delay() or 0.0)
    once = "reads" if created.kind.late_once else ""
    return cloud.lateness.misses(resource_id, created.time, once) or is_young


def _names(value: Any) -> Iterator[str]:
    """Return all strings in the parameters of a call."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _names(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _names(item)
