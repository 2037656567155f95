"""The processes that hold memory of this node's GPUs: a killed one does so until the driver has freed all of it."""

from __future__ import annotations

from deeplearning.contract import atomic_file
from deeplearning.gpus.reading import Reading

MOST_NAMED = 8
SERVICES = ("nvidia-cuda-mps",)
"""As Linux cuts the name: nvidia-cuda-mps-server holds a little memory for as long as a person has MPS on."""


def holders(reading: Reading) -> str:
    """Return which processes hold memory of which GPUs, as a part of a sentence; empty if none does."""
    names = []
    for gpu in reading.gpus:
        for process in gpu.processes:
            program = (atomic_file.read_or_none(f"/proc/{process}/comm") or "").strip()
            if program not in SERVICES:
                name = f" ({program})" if program else ""
                names.append(f"GPU {gpu.index} holds memory of process {process}{name}")
    more = len(names) - MOST_NAMED
    return ", ".join([*names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])
