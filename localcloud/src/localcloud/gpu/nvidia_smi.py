#!/usr/bin/python3 -ES
"""nvidia-smi of machines of GPU types: what NVIDIA's library reports there, in the forms that programs parse.

It runs in the machine, with nothing but Python.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache

LIBRARY = "libnvidia-ml.so.1"
UNKNOWN = "[N/A]"
HELP = (
    "These GPUs are made up: nvidia-smi answers without arguments, to -L, and to --query-gpu=... "
    "--format=csv[,noheader][,nounits]."
)
SUMMARY = ["index", "name", "driver_version", "memory.used", "memory.total", "utilization.gpu"]
Device = ctypes.c_void_p
Field = Callable[[Device], str]


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(LIBRARY)


class NvmlError(Exception):
    def __init__(self, code: int) -> None:
        function = library().nvmlErrorString
        function.restype = ctypes.c_char_p
        super().__init__(function(code).decode())
        self.code = code


def call(function: str, *arguments: object) -> None:
    code = library()[function](*arguments)
    if code:
        raise NvmlError(code)


def text(function: str, of_device: bool = True) -> Field:
    def read(device: Device) -> str:
        value = ctypes.create_string_buffer(96)
        call(function, *([device] if of_device else []), value, 96)
        return value.value.decode()

    return read


def number(
    function: str,
    *arguments: int,
    kind: type[ctypes.c_uint] | type[ctypes.c_ulonglong] = ctypes.c_uint,
    place: int = 0,
    form: Callable[[int], str] = str,
) -> Field:
    """Return what reads one of the numbers that a function writes, one after the other, to where its last argument
    points."""

    def read(device: Device) -> str:
        values = (kind * 4)()
        call(function, device, *arguments, values)
        return form(int(values[place]))

    return read


def memory(place: int) -> Field:
    kind = ctypes.c_ulonglong
    return number("nvmlDeviceGetMemoryInfo", kind=kind, place=place, form=lambda value: f"{value // 2**20} MiB")


def ecc(kind: int) -> Field:
    return number("nvmlDeviceGetTotalEccErrors", kind, 0, kind=ctypes.c_ulonglong)


def bus_id(device: Device) -> str:
    info = ctypes.create_string_buffer(68)
    call("nvmlDeviceGetPciInfo_v3", device, info)
    return info.raw[36:].partition(b"\0")[0].decode()


def mig(device: Device) -> str:
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    call("nvmlDeviceGetMigMode", device, ctypes.byref(current), ctypes.byref(pending))
    return switch(current.value)


def switch(value: int) -> str:
    return "Enabled" if value else "Disabled"


def count() -> int:
    value = ctypes.c_uint()
    call("nvmlDeviceGetCount_v2", ctypes.byref(value))
    return value.value


FIELDS: dict[str, Field] = {
    "index": number("nvmlDeviceGetIndex"),
    "name": text("nvmlDeviceGetName"),
    "uuid": text("nvmlDeviceGetUUID"),
    "serial": text("nvmlDeviceGetSerial"),
    "pci.bus_id": bus_id,
    "count": lambda _device: str(count()),
    "driver_version": text("nvmlSystemGetDriverVersion", of_device=False),
    "memory.total": memory(0),
    "memory.free": memory(1),
    "memory.used": memory(2),
    "utilization.gpu": number("nvmlDeviceGetUtilizationRates", form=lambda value: f"{value} %"),
    "temperature.gpu": number("nvmlDeviceGetTemperature", 0),
    "power.draw": number("nvmlDeviceGetPowerUsage", form=lambda value: f"{value / 1000:.2f} W"),
    "persistence_mode": number("nvmlDeviceGetPersistenceMode", form=switch),
    "mig.mode.current": mig,
    "ecc.errors.corrected.volatile.total": ecc(0),
    "ecc.errors.uncorrected.volatile.total": ecc(1),
}
UNITS = {"memory": "MiB", "utilization": "%", "power": "W"}


def value_of(device: Device, field: str) -> str:
    try:
        return FIELDS[field](device) if field in FIELDS else UNKNOWN
    except NvmlError:
        return UNKNOWN


def devices() -> list[Device]:
    """Return all GPUs. End as the real program does if one is lost."""
    handles = []
    for index in range(count()):
        device = Device()
        try:
            call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
        except NvmlError as error:
            print(f"Unable to determine the device handle for GPU{index}: {error}")
            sys.exit(error.code)
        handles.append(device)
    return handles


def query(fields: list[str], style: list[str]) -> None:
    units = [UNITS.get(field.partition(".")[0], "") for field in fields]
    if "noheader" not in style:
        print(", ".join(f"{field} [{unit}]" if unit else field for field, unit in zip(fields, units, strict=True)))
    for device in devices():
        values = [value_of(device, field) for field in fields]
        if "nounits" in style:
            values = [value.removesuffix(f" {unit}") for value, unit in zip(values, units, strict=True)]
        print(", ".join(values))


def option(arguments: list[str], name: str) -> list[str]:
    values = [word.partition("=")[2].split(",") for word in arguments if word.startswith(f"{name}=")]
    return [value.strip() for value in values[0]] if values else []


def main(arguments: list[str]) -> None:
    fields, style = option(arguments, "--query-gpu"), option(arguments, "--format")
    if arguments and arguments not in (["-L"], ["--list-gpus"]) and not (fields and "csv" in style):
        sys.exit(HELP)
    try:
        call("nvmlInit_v2")
    except NvmlError as error:
        print(f"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver: {error}")
        sys.exit(error.code)
    if not arguments:
        query(SUMMARY, ["csv"])
    elif fields:
        query(fields, style)
    else:
        for device in devices():
            print("GPU {}: {} (UUID: {})".format(*(value_of(device, name) for name in ("index", "name", "uuid"))))


if __name__ == "__main__":
    main(sys.argv[1:])
