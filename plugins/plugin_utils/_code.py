# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A script of this machine, and what belongs to it, packed to be sent to the nodes.

PRIVATE to the collection: it may change at any time.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST = 256 << 20
LEFT_OUT = frozenset({".git", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache"})


class TooMuch(Exception):
    """A sentence for people."""


@dataclass(frozen=True)
class Packed:
    archive: bytes
    script: str
    """where the script is in it"""


def pack(script: Path, folder: Path | None) -> Packed:
    """The folder's content and the script: at its place if it lies within the folder, else beside it."""
    files = {str(path.relative_to(folder)): path for path in _files(folder)} if folder else {}
    inside = folder and script.resolve().is_relative_to(folder.resolve())
    name = str(script.resolve().relative_to(folder.resolve())) if folder and inside else script.name
    files[name] = script
    size = sum(path.lstat().st_size for path in files.values())
    if size > MOST:
        raise TooMuch(
            f"sync is {folder}, which holds {size / 2**20:.0f} MiB: that is more than code. Give a smaller folder, and "
            "data as data. Example: -e data=s3://bucket/prefix"
        )
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for place, path in sorted(files.items()):
            archive.add(path, place, recursive=False, filter=nobodys)
    return Packed(packed.getvalue(), name)


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        links = [name for name in folders if Path(place, name).is_symlink()]
        yield from (Path(place, name) for name in [*names, *links])


def nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """On the nodes it is the cluster's user's, who may read all of it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode |= 0o644
    return member
