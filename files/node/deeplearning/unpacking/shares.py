"""Which files of an archive are whose: shares that lie side by side, without a gap and without an overlap."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from tarfile import HeaderError, ReadError, TarFile
from typing import IO, Callable

from deeplearning import Refusal

BLOCK = tarfile.BLOCKSIZE
LOOK_BACK = 64 * BLOCK
"""Long names stand in headers of their own before the file's: whoever begins in between has to begin earlier."""


class BadArchive(Refusal):
    """What a part holds cannot be used, so nothing that came of it is kept."""


@dataclass(frozen=True)
class File:
    name: str
    size: int
    open: Callable[[], IO[bytes]]


@dataclass
class Extent:
    """From where to where a share was read, if anything begins in it: the next one's begin has to be this one's end."""

    begin: int = -1
    end: int = -1


class Member(tarfile.TarInfo):
    """tarfile takes a header that is damaged, or missing, for the archive's end."""

    @classmethod
    def fromtarfile(cls, tarfile: TarFile) -> Member:
        try:
            return super().fromtarfile(tarfile)
        except HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":
                raise
            raise ReadError(f"no header at {tarfile.offset}: {error}") from None


def fit_together(extents: Sequence[Extent], size: int) -> bool:
    """Whether nothing lies between shares, and nothing in two."""
    ends = [0]
    for extent in extents:
        if extent.begin >= 0:
            if extent.begin != ends[-1]:
                return False
            ends.append(extent.end)
    return ends[-1] == size


def bounds(size: int, share: int, shares: int) -> tuple[int, int]:
    return size * share // shares, size * (share + 1) // shares


def zip_share(archive: zipfile.ZipFile, size: int, share: int, shares: int) -> Iterator[File]:
    """By where they begin in the archive; the list at its end names all of them."""
    begin, end = bounds(size, share, shares)
    for member in sorted(archive.infolist(), key=lambda one: one.header_offset):
        if begin <= member.header_offset < end and not member.is_dir():
            yield File(member.filename, member.file_size, partial(archive.open, member))


def tar_share(opened: io.BufferedReader, size: int, share: int, shares: int, extent: Extent) -> Iterator[File]:
    """A tar archive has no list: a share begins at the first header that is found in it."""
    begin, end = bounds(size, share, shares)
    start = 0 if share == 0 else _header_after(opened, max(0, begin - LOOK_BACK), end)
    if start is None:
        return
    opened.seek(start)
    with tarfile.open(fileobj=_From(opened, start), mode="r:", tarinfo=Member) as archive:
        for member in archive:
            # Its first header, the one with a long name included.
            place = start + member.offset
            if place < begin:
                continue
            if place >= end:
                extent.end = place
                return
            if extent.begin < 0:
                extent.begin = place
            # What was seen is not kept: there may be millions.
            archive.members = []  # type: ignore[attr-defined]
            if member.isfile():
                yield File(member.name, member.size, partial(content, archive, member))
            elif not member.isdir():
                raise BadArchive(f"{member.name} in the archive is neither a file nor a folder: pack it without.")
    extent.end = size


def content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    found = archive.extractfile(member)
    if found is None:
        raise BadArchive(f"{member.name} in the archive is no file: pack it without.")
    return found


def _header_after(opened: io.BufferedReader, begin: int, end: int) -> int | None:
    place = -(-begin // BLOCK) * BLOCK
    opened.seek(place)
    while place < end:
        block = opened.read(BLOCK)
        if len(block) < BLOCK:
            return None
        if block[257:262] == b"ustar" and _sum_is_right(block):
            return place
        place += BLOCK
    return None


def _sum_is_right(block: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


class _From(io.RawIOBase):
    """The rest of an archive, as if it were one."""

    def __init__(self, opened: io.BufferedReader, start: int) -> None:
        self._opened, self._start = opened, start

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._opened.tell() - self._start

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._opened.seek(offset + (self._start if whence == io.SEEK_SET else 0), whence) - self._start

    def read(self, size: int = -1) -> bytes:
        return self._opened.read(size)
