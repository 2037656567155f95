"""Read a file in pieces from S3 or from a folder, without copying it first."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Union

from deeplearning.aws import PARALLEL_REQUESTS, RANGE_BYTES, AccessDenied, AwsClient, NotFound
from deeplearning.contract import manifest
from deeplearning.contract.errors import UserError
from deeplearning.data.packed import BadArchive

Bytes = Union[bytes, bytearray]
Fetch = Callable[[int, int], Bytes]
"""Returns so many bytes from a position on. Several threads call it."""


class RangedReader(io.RawIOBase):
    """A file that can be sought in, as zipfile and tarfile require. It requests the next pieces while one is read.

    Archives of many small files are read from their beginning to their end. The longer it is read in order, the more
    pieces are requested ahead, twice as many each time.
    """

    def __init__(
        self,
        fetch: Fetch,
        size: int,
        taken: Callable[[int, Bytes], None] = lambda _start, _piece: None,
    ) -> None:
        """`taken` is called with each piece that is read and its position, in the order of reading."""
        self._fetch, self.size, self._taken = fetch, size, taken
        self._position = 0
        self._start, self._piece = 0, memoryview(b"")
        self._pool = ThreadPoolExecutor(PARALLEL_REQUESTS)
        self._ahead: deque[tuple[int, Future[Bytes]]] = deque()
        self._requested = self._window = 0

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
            self._start, piece = self._next_piece()
            self._piece = memoryview(piece)
        begin = self._position - self._start
        content = self._piece[begin : begin + count]
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)

    def _next_piece(self) -> tuple[int, Bytes]:
        """Return the piece at the position, and request those that follow it."""
        next_start = self._ahead[0][0] if self._ahead else self._requested
        if not next_start <= self._position < next_start + RANGE_BYTES:
            self._forget()
            self._requested = self._position
        if not self._ahead:
            self._window = 0
        self._piece = memoryview(b"")
        self._request(1)
        start, future = self._ahead.popleft()
        self._window = min(max(1, 2 * self._window), PARALLEL_REQUESTS - 1)
        self._request(self._window)
        piece = future.result()
        self._taken(start, piece)
        return start, piece

    def _request(self, pieces: int) -> None:
        while len(self._ahead) < pieces and self._requested < self.size:
            count = min(RANGE_BYTES, self.size - self._requested)
            self._ahead.append((self._requested, self._pool.submit(self._fetch, self._requested, count)))
            self._requested += count

    def _forget(self) -> None:
        """Cancel the requests that wait. Those that run end by themselves."""
        for _start, future in self._ahead:
            future.cancel()
        self._ahead.clear()

    def close(self) -> None:
        self._forget()
        self._pool.shutdown(wait=False)
        super().close()


class Checksum:
    """The SHA-256 of a file, computed while an archive is read in pieces from its beginning to its end."""

    def __init__(self) -> None:
        self._sha256, self._done = hashlib.sha256(), 0

    def add(self, start: int, piece: Bytes) -> None:
        if start <= self._done:
            self._sha256.update(memoryview(piece)[self._done - start :])
            self._done = max(self._done, start + len(piece))

    def complete(self, opened: io.BufferedReader) -> str:
        """Read what the archive did not need, with a reader that adds to this checksum, and return it."""
        opened.seek(self._done)
        while opened.read(RANGE_BYTES):
            pass
        return self._sha256.hexdigest()


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

    def open(
        self,
        name: str,
        size: int,
        progress: Callable[[int], None],
        checksum: Checksum | None = None,
    ) -> io.BufferedReader:
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

        def taken(start: int, piece: Bytes) -> None:
            progress(len(piece))
            if checksum:
                checksum.add(start, piece)

        return io.BufferedReader(RangedReader(fetch, size, taken))

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
