"""Read the state of this node's GPUs from NVIDIA's library, within a time limit."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from deeplearning import programs
from deeplearning.gpus.reading import Gpu, GpuProcess, Reading, RemappedRows

SECONDS = 60.0
"""Without the persistence daemon, the driver initializes the GPUs first: up to 30 s for eight."""
QUERY = Path(__file__).with_name("query.py")


def read(seconds: float = SECONDS) -> Reading:
    """Return what NVML reports; a reading with an error if it fails or does not answer in time."""
    command = [sys.executable, "-IS", str(QUERY)]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        output, errors = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _abandon(child)
        return Reading(error=f"NVIDIA's library gives no answer within {seconds:g} s")
    try:
        return _parse(json.loads(output))
    except ValueError:
        reason = programs.last_line(errors, f"code {child.returncode}")
        return Reading(error=f"NVIDIA's library has ended the process that uses it: {reason}")


def _abandon(child: subprocess.Popen[str]) -> None:
    """Kill it without waiting for its end: a process that waits for a device cannot be killed."""
    child.kill()
    for pipe in (child.stdout, child.stderr):
        if pipe:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=0.5)


def _parse(answer: dict[str, Any]) -> Reading:
    return Reading(**{**answer, "gpus": tuple(map(_gpu, answer.get("gpus", ())))})


def _gpu(fields: dict[str, Any]) -> Gpu:
    rows = fields.get("remapped_rows")
    return Gpu(
        **{
            **fields,
            "remapped_rows": rows and RemappedRows(**rows),
            "throttled": tuple(fields.get("throttled", ())),
            "processes": tuple(GpuProcess(**process) for process in fields.get("processes", ())),
        }
    )
