"""The files in a part of a data set, in the order in which it holds them."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Callable, cast

from deeplearning.contract.archives import StrictTarInfo
from deeplearning.contract.errors import UserError


class BadArchive(UserError):
    """A part cannot be used, so nothing that was unpacked from it is kept."""


@dataclass(frozen=True)
class File:
    name: str
    size: int
    open: Callable[[], IO[bytes]]


def files_of(opened: IO[bytes], part: Mapping[str, Any]) -> Iterator[File]:
    kind = part["kind"]
    if kind == "file":
        yield File(part["name"], part["size"], lambda: opened)
    elif kind == "zip":
        yield from _zipped(opened)
    else:
        yield from _tarred(opened, is_packed=kind == "tar.gz")


def _zipped(opened: IO[bytes]) -> Iterator[File]:
    with zipfile.ZipFile(opened) as archive:
        for member in sorted(archive.infolist(), key=lambda member: member.header_offset):
            if not member.is_dir():
                yield File(member.filename, member.file_size, partial(archive.open, member))


def _tarred(opened: IO[bytes], is_packed: bool) -> Iterator[File]:
    """Skip links and devices in a tar.gz, because published sources contain them. Refuse them in a tar."""
    with tarfile.open(fileobj=opened, mode="r|gz" if is_packed else "r:", tarinfo=StrictTarInfo) as archive:
        for member in archive:
            # Do not keep the members: there may be millions.
            archive.members = []  # type: ignore[attr-defined]
            if member.isfile():
                # It returns None for what is no file.
                content = cast("Callable[[], IO[bytes]]", partial(archive.extractfile, member))
                yield File(member.name, member.size, content)
            elif not (member.isdir() or is_packed):
                raise BadArchive(f"{member.name} in the archive is neither a file nor a folder: pack it without.")
