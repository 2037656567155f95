# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Whether nodes will be able to unpack an archive that nobody has published a checksum of: found out before it is sent.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from tarfile import HeaderError, ReadError, TarFile
from typing import IO, cast

from ansible_collections.deeplearning.aws.plugins.plugin_utils._stage_sets import Part, Unstageable

Told = Callable[[int], None]
"""how far it has come in the file"""


class _Member(tarfile.TarInfo):
    """tarfile takes a header that is damaged, or missing, for the archive's end."""

    @classmethod
    def fromtarfile(cls, tarfile: TarFile) -> _Member:
        try:
            return super().fromtarfile(tarfile)
        except HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":
                raise
            raise ReadError(f"no header at {tarfile.offset}: {error}") from None


def look_into(part: Part, file: Path, told: Told) -> None:
    """Refuses what is damaged or cut off, and names that lead elsewhere."""
    try:
        if part.kind == "zip":
            _zip(part, file, told)
        elif part.kind == "tar":
            with file.open("rb") as opened, tarfile.open(fileobj=opened, mode="r:", tarinfo=_Member) as archive:
                _tar(part, archive, opened, told)
        elif part.kind == "tar.gz":
            with file.open("rb") as opened:
                _tar_gz(part, opened, told)
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise Unstageable(f"{file} is no whole archive ({error}): fetch or pack it again.") from None
    except (RuntimeError, NotImplementedError) as error:
        raise Unstageable(f"{file} cannot be unpacked ({error}): pack it otherwise. Example: {_tar_of(part)}") from None


def _zip(part: Part, file: Path, told: Told) -> None:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            _leads_inside(part, member.filename)
            with archive.open(member) as content, Path("/dev/null").open("wb") as nowhere:
                shutil.copyfileobj(content, nowhere, 1 << 20)
            told(member.header_offset)


def _tar(part: Part, archive: tarfile.TarFile, opened: IO[bytes], told: Told) -> None:
    for member in archive:
        _leads_inside(part, member.name)
        _stands_for_itself(part, member)
        archive.members = []  # type: ignore[attr-defined]  # of what was seen: there may be millions
        told(opened.tell())


def _tar_gz(part: Part, opened: IO[bytes], told: Told) -> None:
    plain = cast("IO[bytes]", gzip.GzipFile(fileobj=opened))
    with tarfile.open(fileobj=plain, mode="r|", tarinfo=_Member) as archive:
        for member in archive:
            _leads_inside(part, member.name)
            if not part.url:
                # In what others publish nodes leave it out: whoever packed it is not asked to do so otherwise.
                _stands_for_itself(part, member)
            archive.members = []  # type: ignore[attr-defined]
            told(opened.tell())
    # The checksum of all is at the end.
    while plain.read(1 << 20):
        told(opened.tell())


def _leads_inside(part: Part, name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise Unstageable(f"{part.name} has a file {name!r}, which is no path below a folder: pack it without.")


def _stands_for_itself(part: Part, member: tarfile.TarInfo) -> None:
    if not (member.isfile() or member.isdir()):
        raise Unstageable(
            f"{part.name} has {member.name}, which is neither a file nor a folder: pack what it stands for. "
            f"Example: {_tar_of(part, '--dereference ')}"
        )


def _tar_of(part: Part, option: str = "") -> str:
    return f"tar {option}-cf {part.name.partition('.')[0]}.tar FOLDER"
