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
from collections.abc import Iterator
from io import BytesIO, RawIOBase
from pathlib import Path
from typing import IO, Any

from ansible_collections.deeplearning.aws.plugins.plugin_utils._untrusted import Malformed, one_line

FILES = ("run.json", "result.json", "state.json")
METRICS = re.compile(r"metrics/rank[0-9]{1,5}\.jsonl")

MOST_PACKED = 128 << 20
MOST_UNPACKED = 1 << 30
LARGEST_FILE = 64 << 20


def packing(folder: str) -> str:
    """The shell command with which a node packs a run."""
    quoted = shlex.quote(folder)
    missing = f"{{ echo There is no run in {quoted}. >&2; exit 2; }}"
    metrics = f"-regextype posix-extended -regex {shlex.quote(METRICS.pattern)}"
    names = f"{{ ls -d {' '.join(FILES)}; find -L metrics -maxdepth 1 -type f {metrics}; }} 2>/dev/null"
    # 1 says that a file has grown meanwhile.
    return (
        f"cd {quoted} 2>/dev/null && [ -e run.json ] || {missing}; "
        f"{names} | tar -chzf - --hard-dereference -T - || [ $? = 1 ]"
    )


def unpack(packed: bytes, folder: Path) -> None:
    """Replace the folder. Raises Malformed, and leaves it as it was, if a node sends anything else."""
    new = folder.with_name(f".{folder.name}.new")
    if new.exists():
        shutil.rmtree(new)
    (new / "metrics").mkdir(parents=True)
    try:
        for name, content in _files(packed):
            (new / name).write_bytes(content)
    except Malformed:
        shutil.rmtree(new)
        raise
    if folder.exists():
        shutil.rmtree(folder)
    new.rename(folder)


def _files(packed: bytes) -> Iterator[tuple[str, bytes]]:
    """The files in an archive, each with its content."""
    seen, left = set(), MOST_UNPACKED
    try:
        with gzip.open(BytesIO(packed)) as plain, tarfile.open(fileobj=_Bounded(plain), mode="r|") as archive:
            for member in archive:
                _check(member)
                left -= member.size
                if member.name in seen or left < 0:
                    raise Malformed(f"it has more than {MOST_UNPACKED >> 20} MiB, or a file twice")
                seen.add(member.name)
                opened: IO[bytes] | None = archive.extractfile(member)
                content = opened.read() if opened else b""
                yield member.name, content
    except Malformed:
        raise
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise Malformed(f"its archive cannot be read, {one_line(str(error))}") from None


def _check(member: tarfile.TarInfo) -> None:
    if member.name not in FILES and not METRICS.fullmatch(member.name):
        raise Malformed(f"it holds {one_line(member.name)[:100]!r}")
    # A sparse file is small in the archive, and as large on the disk as it says.
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
        raise Malformed(f"its {member.name} is no regular file")
    if member.size > LARGEST_FILE:
        raise Malformed(f"its {member.name} has {member.size} bytes, and the largest has {LARGEST_FILE >> 20} MiB")


class _Bounded(RawIOBase):
    """Ends an archive that unpacks to more than anything of ours."""

    def __init__(self, plain: Any) -> None:
        # As much again for what is not content.
        self._plain, self._left = plain, 2 * MOST_UNPACKED

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._plain.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            raise Malformed(f"it unpacks to more than {2 * MOST_UNPACKED >> 20} MiB")
        return content
