"""What NVML says of a node's GPUs at one moment. None stands for what a GPU does not have or does not say."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuProcess:
    pid: int
    memory_bytes: int | None


@dataclass(frozen=True)
class RemappedRows:
    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


@dataclass(frozen=True)
class Gpu:
    index: int
    lost: str | None = None
    """NVML's words for a device that no longer answers, such as `GPU is lost`. Then the rest is unknown."""
    name: str | None = None
    uuid: str | None = None
    serial: str | None = None
    bus_id: str | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    busy_percent: int | None = None
    temperature: int | None = None
    watts: float | None = None
    ecc_corrected: int | None = None
    """Since the driver was loaded."""
    ecc_uncorrected: int | None = None
    remapped_rows: RemappedRows | None = None
    throttled: tuple[str, ...] = ()
    persistence: bool | None = None
    mig: bool | None = None
    links_up: int | None = None
    """NVLink: how many are active."""
    links_down: int | None = None
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True)
class Reading:
    driver: str | None = None
    cuda: str | None = None
    """The newest CUDA version that the driver can run, such as 13.2."""
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
