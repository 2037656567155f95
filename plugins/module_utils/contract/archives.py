# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Tar archives whose damage is noticed, and whose files have one checksum."""

from __future__ import annotations

import hashlib
import tarfile
from tarfile import HeaderError, ReadError, TarFile
from typing import IO

CHUNK = 1 << 20


class StrictTarInfo(tarfile.TarInfo):
    """Raise ReadError for a damaged or missing header, which tarfile takes for the archive's end."""

    @classmethod
    def fromtarfile(cls, tarfile: TarFile) -> StrictTarInfo:
        try:
            return super().fromtarfile(tarfile)
        except HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":
                raise
            raise ReadError(f"no header at {tarfile.offset}: {error}") from None


def files_sha256(opened: IO[bytes], strip: str) -> str:
    """Return the SHA-256 over the sorted list of the files in a .tar.gz: of what `sha256sum` prints for them.

    In the folder `strip`: find . -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum
    """
    lines = {}
    with tarfile.open(fileobj=opened, mode="r|gz", tarinfo=StrictTarInfo) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content:
                sha256 = hashlib.sha256()
                while chunk := content.read(CHUNK):
                    sha256.update(chunk)
                name = member.name[len(strip) + 1 :] if member.name.startswith(f"{strip}/") else f"/{member.name}"
                lines[name.encode("utf-8", "surrogateescape").replace(b"\n", b"\\n")] = sha256.hexdigest()
    listed = b"".join(sha256.encode() + b"  " + name + b"\n" for name, sha256 in sorted(lines.items()))
    return hashlib.sha256(listed).hexdigest()
