"""Ask NVIDIA's library about each GPU, and print the answers as JSON: the program that `nvml.read` starts.

A process of its own, which needs nothing but Python: the library waits for a GPU that has fallen off the bus, and a
process that does so may not even be killable. Names, sizes and structures: NVIDIA's NVML API Reference Guide, and
its nvml.h of CUDA 12.2 to 13.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from ctypes import byref
from functools import partial
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND = 7, 13
NO_ANSWER = (15, 16)
"""NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED: the device answers nothing else either."""
TEXT_BYTES = 96
"""More than NVML's size for the version of the driver."""
UNCORRECTED, VOLATILE = 1, 0
RUNNING_PROCESSES = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")


class MemoryInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class MemoryInfoV2(ctypes.Structure):
    """Its `used` is without what the driver keeps for itself."""

    _fields_ = [
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    ]


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class PciInfo(ctypes.Structure):
    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "pci_device_id", "pci_subsystem_id")),
        ("bus_id", ctypes.c_char * 32),
    ]


class ProcessInfo(ctypes.Structure):
    """Of the second and the third version of the function, which are the same."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used_gpu_memory", ctypes.c_ulonglong),
        ("gpu_instance_id", ctypes.c_uint),
        ("compute_instance_id", ctypes.c_uint),
    ]


class NvmlError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Nvml:
    """The library. A function that this driver lacks fails like one that the GPU does not support."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)
        self.call("nvmlInit_v2")

    def call(self, function: str, *arguments: Any) -> None:
        try:
            code = self._library[function](*arguments)
        except AttributeError:
            raise NvmlError(FUNCTION_NOT_FOUND, f"the driver has no {function}") from None
        if code:
            error_string = self._library.nvmlErrorString
            error_string.restype = ctypes.c_char_p
            raise NvmlError(code, (error_string(code) or b"").decode(errors="replace") or f"NVML's error {code}")

    def flags(self, function: str, device: Any, count: int) -> list[bool]:
        numbers = [ctypes.c_uint() for _number in range(count)]
        self.call(function, device, *map(byref, numbers))
        return [bool(number.value) for number in numbers]

    def text(self, function: str) -> str:
        result = ctypes.create_string_buffer(TEXT_BYTES)
        self.call(function, result, TEXT_BYTES)
        return result.value.decode(errors="replace")

    def result(self, result: Any, function: str, *arguments: Any) -> Any:
        """Return `result` as the function has filled it."""
        self.call(function, *arguments, byref(result))
        return result


def optional(*questions: Callable[[], Any]) -> Any:
    """Return the first answer; None if there is none. Raises NvmlError if the device answers nothing any more."""
    for question in questions:
        try:
            return question()
        except NvmlError as error:
            if error.code in NO_ANSWER:
                raise
    return None


def describe(nvml: Nvml, index: int) -> dict[str, Any]:
    """Return what is known of a GPU: the fields of `reading.Gpu`."""
    device = ctypes.c_void_p()
    try:
        nvml.call("nvmlDeviceGetHandleByIndex_v2", index, byref(device))
        return {"index": index, **_describe(nvml, device)}
    except NvmlError as error:
        return {"index": index, "lost": str(error)}


def _describe(nvml: Nvml, device: ctypes.c_void_p) -> dict[str, Any]:
    newest = MemoryInfoV2(version=ctypes.sizeof(MemoryInfoV2) | 2 << 24)
    memory = optional(
        lambda: nvml.result(newest, "nvmlDeviceGetMemoryInfo_v2", device),
        lambda: nvml.result(MemoryInfo(), "nvmlDeviceGetMemoryInfo", device),
    )
    busy = optional(lambda: nvml.result(Utilization(), "nvmlDeviceGetUtilizationRates", device))
    pci = optional(lambda: nvml.result(PciInfo(), "nvmlDeviceGetPciInfo_v3", device))
    ecc = (ctypes.c_ulonglong(), "nvmlDeviceGetTotalEccErrors", device, UNCORRECTED, VOLATILE)
    # Correctable and uncorrectable rows, those that are pending, and a failure.
    rows = optional(lambda: nvml.flags("nvmlDeviceGetRemappedRows", device, 4))
    # The current mode, and the one after a reset.
    mig = optional(lambda: nvml.flags("nvmlDeviceGetMigMode", device, 2))
    return {
        "bus_id": pci and pci.bus_id.decode(errors="replace"),
        "memory_total": memory and memory.total,
        "memory_used": memory and memory.used,
        "busy_percent": busy and busy.gpu,
        "ecc_uncorrected": optional(lambda: nvml.result(*ecc).value),
        "remapping_pending": rows and rows[2],
        "remapping_failed": rows and rows[3],
        "mig": mig and mig[0],
        "processes": optional(*(partial(_processes, nvml, name, device) for name in RUNNING_PROCESSES)) or [],
    }


def _processes(nvml: Nvml, function: str, device: ctypes.c_void_p) -> list[int]:
    room = 64
    while True:
        count, processes = ctypes.c_uint(room), (ProcessInfo * room)()
        try:
            nvml.call(function, device, byref(count), processes)
        except NvmlError as error:
            if error.code != INSUFFICIENT_SIZE:
                raise
            room = max(2 * room, count.value + 8)
        else:
            return [process.pid for process in processes[: count.value]]


def read() -> dict[str, Any]:
    """Return the fields of `reading.Reading`."""
    try:
        nvml = Nvml()
        count = nvml.result(ctypes.c_uint(), "nvmlDeviceGetCount_v2").value
    except OSError as error:
        return {"error": f"NVIDIA's library cannot be loaded: {error}"}
    except NvmlError as error:
        return {"error": f"NVIDIA's library cannot be used: {error}"}
    return {
        "driver": optional(lambda: nvml.text("nvmlSystemGetDriverVersion")),
        "gpus": [describe(nvml, index) for index in range(count)],
    }


if __name__ == "__main__":
    json.dump(read(), sys.stdout)
