"""Divide the files of an archive into shares, without a gap and without an overlap."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Callable

from deeplearning.contract.archives import StrictTarInfo
from deeplearning.contract.errors import UserError

BLOCK = tarfile.BLOCKSIZE
LOOK_BACK = 64 * BLOCK
"""A long name has a header of its own before the file's, so the search for a first header begins earlier."""


class BadArchive(UserError):
    """A part cannot be used, so nothing that was unpacked from it is kept."""


@dataclass(frozen=True)
class File:
    name: str
    size: int
    open: Callable[[], IO[bytes]]


@dataclass
class Extent:
    """The range in which a share was read, if any file begins in it. The next one has to begin at its end."""

    begin: int = -1
    end: int = -1


def fit_together(extents: Sequence[Extent], size: int) -> bool:
    """Return whether the shares have neither gaps nor overlaps."""
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
    """Yield the files that begin in a share. The list at the archive's end names all of them."""
    begin, end = bounds(size, share, shares)
    for member in sorted(archive.infolist(), key=lambda member: member.header_offset):
        if begin <= member.header_offset < end and not member.is_dir():
            yield File(member.filename, member.file_size, partial(archive.open, member))


def tar_share(opened: io.BufferedReader, size: int, share: int, shares: int, extent: Extent) -> Iterator[File]:
    """Yield the files that begin in a share. A tar archive has no list: the share begins at its first header."""
    begin, end = bounds(size, share, shares)
    start = 0 if share == 0 else _header_after(opened, max(0, begin - LOOK_BACK), end)
    if start is None:
        return
    opened.seek(start)
    # tarfile begins at the file's position.
    with tarfile.open(fileobj=opened, mode="r:", tarinfo=StrictTarInfo) as archive:
        for member in archive:
            # The position of its first header, which may be that of a long name.
            position = member.offset
            if position < begin:
                continue
            if position >= end:
                extent.end = position
                return
            if extent.begin < 0:
                extent.begin = position
            # Do not keep the members: there may be millions.
            archive.members = []  # type: ignore[attr-defined]
            if member.isfile():
                yield File(member.name, member.size, partial(content, archive, member))
            elif not member.isdir():
                raise BadArchive(f"{member.name} in the archive is neither a file nor a folder: pack it without.")
    extent.end = size


def content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    packed = archive.extractfile(member)
    if packed is None:
        raise BadArchive(f"{member.name} in the archive is no file: pack it without.")
    return packed


def _header_after(opened: io.BufferedReader, begin: int, end: int) -> int | None:
    position = -(-begin // BLOCK) * BLOCK
    opened.seek(position)
    while position < end:
        block = opened.read(BLOCK)
        if len(block) < BLOCK:
            return None
        if block[257:262] == b"ustar" and _has_valid_checksum(block):
            return position
        position += BLOCK
    return None


def _has_valid_checksum(block: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True
