"""Read a file in pieces from S3 or from a folder, without copying it first."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any, Callable

from deeplearning.contract import manifest
from deeplearning.contract.errors import UserError
from deeplearning.unpacking.shares import BadArchive

AHEAD = 8 << 20
"""How many bytes to read at once. Archives of many small files are read from one end of a share to the other."""

Fetch = Callable[[int, int], bytes]
"""Returns so many bytes from a position on."""


class RangedReader(io.RawIOBase):
    """A file that can be sought in, as zipfile and tarfile require."""

    def __init__(self, fetch: Fetch, size: int) -> None:
        self._fetch, self.size = fetch, size
        self._position = 0
        self._start, self._piece = 0, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self.size - self._position)
        if count <= 0:
            return 0
        if not self._start <= self._position < self._start + len(self._piece):
            self._start = self._position
            self._piece = self._fetch(self._position, min(max(AHEAD, count), self.size - self._position))
        begin = self._position - self._start
        content = self._piece[begin : begin + count]
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)


class Checksum:
    """The SHA-256 of a file, computed while an archive is read in pieces from its beginning to its end."""

    def __init__(self) -> None:
        self._sha256, self._done = hashlib.sha256(), 0

    def add(self, start: int, piece: bytes) -> None:
        if start <= self._done:
            self._sha256.update(piece[self._done - start :])
            self._done = max(self._done, start + len(piece))

    def complete(self, opened: io.BufferedReader) -> str:
        """Read what the archive did not need, with a reader that adds to this checksum, and return it."""
        opened.seek(self._done)
        while opened.read(AHEAD):
            pass
        return self._sha256.hexdigest()


class Source:
    """A staged data set: a manifest and its parts."""

    def __init__(self, location: str, region: str) -> None:
        self.location = location.rstrip("/")
        self._aws: Any = None
        if location.startswith("s3://"):
            from deeplearning.aws import AwsClient

            self._aws = AwsClient(region)
            self._bucket, _unused, self._prefix = self.location[5:].partition("/")

    def exists(self) -> bool:
        """Return whether this machine can read a manifest there."""
        from deeplearning.aws import AccessDenied

        try:
            self._bytes(manifest.FILE, 0, 1)
        except (AccessDenied, LookupError, OSError):
            return False
        return True

    def manifest(self) -> dict[str, Any]:
        try:
            return manifest.read(self._bytes(manifest.FILE, 0, manifest.MAX_BYTES), self.location)
        except (OSError, ValueError, LookupError, RecursionError) as error:
            raise UserError(
                f"{self.location} holds no data set that was staged whole ({error}): run stage.yml."
            ) from None

    def open(
        self, name: str, size: int, progress: Callable[[int], None], checksum: Checksum | None = None
    ) -> io.BufferedReader:
        """Open a part. `progress` is called with the size of each piece that was read."""

        def fetch(start: int, count: int) -> bytes:
            piece = self._bytes(name, start, count)
            if len(piece) != count:
                raise BadArchive(f"{self.location}/{name} is shorter than what was staged: run stage.yml again.")
            progress(count)
            if checksum:
                checksum.add(start, piece)
            return piece

        return io.BufferedReader(RangedReader(fetch, size))

    def _bytes(self, name: str, start: int = 0, count: int | None = None) -> bytes:
        if self._aws is None:
            with open(Path(self.location, name), "rb") as file:
                file.seek(start)
                return file.read(-1 if count is None else count)
        from deeplearning.aws import NotFound

        range_ = {} if count is None else {"Range": f"bytes={start}-{start + count - 1}"}
        try:
            piece: bytes = self._aws.read_object(self._bucket, f"{self._prefix}/{name}", **range_)
        except NotFound:
            raise LookupError(f"{name} does not exist") from None
        return piece
