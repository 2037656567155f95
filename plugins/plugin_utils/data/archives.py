# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Check that nodes can unpack an archive without a published checksum, before it is sent."""

from __future__ import annotations

import contextlib
import gzip
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from ...module_utils.contract.archives import StrictTarInfo
from ...module_utils.contract.datasets import DatasetFile
from ...module_utils.contract.errors import UserError

Progress = Callable[[int], None]
"""Called with the position in the file."""


def check(part: DatasetFile, file: Path, progress: Progress) -> None:
    """Raise UserError for an archive that is damaged or cut off, or has names that lead out of its folder."""
    with damage(part, file):
        if part.kind == "zip":
            _zip(part, file, progress)
        elif part.kind in ("tar", "tar.gz"):
            with file.open("rb") as opened:
                _tar(part, opened, progress)


@contextlib.contextmanager
def damage(part: DatasetFile, file: Path) -> Iterator[None]:
    """Turn the errors of a damaged archive into messages."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UserError(f"{file} is not a complete archive ({error}): fetch or pack it again.") from None
    except (RuntimeError, NotImplementedError) as error:
        raise UserError(
            f"{file} cannot be unpacked ({error}): pack it in another way. Example: {_tar_of(part)}"
        ) from None


def _zip(part: DatasetFile, file: Path, progress: Progress) -> None:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            _check_name(part, member.filename)
            with archive.open(member) as content, Path("/dev/null").open("wb") as sink:
                shutil.copyfileobj(content, sink, 1 << 20)
            progress(member.header_offset)


def _tar(part: DatasetFile, opened: IO[bytes], progress: Progress) -> None:
    is_packed = part.kind == "tar.gz"
    plain = cast("IO[bytes]", gzip.GzipFile(fileobj=opened)) if is_packed else opened
    with tarfile.open(fileobj=plain, mode="r|" if is_packed else "r:", tarinfo=StrictTarInfo) as archive:
        for member in archive:
            _check_name(part, member.name)
            _check_type(part, member)
            archive.members = []  # type: ignore[attr-defined]  # of those already seen: there may be millions
            progress(opened.tell())
    # The checksum of all is at the end.
    while is_packed and plain.read(1 << 20):
        progress(opened.tell())


def _check_name(part: DatasetFile, name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise UserError(f"{part.name} has a file {name!r}, which leads out of its folder: pack it without that file.")


def _check_type(part: DatasetFile, member: tarfile.TarInfo) -> None:
    if not (member.isfile() or member.isdir()):
        raise UserError(
            f"{part.name} has {member.name}, which is neither a file nor a folder: pack what it points to. "
            f"Example: {_tar_of(part, '--dereference ')}"
        )


def _tar_of(part: DatasetFile, option: str = "") -> str:
    return f"tar {option}-cf {part.name.partition('.')[0]}.tar FOLDER"
