# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""The files of a run that a report needs: how a node packs them, and how they are unpacked on this machine.

The archive comes from a node and may hold anything. Only regular files with the names below are unpacked, up to a size,
and each is written separately: links, devices and other paths never reach this machine's disk.
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

from ansible_collections.deeplearning.aws.plugins.plugin_utils.untrusted import InvalidValue, one_line

FILES = ("run.json", "result.json", "state.json")
METRICS = re.compile(r"metrics/rank[0-9]{1,5}\.jsonl")

MOST_PACKED = 128 << 20
MOST_UNPACKED = 1 << 30
LARGEST_FILE = 64 << 20


def pack_command(folder: str) -> str:
    """Return the shell command that packs a run on a node."""
    quoted = shlex.quote(folder)
    missing = f"{{ echo There is no run in {quoted}. >&2; exit 2; }}"
    metrics = f"-regextype posix-extended -regex {shlex.quote(METRICS.pattern)}"
    names = f"{{ ls -d {' '.join(FILES)}; find -L metrics -maxdepth 1 -type f {metrics}; }} 2>/dev/null"
    # tar ends with 1 if a file has grown meanwhile.
    return (
        f"cd {quoted} 2>/dev/null && [ -e run.json ] || {missing}; "
        f"{names} | tar -chzf - --hard-dereference -T - || [ $? = 1 ]"
    )


def unpack(packed: bytes, folder: Path) -> None:
    """Replace the folder. Raise InvalidValue, and leave it as it was, if the archive holds anything else."""
    new = folder.with_name(f".{folder.name}.new")
    if new.exists():
        shutil.rmtree(new)
    (new / "metrics").mkdir(parents=True)
    try:
        for name, content in _files(packed):
            (new / name).write_bytes(content)
    except InvalidValue:
        shutil.rmtree(new)
        raise
    if folder.exists():
        shutil.rmtree(folder)
    new.rename(folder)


def _files(packed: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the files in an archive with their content."""
    seen, remaining = set(), MOST_UNPACKED
    try:
        with gzip.open(BytesIO(packed)) as plain, tarfile.open(fileobj=_LimitedReader(plain), mode="r|") as archive:
            for member in archive:
                _check(member)
                remaining -= member.size
                if member.name in seen or remaining < 0:
                    raise InvalidValue(f"it has more than {MOST_UNPACKED >> 20} MiB, or a file twice")
                seen.add(member.name)
                file: IO[bytes] | None = archive.extractfile(member)
                content = file.read() if file else b""
                yield member.name, content
    except InvalidValue:
        raise
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise InvalidValue(f"its archive cannot be read, {one_line(str(error))}") from None


def _check(member: tarfile.TarInfo) -> None:
    if member.name not in FILES and not METRICS.fullmatch(member.name):
        raise InvalidValue(f"it holds {one_line(member.name)[:100]!r}")
    # A sparse file is small in the archive, and may be large on the disk.
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
        raise InvalidValue(f"its {member.name} is no regular file")
    if member.size > LARGEST_FILE:
        raise InvalidValue(f"its {member.name} has {member.size} bytes, and the largest has {LARGEST_FILE >> 20} MiB")


class _LimitedReader(RawIOBase):
    """Raises InvalidValue for an archive that unpacks to more than any run has."""

    def __init__(self, plain: Any) -> None:
        # Twice as much, as headers and padding count too.
        self._plain, self._remaining = plain, 2 * MOST_UNPACKED

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._plain.read(min(size, self._remaining + 1) if size >= 0 else self._remaining + 1)
        self._remaining -= len(content)
        if self._remaining < 0:
            raise InvalidValue(f"it unpacks to more than {2 * MOST_UNPACKED >> 20} MiB")
        return content
