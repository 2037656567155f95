"""The fault `late-reads`: what a call of EC2 has created is not seen by the next ones for a while.

AWS promises no more: a Describe… right after a Create… may leave the resource out, and a call that names it may answer
that it does not exist. Tags follow their resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from localcloud.core.cloud import Call, Handler
from localcloud.core.kinds import KINDS, Kind

_CODES_OF_ROUTES = {"InternetGatewayId": "InvalidGatewayID.NotFound", "NatGatewayId": "InvalidNatGatewayID.NotFound"}


@dataclass(frozen=True)
class Created:
    kind: Kind
    time: float


def answer_late(call: Call, handler: Handler | None, seconds: float) -> dict[str, Any]:
    """Answer a call of EC2 without resources that are younger than the delay."""
    created: dict[str, Created] = call.cloud.records("late-reads", dict)
    now = call.cloud.clock.time()
    unseen = {resource: one.kind for resource, one in created.items() if now < one.time + seconds}
    for name in _names({key: value for key, value in call.params.items() if not key.startswith("Filter")}):
        if name in unseen:
            kind = unseen[name]
            code = _CODES_OF_ROUTES.get(kind.id_in, "") if call.operation in ("CreateRoute", "ReplaceRoute") else ""
            raise kind.not_found(name, call.operation if code else "*", code)
    answer = dict((handler(call) if handler else call.moto()) or {})
    for kind in KINDS.values():
        if call.operation == kind.created_by:
            # Some answers hold the resource, others its id alone.
            resource = next((value for value in answer.values() if isinstance(value, Mapping)), answer)
            created[str(resource.get(kind.id_in) or answer[kind.id_in])] = Created(kind, now)
        if call.operation.startswith("Describe") and kind.listed_in and kind.listed_in in answer:
            answer[kind.listed_in] = [one for one in answer[kind.listed_in] if one[kind.id_in] not in unseen]
    if call.operation == "DescribeTags":
        answer["Tags"] = [tag for tag in answer["Tags"] if tag["ResourceId"] not in unseen]
    return answer


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
