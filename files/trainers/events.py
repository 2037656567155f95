"""Write TensorBoard's event file, without TensorFlow or TensorBoard.

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
        """Start a file. TensorBoard no longer shows what earlier files have from this step on."""
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

    def _write(self, step: int, fields: bytes) -> None:
        event = b"\x09" + struct.pack("<d", time.time()) + _varint_field(2, step) + fields
        length = struct.pack("<Q", len(event))
        # Closing the file makes its content visible to readers on other nodes of a network file system.
        with open(self._path, "ab") as file:
            file.write(length + _checksum(length) + event + _checksum(event))


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


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
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRCS[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _checksum(data: bytes) -> bytes:
    """Return the masked checksum, which stays useful for data that contains checksums."""
    crc = crc32c(data)
    return struct.pack("<I", (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF)
