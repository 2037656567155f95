"""Large objects of S3: on disk, and never whole in memory. Importing this patches moto's records.

moto keeps objects of up to 16 MB in memory, and joins the parts of an upload there.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from moto.s3 import exceptions, models
from moto.s3.models import FakeKey, FakeMultipart, MultipartChecksumBuilder

IN_MEMORY = 64 * 1024
"""Bytes of an object that are kept in memory; larger objects are files."""
CHUNK = 1024 * 1024

_models: Any = models
_Key: Any = FakeKey
_set_value = _Key.value.fset


class Joined:
    """The content of an object that was uploaded in parts."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - the object keeps it
        self.crc = 0
        for part in parts:
            part._value_buffer.seek(0)
            while chunk := part._value_buffer.read(CHUNK):
                self.crc = zlib.crc32(chunk, self.crc)
                self.file.write(chunk)

    def __len__(self) -> int:
        return self.file.tell()


def set_value(key: Any, value: Any) -> None:
    if isinstance(value, Joined):
        key.contentsize = len(value)
        key._value_buffer.close()
        key._value_buffer = value.file
    else:
        _set_value(key, value)


def complete(upload: Any, listed: Iterator[tuple[int, str]]) -> tuple[Joined, str, tuple[str, str, int]]:
    """Validate the parts that a call lists. Return content, ETag, and checksum (type, value, number of parts)."""
    parts: list[Any] = []
    for number, etag in listed:
        part = upload.parts.get(number)
        if part is None or part.etag.strip('"') != etag.strip('"'):
            raise exceptions.InvalidPart()
        if parts and parts[-1].contentsize < _models.S3_UPLOAD_PART_MIN_SIZE:
            raise exceptions.EntityTooSmall()
        parts.append(part)
    if not parts:
        raise exceptions.MalformedXML()
    digest = hashlib.md5(b"".join(bytes.fromhex(part.etag.strip('"')) for part in parts), usedforsecurity=False)
    content = Joined(parts)
    return content, f"{digest.hexdigest()}-{len(parts)}", _checksum(upload.metadata, content, parts)


def _checksum(metadata: Any, content: Joined, parts: Sequence[Any]) -> tuple[str, str, int]:
    builder = MultipartChecksumBuilder(metadata.get("x-amz-checksum-algorithm"), metadata.get("x-amz-checksum-type"))
    if builder.checksum_type != "COMPOSITE":
        return builder.checksum_type, base64.b64encode(content.crc.to_bytes(4, "big")).decode(), 1
    for part in parts:
        builder.addPart(part.value)
    checksum: tuple[str, str, int] = builder.build()  # type: ignore[assignment]
    return checksum


_models.get_s3_default_key_buffer_size = lambda: IN_MEMORY
_Key.value = _Key.value.setter(set_value)
FakeMultipart.complete = complete  # type: ignore[method-assign,assignment]
