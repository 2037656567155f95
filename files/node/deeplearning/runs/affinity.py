"""The processors next to a process's GPU. From those of another NUMA node, each copy to the GPU takes a longer way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from deeplearning.runs.plan import WORKER, Plan, Process

SYSFS = "/sys"


def bind(plan: Plan, process: Process, environment: Mapping[str, str], sysfs: str = SYSFS) -> str:
    """Let this process and its children use the processors of its GPU's NUMA node alone. Return words about it.

    Nothing changes, and nothing is returned, unless it has exactly one GPU, and may use all processors so far.
    """
    with contextlib.suppress(OSError, ValueError):
        gpu = only_gpu(plan, process, environment)
        buses = plan.node(process.node).buses
        if gpu is None or gpu >= len(buses) or not buses[gpu]:
            return ""
        number = int(_text(f"{sysfs}/bus/pci/devices/{buses[gpu]}/numa_node"))
        if number < 0:
            return ""
        allowed, shown = os.sched_getaffinity(0), _text(f"{sysfs}/devices/system/node/node{number}/cpulist")
        near = allowed & _processors(shown)
        is_limited = not _processors(_text(f"{sysfs}/devices/system/cpu/online")) <= allowed
        if is_limited or not near or near == allowed:
            return ""
        os.sched_setaffinity(0, near)
        return f"it uses the processors of NUMA node {number} ({shown}), next to GPU {gpu}"
    return ""


def only_gpu(plan: Plan, process: Process, environment: Mapping[str, str]) -> int | None:
    """Return the GPU of a process that has exactly one; None for others, and where the user chooses GPUs himself.

    A worker that sees all GPUs uses the one of its local rank, if the node has as many workers as GPUs.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if process.gpus is not None:
        is_only = len(process.gpus) == 1 and visible == str(process.gpus[0])
        return process.gpus[0] if is_only else None
    workers = sum(each.role == WORKER for each in plan.on(process.node))
    has_one = visible is None and workers == plan.node(process.node).gpus
    return process.local_rank if has_one and process.role == WORKER else None


def _text(path: str) -> str:
    return Path(path).read_text(encoding="ascii").strip()


def _processors(text: str) -> set[int]:
    """Return the numbers in a list such as 0-3,8."""
    processors: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _dash, last = part.partition("-")
        processors |= set(range(int(first), int(last or first) + 1))
    return processors
