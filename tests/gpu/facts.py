"""What our reader of NVML says of each GPU, against what nvidia-smi says: both ask the same library."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from deeplearning.gpus import nvml
from deeplearning.gpus.reading import Gpu, Reading

from tests.gpu.session import Session
from tests.nvml import Gpus
from tests.steps import Failed, last_line, require

ATTEMPTS = 3
"""Use and memory may change between the two answers."""
MIB = 2**20
NOT_THERE = ("", "N/A", "None", "Unknown Error", "Requested functionality has been deprecated")
ANSWER = Path(__file__).with_name("nvidia_smi.xml")
"""The fields that are compared, and others, in the form of nvidia-smi 575 (nvsmi_device_v12.dtd)."""
IMITATED = {
    "count": 2,
    "driver": "595.91.07",
    "memory_total": 81559 * MIB,
    "memory_used": 1024 * MIB,
    "busy": 30,
    "mig": 0,
    "ecc_uncorrected": 1,
    "remapped_rows": "2 1 1 0",
    "gpu0_bus_id": "00000000:53:00.0",
    "gpu0_processes": f"4141:{512 * MIB}",
    "gpu1_bus_id": "00000000:64:00.0",
}
"""The same GPUs for the library that answers in place of NVIDIA's."""


def compare(session: Session) -> str:
    """Return how many fields are equal. On the processor, nvidia-smi's answer is a file."""
    with imitated(session) if session.on_processor else nullcontext():
        differences: list[str] = []
        for _attempt in range(ATTEMPTS):
            reading = nvml.read()
            require(reading.error is None, f"NVML: {reading.error}")
            equal, differences = differences_of(reading, answer(session))
            if not differences:
                return f"{equal} fields of {len(reading.gpus)} GPUs are as nvidia-smi has them, driver {reading.driver}"
    raise Failed("; ".join(differences))


def answer(session: Session) -> ElementTree.Element:
    if session.on_processor:
        return ElementTree.parse(ANSWER).getroot()
    try:
        words = ["nvidia-smi", "-q", "-x"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        return ElementTree.fromstring(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"nvidia-smi -q -x: {error}") from None
    except ElementTree.ParseError:
        raise Failed(f"nvidia-smi -q -x answers no XML: {last_line(done.stdout + done.stderr)}") from None


@contextmanager
def imitated(session: Session) -> Iterator[None]:
    """Let a library of the local cloud answer in place of NVIDIA's."""
    gpus = Gpus(session.work("facts"))
    gpus.set(**IMITATED)
    with mock.patch.dict(os.environ, gpus.environment):
        yield


def differences_of(reading: Reading, log: ElementTree.Element) -> tuple[int, list[str]]:
    """Return the number of fields that were compared and are equal, and a description of each other one."""
    gpus = log.findall("gpu")
    pairs: list[tuple[str, Any, Any, float]] = [("driver", reading.driver, _text(log, "driver_version"), 0.0)]
    pairs += [("number of GPUs", len(reading.gpus), len(gpus), 0.0)]
    for gpu, element in zip(reading.gpus, gpus, strict=False):
        pairs += [(f"GPU {gpu.index}: {name}", *rest) for name, *rest in _fields(gpu, element)]
    differences = [
        f"{name} is {ours!r}, and by nvidia-smi {theirs!r}"
        for name, ours, theirs, tolerance in pairs
        if not _is_equal(ours, theirs, tolerance)
    ]
    return len(pairs) - len(differences), differences


def _fields(gpu: Gpu, element: ElementTree.Element) -> Iterator[tuple[str, Any, Any, float]]:
    """Yield the name of a field, our value, theirs, and the difference that counts as equal."""
    yield "bus id", gpu.bus_id, _text(element, "pci/pci_bus_id"), 0
    yield "memory", _mebibytes(gpu.memory_total), _number(element, "fb_memory_usage/total"), 1
    yield (
        "used memory",
        _mebibytes(gpu.memory_used),
        (used := _number(element, "fb_memory_usage/used")),
        _five(used, 16),
    )
    yield "utilization", gpu.busy_percent, _number(element, "utilization/gpu_util"), 5
    volatile = element.find("ecc_errors/volatile")
    yield "uncorrected errors", gpu.ecc_uncorrected, _sum(volatile, "_uncorrectable"), 0
    yield "pending row", gpu.remapping_pending, _is(element, "remapped_rows/remapped_row_pending", "Yes"), 0
    yield "failed row", gpu.remapping_failed, _is(element, "remapped_rows/remapped_row_failure", "Yes"), 0
    processes = element.findall("processes/process_info")
    pids = {int(each.findtext("pid") or 0) for each in processes if "C" in (each.findtext("type") or "")}
    yield "processes", set(gpu.processes), pids, 0
    yield "MIG", gpu.mig, _is(element, "mig_mode/current_mig", "Enabled"), 0


def _is_equal(ours: Any, theirs: Any, tolerance: float) -> bool:
    if tolerance and ours is not None and theirs is not None:
        return abs(float(ours) - float(theirs)) <= tolerance
    return bool(ours == theirs)


def _five(value: float | None, least: float) -> float:
    """Return five percent."""
    return max(least, (value or 0) * 0.05)


def _text(element: ElementTree.Element, path: str) -> str | None:
    text = (element.findtext(path) or "").strip()
    return None if text in NOT_THERE else text


def _number(element: ElementTree.Element, path: str) -> float | None:
    text = _text(element, path)
    return None if text is None else float(text.split()[0])


def _sum(element: ElementTree.Element | None, ending: str) -> float | None:
    """Return the sum of all counters of a kind; None without ECC."""
    names = [child.tag for child in element if ending in child.tag] if element is not None else []
    values = [_number(element, name) for name in names]  # type: ignore[arg-type]
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def _is(element: ElementTree.Element, path: str, word: str) -> bool | None:
    text = _text(element, path)
    return None if text is None else text == word


def _mebibytes(number: int | None) -> float | None:
    return None if number is None else number / MIB
