"""Large objects of S3 are on disk, and never whole in memory. Importing this patches moto's records.

moto keeps objects of up to 16 MB in memory. It joins the parts of an upload there, and passes objects as bytes.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import secrets
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, BinaryIO

from moto.s3 import exceptions, models
from moto.s3.models import FakeKey, FakeMultipart, MultipartChecksumBuilder, S3Backend
from moto.s3.responses import S3Response

IN_MEMORY = 64 * 1024
"""Bytes of an object that are kept in memory; larger objects are files."""
CHUNK = 1024 * 1024

_models: Any = models
_Key: Any = FakeKey
_get_value, _set_value = _Key.value.fget, _Key.value.fset
_bodies: dict[bytes, Any] = {}
_streams: ContextVar[bool] = ContextVar("streams", default=False)


@contextmanager
def body_on_disk(environ: dict[str, Any]) -> Iterator[None]:
    """Replace the body of an upload by a token, for which `set_value` takes the file."""
    if environ.get("HTTP_X_AMZ_CONTENT_SHA256", "").startswith("STREAMING-"):
        _decode(environ)
    token = secrets.token_bytes(32)
    _bodies[token] = environ["wsgi.input"]
    environ |= {"wsgi.input": io.BytesIO(token), "CONTENT_LENGTH": str(len(token))}
    try:
        yield
    finally:
        _bodies.pop(token, None)


def _decode(environ: dict[str, Any]) -> None:
    """Decode a body in the encoding aws-chunked; its trailers become headers."""
    source: BinaryIO = environ["wsgi.input"]
    body = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - the object keeps it
    while left := int(source.readline().partition(b";")[0], 16):
        while left:
            left -= body.write(source.read(min(CHUNK, left)))
        source.readline()
    for line in source:
        name, colon, value = line.decode().strip().partition(":")
        if colon:
            environ[f"HTTP_{name.upper().replace('-', '_')}"] = value.strip()
    environ |= {"wsgi.input": body, "HTTP_X_AMZ_CONTENT_SHA256": "UNSIGNED-PAYLOAD"}


class Content:
    """A part of a large object, which is read when it is sent or copied."""

    def __init__(self, file: BinaryIO, extent: range) -> None:
        self._file = file
        self._extent = extent

    def __len__(self) -> int:
        return len(self._extent)

    def __getitem__(self, part: slice) -> Content:
        return Content(self._file, self._extent[part])

    def __iter__(self) -> Iterator[bytes]:
        for start in self._extent[::CHUNK]:
            yield os.pread(self._file.fileno(), min(CHUNK, self._extent.stop - start), start)


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


def streaming(function: Callable[..., Any]) -> Any:
    """Let a function of moto pass on the contents of large objects as `Content`, not as bytes."""

    def run(*arguments: Any, **named: Any) -> Any:
        token = _streams.set(True)
        try:
            return function(*arguments, **named)
        finally:
            _streams.reset(token)

    return run


def get_value(key: Any) -> Any:
    if key.contentsize <= IN_MEMORY or not _streams.get():
        return _get_value(key)
    key._value_buffer.flush()
    return Content(os.fdopen(os.dup(key._value_buffer.fileno()), "rb"), range(key.contentsize))


def set_value(key: Any, value: Any) -> None:
    if file := _bodies.pop(value, None) if isinstance(value, bytes) else None:
        key.contentsize = file.seek(0, os.SEEK_END)
        key._value_buffer.close()
        key._value_buffer = file
    elif isinstance(value, Joined):
        key.contentsize = len(value)
        key._value_buffer.close()
        key._value_buffer = value.file
    elif isinstance(value, Content):
        key.contentsize = len(value)
        for chunk in value:
            key._value_buffer.write(chunk)
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
_Key.value = property(get_value, set_value)
S3Response.get_object = streaming(S3Response.get_object)  # type: ignore[method-assign]
S3Backend.copy_object = streaming(S3Backend.copy_object)  # type: ignore[method-assign]
S3Backend.upload_part_copy = streaming(S3Backend.upload_part_copy)  # type: ignore[method-assign]
FakeMultipart.complete = complete  # type: ignore[method-assign,assignment]
