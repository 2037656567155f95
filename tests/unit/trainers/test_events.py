"""The file that TensorBoard reads, read here by its definition."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from events import EventsFile, crc32c


@pytest.mark.parametrize(
    ("data", "checksum"),
    [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)],
)
def test_checksums_are_those_of_rfc_3720(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum


def masked(data: bytes) -> int:
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


def records(path: Path) -> list[bytes]:
    data, parsed = path.read_bytes(), []
    while data:
        length, of_length = struct.unpack("<QI", data[:12])
        record, (of_record,) = data[12 : 12 + length], struct.unpack("<I", data[12 + length : 16 + length])
        assert (of_length, of_record) == (masked(data[:8]), masked(record))
        parsed.append(record)
        data = data[16 + length :]
    return parsed


def varint(data: bytes) -> tuple[int, bytes]:
    number = shift = 0
    for index, byte in enumerate(data):
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number, data[index + 1 :]
    raise AssertionError("a number has no end")


def fields(message: bytes) -> list[tuple[int, Any]]:
    """Of a message in protobuf's encoding."""
    parsed: list[tuple[int, Any]] = []
    while message:
        key, message = varint(message)
        value: Any
        if key & 7 == 0:
            value, message = varint(message)
        elif key & 7 == 2:
            length, message = varint(message)
            value, message = message[:length], message[length:]
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}[key & 7]
            (value,), message = struct.unpack(form, message[:size]), message[size:]
        parsed.append((key >> 3, value))
    return parsed


def test_a_file_begins_with_its_version_and_its_first_step_then_come_numbers(tmp_path: Path) -> None:
    events = EventsFile(tmp_path / "tensorboard", 300)
    events.scalars(301, {"loss": 0.5, "val_accuracy": 0.25})
    (path,) = (tmp_path / "tensorboard").glob("events.out.tfevents.*")
    version, start, numbers = (dict(fields(record)) for record in records(path))
    assert version[3] == b"brain.Event:2"
    assert (start[2], fields(start[7])) == (300, [(1, 1)])
    assert numbers[2] == 301 and numbers[1] > 1.7e9
    values = [dict(fields(value)) for _, value in fields(numbers[5])]
    assert values == [{1: b"loss", 2: 0.5}, {1: b"val_accuracy", 2: 0.25}]


def test_events_are_visible_at_once(tmp_path: Path) -> None:
    events = EventsFile(tmp_path, 0)
    (path,) = tmp_path.iterdir()
    for step in range(3):
        events.scalars(step, {"loss": 1.0})
        assert len(records(path)) == 3 + step
