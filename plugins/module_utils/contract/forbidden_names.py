# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Names of files that are never written to the operator's machine, because programs there would run commands from them.

Training code chooses the names of its files. A shell prompt or an editor runs Git as soon as it sees a folder, and Git
runs what a repository's configuration names. A bare repository needs no folder `.git`: it is a folder with a certain
content. So names are refused one by one, and also where they would complete such a folder together.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

REPOSITORY = "Git would take it for a repository and run its commands"
CONFIGURATION = "Ansible would take it for its configuration"
HIDDEN = "its name begins with a dot"
SAME_NAME = "the file system does not distinguish its name from another one"

ALLOWED_HIDDEN_NAMES = frozenset(
    {
        ".metadata",  # PyTorch's distributed checkpoint
        *(".zarray", ".zattrs", ".zgroup", ".zmetadata"),  # checkpoints in Zarr: Orbax, Megatron
        ".hydra",  # the configuration of a script that uses Hydra
    }
)
"""The only names that may begin with a dot. No program runs anything from them."""

_GIT_NAMES = re.compile(r"\.git|git~[0-9]+")
"""The second is the short form of the first on file systems of Windows."""
_ANSIBLE_NAMES = re.compile(r"ansible\.cfg|ansibl~[0-9]+\.cfg")
_HEAD = "head"
_OTHER_PARTS = frozenset({"objects", "refs", "commondir"})
"""Next to a file HEAD, each of these makes a folder a repository. `commondir` names a folder that has the others."""


def folded(text: str) -> str:
    """Return a name as it is compared by file systems that ignore case.

    HFS+ also ignores invisible characters, and NTFS dots and spaces at the end.
    """
    if text.isascii():
        return text.lower().rstrip(". ")
    caseless = unicodedata.normalize("NFKC", text).casefold()
    visible = [character for character in caseless if unicodedata.category(character) != "Cf"]
    return unicodedata.normalize("NFKC", "".join(visible)).rstrip(". ")


def refusal_of_part(part: str) -> str:
    """Return why no file and no folder of this name is written; empty if it may be. `part`: a name without a slash."""
    name = folded(part)
    # NTFS opens the file before the colon.
    file_name = name.partition(":")[0].rstrip(". ")
    if _GIT_NAMES.fullmatch(file_name):
        return REPOSITORY
    if _ANSIBLE_NAMES.fullmatch(file_name):
        return CONFIGURATION
    begins_with_dot = part.startswith(".") or name.startswith(".")
    if begins_with_dot and part not in ALLOWED_HIDDEN_NAMES:
        return HIDDEN
    return ""


def repository_folders(names: Iterable[str]) -> set[str]:
    """Return the folders in which a name has a part of a repository. What they hold already has to be looked at."""
    folders = set()
    for name in names:
        parts = name.split("/")
        for position, part in enumerate(parts):
            if folded(part) == _HEAD or folded(part) in _OTHER_PARTS:
                folders.add("/".join(parts[:position]))
    return folders


class NameFilter:
    """Decides about the names of files, one after the other: some are harmless alone, and not together.

    `ignores_case`: whether the file system takes names that differ in case for one name. Repositories are recognized in
    any case, since the files may be copied to such a file system later.
    """

    def __init__(self, ignores_case: bool = False) -> None:
        self._ignores_case = ignores_case
        self._repository_parts: dict[str, set[str]] = {}
        self._files: dict[str, str] = {}
        self._folders: set[str] = set()

    def add_existing(self, name: str, is_folder: bool) -> None:
        """Remember a file or folder that exists already."""
        for folder, part in self._found_parts(name, is_folder):
            self._repository_parts.setdefault(folder, set()).add(part)

    def accept(self, name: str, is_folder: bool = False) -> str:
        """Return why a name is refused. If it is not, remember it and return an empty text."""
        for part in name.split("/"):
            reason = refusal_of_part(part)
            if reason:
                return reason
        found_parts = self._found_parts(name, is_folder)
        for folder, part in found_parts:
            if _is_repository(self._repository_parts.get(folder, set()) | {part}):
                return REPOSITORY
        if self._ignores_case and not is_folder and self._is_taken(name):
            return SAME_NAME
        for folder, part in found_parts:
            self._repository_parts.setdefault(folder, set()).add(part)
        return ""

    def _found_parts(self, name: str, is_folder: bool) -> list[tuple[str, str]]:
        """Return the parts of a repository in a name, each with the folder that it is in."""
        parts = [folded(part) for part in name.split("/")]
        found_parts = []
        for position, part in enumerate(parts):
            is_file = position == len(parts) - 1 and not is_folder
            if part in _OTHER_PARTS or (part == _HEAD and is_file):
                found_parts.append(("/".join(parts[:position]), part))
        return found_parts

    def _is_taken(self, name: str) -> bool:
        """Return whether another name is the same to the file system. If not, remember this one."""
        parts = [folded(part) for part in name.split("/")]
        key = "/".join(parts)
        folders = ["/".join(parts[:position]) for position in range(1, len(parts))]
        if key in self._folders or any(folder in self._files for folder in folders):
            return True
        if self._files.setdefault(key, name) != name:
            return True
        self._folders.update(folders)
        return False


def _is_repository(parts: set[str]) -> bool:
    return _HEAD in parts and not _OTHER_PARTS.isdisjoint(parts)
