"""Read a file in pieces from S3 or from a folder, without copying it first."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Callable, Union

from deeplearning.aws import PARALLEL_REQUESTS, RANGE_BYTES, AccessDenied, AwsClient, NotFound
from deeplearning.concurrency import in_order
from deeplearning.contract import manifest
from deeplearning.contract.errors import UserError
from deeplearning.data.packed import BadArchive

Bytes = Union[bytes, bytearray]
Fetch = Callable[[int, int], Bytes]
"""Returns so many bytes from a position on. Several threads call it."""


class RangedReader(io.RawIOBase):
    """A file that can be sought in, as zipfile and tarfile require. It requests the next pieces while one is read.

    Archives of many small files are read from their beginning to their end, and their checksum is computed meanwhile.
    """

    def __init__(self, fetch: Fetch, size: int, progress: Callable[[int], None]) -> None:
        """`progress` is called with the size of each piece that is read, in the order of reading."""
        self._fetch, self._size, self._progress = fetch, size, progress
        self._position = self._start = 0
        self._piece = memoryview(b"")
        self._pieces = self._pieces_from(0)
        self._sha256, self._hashed = hashlib.sha256(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._size - self._position)
        if count <= 0:
            return 0
        if not self._start <= self._position < self._start + len(self._piece):
            self._read_piece()
        begin = self._position - self._start
        content = self._piece[begin : begin + count]
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)

    def _read_piece(self) -> None:
        """Read the piece at the position: the next one, unless it was sought elsewhere."""
        self._start += len(self._piece)
        self._piece = memoryview(b"")
        if not self._start <= self._position < self._start + RANGE_BYTES:
            self._pieces.close()
            self._start, self._pieces = self._position, self._pieces_from(self._position)
        try:
            self._piece = memoryview(next(self._pieces))
        except BaseException:
            # A generator has ended with an exception, and the reader may be asked again.
            self._pieces = self._pieces_from(self._start)
            raise
        self._progress(len(self._piece))
        if self._start <= self._hashed:
            self._sha256.update(self._piece[self._hashed - self._start :])
            self._hashed = max(self._hashed, self._start + len(self._piece))

    def _pieces_from(self, start: int) -> Generator[Bytes, None, None]:
        starts = range(start, self._size, RANGE_BYTES)
        calls = (partial(self._fetch, start, min(RANGE_BYTES, self._size - start)) for start in starts)
        return in_order(calls, PARALLEL_REQUESTS)

    def sha256(self) -> str:
        """Read what the archive did not need, and return the SHA-256 of all."""
        self.seek(self._hashed)
        while self.read(RANGE_BYTES):
            pass
        return self._sha256.hexdigest()

    def close(self) -> None:
        self._pieces.close()
        super().close()


class Source:
    """A staged data set: a manifest and its parts."""

    def __init__(self, location: str, region: str, name: str = "", sha256: str = "") -> None:
        """`name`: the data set's, if its published checksums count. `sha256`: that of the manifest, if it is known."""
        self.location, self.name, self._sha256 = location.rstrip("/"), name, sha256
        self._tags: dict[str, str] = {}
        self._aws: AwsClient | None = None
        if location.startswith("s3://"):
            self._aws = AwsClient(region)
            self._bucket, _unused, self._prefix = self.location[5:].partition("/")

    def exists(self) -> bool:
        """Return whether this machine can read a manifest there."""
        try:
            self._bytes(manifest.FILE, 0, 1)
        except (AccessDenied, LookupError, OSError):
            return False
        return True

    def manifest(self) -> dict[str, Any]:
        """Return the manifest. Raise UserError if it is not the one that the operator's side has checked."""
        try:
            content = manifest.read(bytes(self._bytes(manifest.FILE, 0, manifest.MAX_BYTES)), self.location)
        except (OSError, ValueError, LookupError, RecursionError) as error:
            raise UserError(
                f"{self.location} holds no data set that was staged whole ({error}): run deeplearning.aws.stage."
            ) from None
        if self._sha256 and manifest.digest(content) != self._sha256:
            raise UserError(
                f"{self.location}/{manifest.FILE} is not the one that stage.yml has checked: it was replaced since, so "
                "nothing of it is used. Run deeplearning.aws.stage again."
            )
        manifest.check_named(content, self.name, self.location, bool(self._sha256))
        return content

    def attempt(self, content: Mapping[str, Any]) -> str:
        """Return the name of an attempt at unpacking: another one if an object of the bucket was replaced."""
        if self._aws is None:
            return str(content["version"])
        tags = [content["version"], *(self._tag(part["name"]) for part in content["parts"])]
        return hashlib.sha256(json.dumps(tags).encode()).hexdigest()[:16]

    def _tag(self, name: str) -> str:
        if self._aws and name not in self._tags:
            key = f"{self._prefix}/{name}"
            self._tags[name] = self._aws.call("s3", "head_object", Bucket=self._bucket, Key=key)["ETag"]
        return self._tags[name]

    def open(self, name: str, size: int, progress: Callable[[int], None]) -> io.BufferedReader[RangedReader]:
        """Open a part. `progress` is called with the size of each piece that was read."""
        # All pieces are of one object, although others may replace it meanwhile.
        only = {"IfMatch": self._tag(name)} if self._aws else {}

        def fetch(start: int, count: int) -> Bytes:
            piece = self._bytes(name, start, count, **only)
            if len(piece) != count:
                raise BadArchive(
                    f"{self.location}/{name} is shorter than what was staged: run deeplearning.aws.stage again."
                )
            return piece

        return io.BufferedReader(RangedReader(fetch, size, progress))

    def _bytes(self, name: str, start: int, count: int, **only: str) -> Bytes:
        if self._aws is None:
            with open(Path(self.location, name), "rb") as file:
                file.seek(start)
                return file.read(count)
        try:
            return self._aws.read_range(self._bucket, f"{self._prefix}/{name}", start, count, **only)
        except NotFound:
            if only:
                raise
            raise LookupError(f"{name} does not exist") from None
