"""Copy objects of S3 to files: several requests at a time, each for a piece that is written to its place in the file.

A file that is not complete has a hidden name. Behind the object's content it has a digest, which says of which object
and which pieces, and a mark for each piece that is on the disk. An interrupted copy fetches those without a mark.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from deeplearning.aws import PARALLEL_REQUESTS, RANGE_BYTES, AccessDenied, AwsClient, NotFound, retry
from deeplearning.concurrency import in_order
from deeplearning.contract.errors import UserError
from deeplearning.data.sources import Progress, has_size, md5_of, require_space

DIGEST_BYTES = hashlib.sha256().digest_size
MARK = b"\1"


class S3Object(NamedTuple):
    bucket: str
    key: str
    size: int
    tag: str

    @property
    def md5(self) -> str:
        """Return its MD5, or nothing. That of an object that was uploaded in parts is not known."""
        tag = self.tag.strip('"')
        return tag if len(tag) == 32 else ""

    def is_at(self, file: Path) -> bool:
        """Return whether a file is a copy."""
        return has_size(file, self.size) and (not self.md5 or md5_of(file) == self.md5)


def fetch_s3(aws: AwsClient, bucket: str, prefix: str, folder: Path, progress: Progress) -> None:
    """Download all objects below a prefix, or the one of that name."""
    # An object may be removed or replaced after it was listed.
    retry(lambda: _fetch_listed(aws, bucket, prefix, folder, progress), NotFound)


def _fetch_listed(aws: AwsClient, bucket: str, prefix: str, folder: Path, progress: Progress) -> None:
    objects = _listed(aws, bucket, prefix, folder)
    present = in_order((partial(item.is_at, file) for file, item in objects.items()), PARALLEL_REQUESTS)
    copies = [_Copy(aws, item, file) for (file, item), is_there in zip(objects.items(), present) if not is_there]
    progress.total = progress.done + sum(copy.missing for copy in copies)
    require_space(folder, progress.total - progress.done)
    aws.client("s3")
    for take in in_order((call for copy in copies for call in copy.calls()), PARALLEL_REQUESTS):
        progress.add(take())


def _listed(aws: AwsClient, bucket: str, prefix: str, folder: Path) -> dict[Path, S3Object]:
    """Return the files to have in a folder, with the objects that they are copies of."""

    objects_below = partial(aws.pages, "s3", "list_objects_v2", "Contents", Bucket=bucket)
    base = prefix if prefix.endswith("/") or not prefix else f"{prefix}/"
    # With the slash first: members may list `imagenet/`, and not all that begins with `imagenet`.
    objects = objects_below(Prefix=base)
    # They may not list the second: then nothing is there for them.
    with contextlib.suppress(AccessDenied):
        objects = objects or [item for item in objects_below(Prefix=prefix) if item["Key"] == prefix]
    names = {item["Key"][len(base) :] or item["Key"].rsplit("/", 1)[-1]: item for item in objects}
    files = {
        _inside(folder, name): S3Object(bucket, item["Key"], item["Size"], item["ETag"])
        for name, item in names.items()
        if not name.endswith("/")
    }
    if not files:
        raise UserError(
            f"s3://{bucket}/{prefix} holds nothing: check its name, and whether cluster_s3_read contains it."
        )
    return files


def _inside(folder: Path, name: str) -> Path:
    """Return the path of an object below a folder. Anybody who may write to the bucket chooses the name."""
    if name.startswith("/") or ".." in Path(name).parts:
        raise UserError(f"an object is called {name!r}, which is no path below a folder: leave it out of the data.")
    return folder / name


Take = Callable[[], int]
"""To be called for the pieces of an object in their order. Returns how many bytes came from S3."""


class _Copy:
    """The copy of an object. Pieces are fetched by several threads; a single one needs no marks."""

    def __init__(self, aws: AwsClient, item: S3Object, file: Path) -> None:
        self._aws, self._item, self._file = aws, item, file
        self._partial = file.with_name(f".{file.name}.coming")
        self._pieces = range(0, item.size, RANGE_BYTES)
        self._digest = hashlib.sha256(f"{item} {RANGE_BYTES}".encode()).digest()
        self._marks = self._read_marks() if len(self._pieces) > 1 else b""

    def _read_marks(self) -> bytes:
        """Return the marks of an earlier attempt, or none."""
        with contextlib.suppress(FileNotFoundError), open(self._partial, "rb") as file:
            length = DIGEST_BYTES + len(self._pieces)
            file.seek(self._item.size)
            end = file.read(length + 1)
            if end.startswith(self._digest) and len(end) == length:
                return end[DIGEST_BYTES:]
        return bytes(len(self._pieces))

    def _length(self, start: int) -> int:
        return min(RANGE_BYTES, self._item.size - start)

    @property
    def missing(self) -> int:
        """Return how many bytes are to be fetched."""
        marked = (start for start, mark in zip(self._pieces, self._marks) if mark)
        return self._item.size - sum(map(self._length, marked))

    def calls(self) -> Iterator[Callable[[], Take]]:
        """Yield the calls that fetch it."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._md5 = hashlib.md5(usedforsecurity=False)
        if len(self._pieces) < 2:
            yield self._fetch_whole
            return
        if not any(self._marks):
            with open(self._partial, "wb") as new:
                # Not by posix_fallocate, which writes to each block of a file system such as EFS.
                new.truncate(self._item.size)
                new.seek(self._item.size)
                new.write(self._digest + self._marks)
        self._output = open(self._partial, "r+b", buffering=0)  # noqa: SIM115 - until all pieces are there
        yield from (partial(self._fetch_piece, index) for index in range(len(self._pieces)))

    def _fetch_whole(self) -> Take:
        content = self._fetch(0) if self._item.size else bytearray()
        self._md5.update(content)
        self._partial.write_bytes(content)
        self._complete()
        return lambda: self._item.size

    def _fetch_piece(self, index: int) -> Take:
        start, descriptor = self._pieces[index], self._output.fileno()
        if self._marks[index]:
            known = os.pread(descriptor, self._length(start), start) if self._item.md5 else b""
            return partial(self._take, index, known, 0)
        content = self._fetch(start)
        written = 0
        while written < len(content):
            written += os.pwrite(descriptor, memoryview(content)[written:], start + written)
        # The mark must not reach the disk before the piece.
        os.fdatasync(descriptor)
        os.pwrite(descriptor, MARK, self._item.size + DIGEST_BYTES + index)
        return partial(self._take, index, content if self._item.md5 else b"", len(content))

    def _fetch(self, start: int) -> bytearray:
        count = self._length(start)
        try:
            content = self._aws.read_range(self._item.bucket, self._item.key, start, count, IfMatch=self._item.tag)
        except NotFound:
            self._partial.unlink(missing_ok=True)
            raise
        if len(content) != count:
            self._refuse()
        return content

    def _take(self, index: int, content: bytes | bytearray, fetched: int) -> int:
        self._md5.update(content)
        if index + 1 == len(self._pieces):
            self._output.truncate(self._item.size)
            self._output.close()
            self._complete()
        return fetched

    def _complete(self) -> None:
        if self._item.md5 not in ("", self._md5.hexdigest()):
            # With a key of KMS, an object's tag only looks like its MD5.
            described = self._aws.call("s3", "head_object", Bucket=self._item.bucket, Key=self._item.key)
            if "kms" not in described.get("ServerSideEncryption", ""):
                self._refuse()
        os.replace(self._partial, self._file)

    def _refuse(self) -> None:
        self._partial.unlink(missing_ok=True)
        raise UserError(
            f"s3://{self._item.bucket}/{self._item.key} differs from what S3 lists: run the same command again."
        )
