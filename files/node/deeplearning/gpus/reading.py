"""What NVML says of a node's GPUs at one moment. None stands for what a GPU does not have or does not say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    index: int
    lost: str | None = None
    """NVML's words for a device that no longer answers, such as `GPU is lost`. Then the rest is unknown."""
    bus_id: str | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    busy_percent: int | None = None
    ecc_uncorrected: int | None = None
    """Since the driver was loaded."""
    remapping_pending: bool | None = None
    """Whether a memory row is remapped when the GPU is reset."""
    remapping_failed: bool | None = None
    mig: bool | None = None
    processes: tuple[int, ...] = ()
    """The numbers of those that hold memory."""


@dataclass(frozen=True)
class Reading:
    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    error: str | None = None
    """Why there is no reading: NVML's own words, or that it gave no answer in time."""

    @property
    def lost(self) -> list[Gpu]:
        return [gpu for gpu in self.gpus if gpu.lost]

    @property
    def answering(self) -> int:
        """The number of GPUs that answer."""
        return len(self.gpus) - len(self.lost)
