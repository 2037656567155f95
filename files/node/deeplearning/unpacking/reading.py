"""A file that is read in pieces from where it lies, in S3 or in a folder, without being copied first."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any, Callable

from deeplearning import Refusal
from deeplearning.unpacking import manifest
from deeplearning.unpacking.shares import BadArchive

AHEAD = 8 << 20
"""So much is read at once: archives of many small files are read from one end of a share to the other."""

Fetch = Callable[[int, int], bytes]
"""So many bytes from this place on."""


class Pieces(io.RawIOBase):
    """What can be sought in, as zipfile and tarfile ask for."""

    def __init__(self, fetch: Fetch, size: int) -> None:
        self._fetch, self.size = fetch, size
        self._place = 0
        self._start, self._piece = 0, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self.size - self._place)
        if wanted <= 0:
            return 0
        if not self._start <= self._place < self._start + len(self._piece):
            self._start = self._place
            self._piece = self._fetch(self._place, min(max(AHEAD, wanted), self.size - self._place))
        begin = self._place - self._start
        given = self._piece[begin : begin + wanted]
        buffer[: len(given)] = given
        self._place += len(given)
        return len(given)


class Checksum:
    """The SHA-256 of a file that is read in pieces, taken while an archive is read from its beginning to its end."""

    def __init__(self) -> None:
        self._sha256, self._done = hashlib.sha256(), 0

    def add(self, start: int, piece: bytes) -> None:
        if start <= self._done:
            self._sha256.update(piece[self._done - start :])
            self._done = max(self._done, start + len(piece))

    def complete(self, opened: io.BufferedReader) -> str:
        """Read what the archive had no use for, with a reader of its own that adds to this, and return the sum."""
        opened.seek(self._done)
        while opened.read(AHEAD):
            pass
        return self._sha256.hexdigest()


class Source:
    """A staged set: a manifest and its parts."""

    def __init__(self, place: str, region: str) -> None:
        self.place = place.rstrip("/")
        self._aws: Any = None
        if place.startswith("s3://"):
            from deeplearning.aws import Aws

            self._aws = Aws(region)
            self._bucket, _unused, self._prefix = self.place[5:].partition("/")

    def manifest(self) -> dict[str, Any]:
        try:
            return manifest.read(self._bytes(manifest.FILE, 0, manifest.LONGEST), self.place)
        except (OSError, ValueError, LookupError, RecursionError) as error:
            raise Refusal(f"{self.place} holds no data set that was staged whole ({error}): run stage.yml.") from None

    def open(
        self, name: str, size: int, told: Callable[[int], None], checksum: Checksum | None = None
    ) -> io.BufferedReader:
        """`told` of how much was read, whenever something was."""

        def fetch(start: int, count: int) -> bytes:
            piece = self._bytes(name, start, count)
            if len(piece) != count:
                raise BadArchive(f"{self.place}/{name} is shorter than what was staged: run stage.yml again.")
            told(count)
            if checksum:
                checksum.add(start, piece)
            return piece

        return io.BufferedReader(Pieces(fetch, size))

    def _bytes(self, name: str, start: int = 0, count: int | None = None) -> bytes:
        if self._aws is None:
            with open(Path(self.place, name), "rb") as file:
                file.seek(start)
                return file.read(-1 if count is None else count)
        from deeplearning.aws import Missing

        asked = {} if count is None else {"Range": f"bytes={start}-{start + count - 1}"}
        try:
            piece: bytes = self._aws.object(self._bucket, f"{self._prefix}/{name}", **asked)
        except Missing:
            raise LookupError(f"there is no {name}") from None
        return piece
