# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A script of this machine and the folder with what it needs, packed to be sent to the nodes."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ...module_utils.contract.errors import UserError

MOST_BYTES = 256 << 20
EXCLUDED = frozenset({".git", ".deeplearning", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
SECRET = (
    *(".env", ".env.*", ".envrc", ".netrc", ".git-credentials", ".pypirc", ".npmrc", "kaggle.json"),
    *(".aws", ".docker", ".gnupg", ".kube", ".ssh"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.ppk", "*.p12", "*.pfx"),
)
"""Names of files and folders that hold passwords or private keys, in small letters. They stay on this machine."""


@dataclass(frozen=True)
class Packed:
    archive: bytes
    """A tar.gz."""
    script: str
    """The path of the script in it."""
    left_out: tuple[str, ...] = ()
    """The paths of files and folders that may hold secrets."""


def pack(script: Path, folder: Path | None) -> Packed:
    """Pack the folder's content and the script. A script within the folder keeps its path, another is at the top.

    If the script is a link, the file that it leads to is packed and started.
    """
    try:
        return _pack(script, folder)
    except OSError as error:
        raise UserError(f"{error.filename or script} cannot be read: {error.strerror}.") from None


def _pack(script: Path, folder: Path | None) -> Packed:
    files, secrets = _files(folder) if folder else ({}, set())
    file, root = script.resolve(), folder and folder.resolve()
    name = str(file.relative_to(root)) if root and file.is_relative_to(root) else script.name
    files[name] = file
    size = sum(path.lstat().st_size for path in files.values())
    if size > MOST_BYTES:
        raise UserError(
            f"What is sent with {name} holds {size / 2**20:.0f} MiB: that is more than code. Leave data out, and pass "
            "it as data. Example: -e dataset=s3://bucket/prefix"
        )
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for path_in_archive, path in sorted(files.items()):
            archive.add(path, path_in_archive, recursive=False, filter=_without_owner)
    return Packed(packed.getvalue(), name, tuple(sorted(secrets - {name})))


def _files(folder: Path) -> tuple[dict[str, Path], set[str]]:
    """Return the files and links to send, and what may hold secrets, by their paths in the folder."""
    files, secrets = list[Path](), list[Path]()
    for parent, folders, names in os.walk(folder):
        inner = set(folders) - EXCLUDED
        folders[:] = sorted(name for name in inner if not _is_secret(name))
        links = [name for name in folders if Path(parent, name).is_symlink()]
        # In a submodule .git is a file.
        own = set(names) - EXCLUDED
        files += [Path(parent, name) for name in [*own, *links] if not _is_secret(name)]
        secrets += [Path(parent, name) for name in own | inner if _is_secret(name)]
    return {str(path.relative_to(folder)): path for path in files}, {str(path.relative_to(folder)) for path in secrets}


def _is_secret(name: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in SECRET)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """On the nodes the cluster's user owns it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
