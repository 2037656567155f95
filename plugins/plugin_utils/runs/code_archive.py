# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A script of this machine and the folder with what it needs, packed to be sent to the nodes.

Files that usually hold passwords or private keys stay on this machine, unless they are included by their paths.
"""

from __future__ import annotations

import enum
import io
import os
import re
import stat
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath

from ...module_utils.contract.errors import UserError

MOST_BYTES = 256 << 20
EXCLUDED = frozenset({".git", ".deeplearning", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
SECRET = (
    *(".env", ".env.*", ".envrc", ".netrc", ".git-credentials", ".pypirc", ".npmrc", "kaggle.json"),
    *(".aws", ".docker", ".gnupg", ".kube", ".ssh"),
    *("credentials*", "secrets.*", "service-account*.json", "*.tfstate", "*.tfstate.*"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.ppk", "*.p12", "*.pfx"),
)
"""Names of files and folders that hold passwords or private keys, in small letters. They stay on this machine."""
SOURCE_SUFFIXES = frozenset(
    {
        *(".py", ".pyi", ".pyx", ".pxd", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".cu", ".cuh"),
        *(".go", ".java", ".jl", ".js", ".kt", ".lua", ".proto", ".r", ".rs", ".scala", ".ts"),
    }
)
"""Endings of source code, which is sent whatever its name is, unless that begins with a dot."""
CERTIFICATE_PATTERNS = frozenset({"*.pem", "*.key"})
"""Those of SECRET that are also names of certificates, which are sent."""
SEARCHED_SUFFIXES = frozenset({".crt", ".cer", ".cert", ".json"})
"""Endings of other files in which a private key may be anywhere. A file of another name begins with it."""
MOST_SEARCHED = 4 << 20
LONGEST_HEADER = 100
"""Bytes that are searched."""
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")
_CERTIFICATE = re.compile(rb"-----BEGIN [A-Z0-9 ]+-----")


@dataclass(frozen=True)
class Packed:
    archive: bytes
    """A tar.gz."""
    script: str
    """The path of the script in it."""
    left_out: tuple[str, ...] = ()
    """The paths of files and folders that may hold secrets."""


@dataclass(frozen=True)
class Content:
    """What is sent."""

    files: dict[str, Path]
    """By their paths in the archive."""
    script: str
    left_out: tuple[str, ...] = ()


def pack(script: Path, folder: Path | None, include: Sequence[str] = ()) -> Packed:
    """Pack the folder's content and the script. A script within the folder keeps its path, another is at the top.

    If the script is a link, the file that it leads to is packed and started. `include`: paths in the folder of what is
    packed although it may hold secrets.
    """
    content = select(script, folder, include)
    try:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            for path_in_archive, path in sorted(content.files.items()):
                archive.add(path, path_in_archive, recursive=False, filter=_without_owner)
    except OSError as error:
        raise _unreadable(error, script) from None
    return Packed(packed.getvalue(), content.script, content.left_out)


def select(script: Path, folder: Path | None, include: Sequence[str] = ()) -> Content:
    """Return what `pack` packs, and what it leaves out."""
    try:
        return _select(script, folder, include)
    except OSError as error:
        raise _unreadable(error, script) from None


def is_secret_path(path: PurePath) -> bool:
    """Return whether the name of a file or of one of its folders is that of a secret."""
    *folders, name = path.parts
    return any(_is_secret_folder(folder) for folder in folders) or _is_secret_name(name)


def _unreadable(error: OSError, script: Path) -> UserError:
    return UserError(f"{error.filename or script} cannot be read: {error.strerror}.")


def _select(script: Path, folder: Path | None, include: Sequence[str]) -> Content:
    files: dict[str, Path] = {}
    left_out: set[str] = set()
    if folder:
        included = frozenset(_included_path(folder, text) for text in include)
        for entry in _walk(folder, PurePosixPath(), included, _Rule.ALL):
            if entry.is_secret:
                left_out.add(entry.name)
            else:
                files[entry.name] = folder / entry.name
        _check_included(included, files, folder)
    elif include:
        raise UserError(
            f"code_include is {', '.join(include)}: without a folder only the script is sent. Name the folder that has "
            "the file. Example: -e sync=src"
        )
    name = _script_name(script, folder)
    files[name] = script.resolve()
    # Other people may have made the link. A file that is named itself is meant.
    if script.is_symlink() and is_secret_path(files[name]):
        raise UserError(
            f"script is {script}, a link to {files[name]}, whose name is that of a file with secrets: name "
            "the script itself."
        )
    size = sum(path.lstat().st_size for path in files.values())
    if size > MOST_BYTES:
        raise UserError(
            f"What is sent with {name} holds {size / 2**20:.0f} MiB: that is more than code. Leave data out, and pass "
            "it as data. Example: -e dataset=s3://bucket/prefix"
        )
    return Content(files, name, tuple(sorted(left_out - {name})))


def _script_name(script: Path, folder: Path | None) -> str:
    """Return the path of the script in the archive."""
    file = script.resolve()
    root = folder.resolve() if folder else None
    if root and file.is_relative_to(root):
        return str(file.relative_to(root))
    return script.name


def _included_path(folder: Path, text: str) -> PurePosixPath:
    """Return a path in the folder. It may also be written relative to the current folder, or as an absolute one."""
    path = Path(text).expanduser()
    if not path.is_absolute() and os.path.lexists(folder / path):
        return PurePosixPath(os.path.normpath(path))
    absolute = Path(os.path.abspath(path))
    root = Path(os.path.abspath(folder))
    if absolute.is_relative_to(root):
        return PurePosixPath(absolute.relative_to(root))
    return PurePosixPath(os.path.normpath(path))


def _check_included(included: frozenset[PurePosixPath], files: dict[str, Path], folder: Path) -> None:
    """Raise UserError for a path at which nothing is sent."""
    sent = {PurePosixPath(name) for name in files}
    for path in sorted(included):
        if not any(name == path or path in name.parents for name in sent):
            raise UserError(
                f"code_include is {path}, and nothing of that path can be sent: give the path of a file in {folder} as "
                "the list of what is left out shows it. Example: -e '{\"code_include\": [\"config/credentials.json\"]}'"
            )


@dataclass(frozen=True)
class _Entry:
    name: str
    """The path in the folder."""
    is_secret: bool


class _Rule(enum.Enum):
    """What is sent of a folder, besides what is included by its path."""

    ALL = enum.auto()
    """All but what may hold secrets."""
    SOURCE = enum.auto()
    """Source code alone, as the name of the folder is that of secrets."""
    NOTHING = enum.auto()


def _walk(root: Path, place: PurePosixPath, included: frozenset[PurePosixPath], rule: _Rule) -> Iterator[_Entry]:
    """Yield the files and links at a place in a folder, and the files and folders that may hold secrets."""
    for child in _children(root / place):
        path = place / child.name
        # In a submodule .git is a file.
        if child.name in EXCLUDED:
            continue
        is_included = any(each in included for each in (path, *path.parents))
        if child.is_symlink() or not child.is_dir():
            is_sent = is_included or _may_be_sent(Path(child.path), rule)
            yield _Entry(str(path), not is_sent)
            continue
        holds_included = any(path in each.parents for each in included)
        inner_rule = _Rule.ALL if is_included else _stricter(rule, child.name)
        if inner_rule is _Rule.NOTHING and not holds_included:
            yield _Entry(str(path), True)
        else:
            yield from _walk(root, path, included, inner_rule)


def _children(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except PermissionError:
        return []


def _stricter(rule: _Rule, folder_name: str) -> _Rule:
    """Return the rule for a folder in another one."""
    if rule is _Rule.NOTHING or _is_secret_folder(folder_name):
        return _Rule.NOTHING
    if rule is _Rule.SOURCE or _is_secret_name(folder_name):
        return _Rule.SOURCE
    return _Rule.ALL


def _may_be_sent(file: Path, rule: _Rule) -> bool:
    """Return whether a file or link is sent by a rule."""
    name = file.name.lower()
    if rule is _Rule.NOTHING:
        return False
    if _is_source(name):
        return True
    if rule is _Rule.SOURCE:
        return False
    if _matches(name) and _matches(name) <= CERTIFICATE_PATTERNS:
        return _is_certificate(file)
    return not _is_secret_name(name) and not _has_private_key(file)


def _is_source(name: str) -> bool:
    return not name.startswith(".") and PurePath(name).suffix in SOURCE_SUFFIXES


def _is_secret_name(name: str) -> bool:
    lowered = name.lower()
    return bool(_matches(lowered)) and not _is_source(lowered)


def _is_secret_folder(name: str) -> bool:
    """Return whether nothing in a folder is sent. Of `credentials`, which may be a package, source code is."""
    return bool(_matches(name.lower()) - {"credentials*"})


def _matches(name: str) -> set[str]:
    return {pattern for pattern in SECRET if fnmatchcase(name, pattern)}


def _is_certificate(file: Path) -> bool:
    """Return whether a file holds certificates or public keys in text form, and no private key."""
    content = _beginning(file, MOST_SEARCHED)
    is_whole = len(content) < MOST_SEARCHED
    return is_whole and bool(_CERTIFICATE.search(content)) and not _PRIVATE_KEY.search(content)


def _has_private_key(file: Path) -> bool:
    if file.suffix.lower() in SEARCHED_SUFFIXES:
        return bool(_PRIVATE_KEY.search(_beginning(file, MOST_SEARCHED)))
    return bool(_PRIVATE_KEY.match(_beginning(file, LONGEST_HEADER).lstrip()))


def _beginning(file: Path, most: int) -> bytes:
    """Return the first bytes of a file. Links are not followed, and nothing else is read."""
    if not stat.S_ISREG(file.lstat().st_mode):
        return b""
    with file.open("rb") as opened:
        return opened.read(most)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """On the nodes the cluster's user owns it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
