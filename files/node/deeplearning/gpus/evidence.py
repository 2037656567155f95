"""What a node answers about the faults of its GPUs: before an attempt, and after one that has failed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from deeplearning import programs
from deeplearning.contract import atomic_file, schema
from deeplearning.gpus import faults, kernel_log
from deeplearning.gpus.faults import LEVELS, MOST_TEXT, Fault
from deeplearning.gpus.reading import Gpu, Reading

MOST_FAULTS = 64
MOST_HOLDERS = 8
SERVICES = ("nvidia-cuda-mps",)
"""As Linux cuts the name: nvidia-cuda-mps-server holds a little memory for as long as a person has MPS on."""
_BUS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
FAULT = {"level": schema.one_of(*LEVELS), "text": schema.text(MOST_TEXT)}


def _fault(value: Any) -> Fault:
    return Fault(**schema.validate_part(value, FAULT, "a fault"))


_faults = schema.tuple_of(_fault, most=MOST_FAULTS)
ANSWER = {
    "answering": schema.gpus,
    "buses": schema.tuple_of(schema.or_empty(schema.matching(_BUS, "a place on the bus")), most=schema.MAX_GPUS),
    "in_use": schema.text(5000),
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
    buses: tuple[str, ...] = ()
    """Each GPU's place on the bus as /sys writes it; empty where that is not known."""
    in_use: str = ""
    """What `holders` returns."""


def collect(reading: Reading, expected: int | None, after: int) -> Evidence:
    """`after`: the number of the message after which the log counts. `expected`: the GPUs that the node's type has."""
    messages = kernel_log.messages(after)
    shown = None if reading.error is not None else _few(faults.of_reading(reading, expected))
    return Evidence(
        answering=reading.answering,
        message=messages[-1][0] if messages else after,
        log=_few(faults.of_log((text for _number, text in messages), faults.gpu_names(reading.gpus))),
        reading=shown,
        buses=tuple(bus_of(gpu) for gpu in reading.gpus),
        in_use=programs.printable(holders(reading)),
    )


def holders(reading: Reading) -> str:
    """Return which processes hold memory of which GPUs, as a part of a sentence; empty if none does.

    A killed process does so until the driver has freed all of it.
    """
    names = []
    for gpu in reading.gpus:
        for process in gpu.processes:
            program = (atomic_file.read_or_none(f"/proc/{process}/comm") or "").strip()
            if program not in SERVICES:
                name = f" ({program})" if program else ""
                names.append(f"GPU {gpu.index} holds memory of process {process}{name}")
    more = len(names) - MOST_HOLDERS
    return ", ".join([*names[:MOST_HOLDERS], *([f"{more} more"] if more > 0 else [])])


def bus_of(gpu: Gpu) -> str:
    """Return a GPU's place on the bus as /sys writes it: NVML says 00000000:C6:00.0, and /sys 0000:c6:00.0."""
    domain, _colon, place = (gpu.bus_id or "").lower().partition(":")
    bus = f"{domain[:-4].lstrip('0')}{domain[-4:]}:{place}"
    return bus if re.fullmatch(_BUS, bus) else ""


def _few(reported: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return as many as an answer may have, the node's own faults first."""
    return tuple(sorted(reported, key=lambda fault: not fault.is_the_nodes)[:MOST_FAULTS])


def parse(record: Any, name: str) -> Evidence:
    """Raise UserError if a node's answer is malformed."""
    return Evidence(**schema.validate_part(record, ANSWER, name))


def new_faults(before: Evidence, now: Evidence) -> list[Fault]:
    """Return what has changed since an attempt began. `now`: its log is only what came after `before`."""
    known = before.reading
    shown = () if known is None else tuple(fault for fault in now.reading or () if fault not in known)
    return [*now.log, *shown]
