# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A script of this machine and the folder with what it needs, packed to be sent to the nodes."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.deeplearning.aws.plugins.module_utils.contract.errors import UserError

MOST_BYTES = 256 << 20
EXCLUDED = frozenset({".git", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache"})


@dataclass(frozen=True)
class Packed:
    archive: bytes
    """A tar.gz."""
    script: str
    """The path of the script in it."""


def pack(script: Path, folder: Path | None) -> Packed:
    """Pack the folder's content and the script. A script within the folder keeps its path, another is at the top."""
    try:
        return _pack(script, folder)
    except OSError as error:
        raise UserError(f"{error.filename or script} cannot be read: {error.strerror}.") from None


def _pack(script: Path, folder: Path | None) -> Packed:
    files = {str(path.relative_to(folder)): path for path in _files(folder)} if folder else {}
    inside = folder and script.resolve().is_relative_to(folder.resolve())
    name = str(script.resolve().relative_to(folder.resolve())) if folder and inside else script.name
    files[name] = script
    size = sum(path.lstat().st_size for path in files.values())
    if size > MOST_BYTES:
        raise UserError(
            f"sync is {folder}, which holds {size / 2**20:.0f} MiB: that is more than code. Name a smaller folder, and "
            "pass data as data. Example: -e dataset=s3://bucket/prefix"
        )
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for path_in_archive, path in sorted(files.items()):
            archive.add(path, path_in_archive, recursive=False, filter=_without_owner)
    return Packed(packed.getvalue(), name)


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - EXCLUDED)
        links = [name for name in folders if Path(parent, name).is_symlink()]
        yield from (Path(parent, name) for name in [*names, *links])


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """On the nodes the cluster's user owns it, and all users may read it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode |= 0o644
    return member
