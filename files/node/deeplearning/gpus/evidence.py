"""What a node answers about the faults of its GPUs: before an attempt, and after one that has failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from deeplearning.contract import schema
from deeplearning.gpus import faults, kernel_log
from deeplearning.gpus.faults import LEVELS, MOST_TEXT, Fault
from deeplearning.gpus.reading import Reading

MOST_FAULTS = 64
FAULT = {"level": schema.one_of(*LEVELS), "text": schema.text(MOST_TEXT)}


def _faults(value: Any) -> list[Any]:
    listed = schema.list_of(lambda item: None, most=MOST_FAULTS)
    listed(value)
    return [schema.validate_part(item, FAULT, "a fault") for item in value]


ANSWER = {
    "answering": schema.gpus,
    "message": schema.between(kernel_log.NONE, 2**63),
    "log": _faults,
    "reading": schema.optional(_faults),
}


@dataclass(frozen=True)
class Evidence:
    answering: int = 0
    """The number of GPUs that answer."""
    message: int = kernel_log.NONE
    """The number of the newest message in the kernel's log."""
    log: tuple[Fault, ...] = ()
    reading: tuple[Fault, ...] | None = None
    """What NVML shows; None if it gives no answer."""


def collect(reading: Reading, expected: int | None, after: int) -> Evidence:
    """`after`: the number of the message after which the log counts. `expected`: the GPUs that the node's type has."""
    messages = kernel_log.messages(after)
    names = faults.gpu_names(reading.gpus)
    shown = None if reading.error is not None else _few(faults.of_reading(reading, expected))
    return Evidence(
        answering=reading.answering,
        message=messages[-1][0] if messages else after,
        log=_few(faults.of_log((text for _number, text in messages), names)),
        reading=shown,
    )


def _few(reported: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return as many as an answer may have, the node's own faults first."""
    return tuple(sorted(reported, key=lambda fault: not fault.is_the_nodes)[:MOST_FAULTS])


def as_json(evidence: Evidence) -> dict[str, Any]:
    return asdict(evidence)


def parse(record: Any, name: str) -> Evidence:
    """Raise UserError if a node's answer is malformed."""
    fields = schema.validate_part(record, ANSWER, name)
    reading = None if fields["reading"] is None else _parsed(fields["reading"])
    return Evidence(fields["answering"], fields["message"], _parsed(fields["log"]), reading)


def _parsed(items: Iterable[dict[str, str]]) -> tuple[Fault, ...]:
    return tuple(Fault(**item) for item in items)


def new_faults(before: Evidence, now: Evidence) -> list[Fault]:
    """Return what has changed since an attempt began. `now`: its log is only what came after `before`."""
    known = before.reading
    shown = () if known is None else tuple(fault for fault in now.reading or () if fault not in known)
    return [*now.log, *shown]
