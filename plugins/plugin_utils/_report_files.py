# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The files of a run that a report is made of: how a node packs them, and how they are unpacked on this machine.

The archive comes from a node and may hold anything. Only regular files of the names below are taken from it, up to a
size, and each is written by itself: links, devices and paths have no way to this machine's disk.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
import tarfile
import zlib
from io import BytesIO, RawIOBase
from pathlib import Path
from typing import IO, Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils._untrusted import Malformed, one_line

FILES = ("run.json", "result.json", "events.jsonl")
METRICS = re.compile(r"metrics/rank[0-9]{1,5}\.jsonl")

MOST_PACKED = 64 << 20
MOST_UNPACKED = 256 << 20
LARGEST_FILE = 64 << 20


def packing(folder: str) -> str:
    """The shell command with which a node packs a run."""
    quoted = shlex.quote(folder)
    missing = f"{{ echo There is no run in {quoted}. >&2; exit 2; }}"
    names = f"ls -d {' '.join(FILES)} metrics/rank*.jsonl 2>/dev/null"
    # 1 says that a file has grown meanwhile.
    return f"cd {quoted} 2>/dev/null && [ -e run.json ] || {missing}; {names} | tar -chzf - -T - || [ $? = 1 ]"


def unpack(packed: bytes, folder: Path) -> None:
    """In place of what the folder has held. Raises Malformed, and leaves the folder as it was."""
    new = folder.with_name(f".{folder.name}.new")
    if new.exists():
        shutil.rmtree(new)
    (new / "metrics").mkdir(parents=True)
    try:
        with gzip.open(BytesIO(packed)) as plain, tarfile.open(fileobj=_Bounded(plain), mode="r|") as archive:
            for member in archive:
                (new / _name(member)).write_bytes(_content(archive, member))
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        shutil.rmtree(new)
        raise error if isinstance(error, Malformed) else Malformed(f"an archive, {one_line(str(error))}") from None
    if folder.exists():
        shutil.rmtree(folder)
    new.rename(folder)


def _name(member: tarfile.TarInfo) -> str:
    if member.name not in FILES and not METRICS.fullmatch(member.name):
        raise Malformed(f"it holds {one_line(member.name)[:100]!r}")
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise Malformed(f"its {member.name} is no regular file")
    if member.size > LARGEST_FILE:
        raise Malformed(f"its {member.name} has {member.size} bytes, and the largest has {LARGEST_FILE >> 20} MiB")
    return member.name


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    opened: IO[bytes] | None = archive.extractfile(member)
    return opened.read() if opened else b""


class _Bounded(RawIOBase):
    """Ends an archive that unpacks to more than anything of ours."""

    def __init__(self, plain: Any) -> None:
        self._plain, self._left = plain, MOST_UNPACKED

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._plain.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            raise Malformed(f"it unpacks to more than {MOST_UNPACKED >> 20} MiB")
        return content
