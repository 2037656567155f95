"""Writes curves that TensorBoard reads: its file of events, with no TensorFlow and no TensorBoard at hand.

A file is a row of records; a record is its length, a checksum of that, an `Event` message in protobuf's encoding, and a
checksum of that. Only what a curve needs is written: a file version, a start, and numbers by name and step.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

FILE_VERSION = b"brain.Event:2"


class EventsFile:
    def __init__(self, folder: Path, first_step: int) -> None:
        """What earlier files have from this step on is no longer shown: it is done again."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        started = _varint_field(1, 1)
        self._write(0, _bytes_field(3, FILE_VERSION))
        self._write(first_step, _bytes_field(7, started))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        summary = b"".join(
            _bytes_field(1, _bytes_field(1, name.encode()) + b"\x15" + struct.pack("<f", value))
            for name, value in values.items()
        )
        self._write(step, _bytes_field(5, summary))

    def _write(self, step: int, what: bytes) -> None:
        event = b"\x09" + struct.pack("<d", time.time()) + _varint_field(2, step) + what
        length = struct.pack("<Q", len(event))
        # Closed each time: only so does a reader on another node of a network file system see it.
        with open(self._path, "ab") as file:
            file.write(length + _checksum(length) + event + _checksum(event))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _varint_field(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _bytes_field(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _crc_of_byte(byte: int) -> int:
    for _unused in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRCS = [_crc_of_byte(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    found = 0xFFFFFFFF
    for byte in data:
        found = _CRCS[(found ^ byte) & 0xFF] ^ found >> 8
    return found ^ 0xFFFFFFFF


def _checksum(data: bytes) -> bytes:
    """Turned and moved, so that the checksum of data that holds its own checksum is of some use."""
    found = crc32c(data)
    return struct.pack("<I", (found >> 15 | found << 17) + 0xA282EAD8 & 0xFFFFFFFF)
