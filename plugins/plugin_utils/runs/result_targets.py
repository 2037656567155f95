# Copyright: (c) 2026, the deeplearning.aws contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Where the files of a run are put: a folder of this machine, or S3. What is there already is never replaced."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...module_utils.contract import run_files
from ...module_utils.contract.errors import UserError
from ..data.bucket import Bucket, file_sha256

PARTIAL = ".partial"
"""A folder for files that have not arrived completely. No file of a run is in one of that name."""


Transfer = Callable[[str, int, int], None]
"""Called with what is transferred, the bytes that are done, and all of them."""


@dataclass(frozen=True)
class RunFile:
    """A file in the master's list."""

    name: str
    size: int
    modified: int


@dataclass(frozen=True)
class ExistingEntry:
    """A file or folder that a target has already."""

    name: str
    is_folder: bool


def conflict(place: str, name: str) -> UserError:
    return UserError(
        f"{place}/{name} is there already, and is another file than that of the run. It stays as it is: move it away, "
        f"or name another place. Example: -e to={place}-new"
    )


def create_folders(root: Path, name: str) -> Path:
    """Create the folders of a file below `root`, which follow no link. Return the file's path."""
    *folders, last = name.split("/")
    path = root
    path.mkdir(parents=True, exist_ok=True)
    for each in folders:
        path /= each
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise UserError(f"{path} has to be a folder, and is a file or a link: move it away.")
    return path / last


@dataclass(frozen=True)
class LocalFolder:
    root: Path
    what: str
    transfer: Transfer

    @property
    def place(self) -> str:
        return str(self.root)

    @property
    def partial(self) -> Path:
        """Return the folder of this machine for files that have not arrived completely."""
        return self.root / PARTIAL / self.what

    def existing(self, file: RunFile) -> str:
        """Return the SHA-256 of a file that is there, empty if it is not. Raise UserError if another one is."""
        path = self._checked(file)
        if path is None:
            return ""
        size = path.stat().st_size
        if size == file.size:
            return file_sha256(path, lambda position: self.transfer(f"checking {file.name}", position, size))
        if size < file.size and run_files.KINDS[self.what].grows:
            return ""
        raise conflict(self.place, file.name)

    def entries(self, folders: Iterable[str]) -> Iterator[ExistingEntry]:
        """Yield what is in some folders already, and what has arrived of files for them."""
        for folder in folders:
            yield from _entries(self.root, folder)
            yield from _entries(self.partial, folder)

    def ignores_case(self) -> bool:
        return ignores_case(self.root)

    def require_room(self, sizes: Iterable[int]) -> None:
        """Raise UserError if files of these sizes do not fit on this machine."""
        _require_room(self.partial, sum(sizes), ", or name a folder of another disk. Example: -e to=/mnt/results")

    def store(self, file: RunFile, part: Path, sha256: str) -> None:
        """Take over a file that has arrived and was checked."""
        existing = self._checked(file)
        if existing and not (run_files.KINDS[self.what].grows and _begins_with(part, existing)):
            raise conflict(self.place, file.name)
        part.replace(create_folders(self.root, file.name))

    def _checked(self, file: RunFile) -> Path | None:
        """Return the path of a file that is there; None if nothing is."""
        path = self.root
        for part in file.name.split("/"):
            if path.is_symlink() and path != self.root:
                raise UserError(f"{path} has to be a folder, and is a link: move it away.")
            path /= part
        if not os.path.lexists(path):
            return None
        if not stat.S_ISREG(path.lstat().st_mode):
            raise conflict(self.place, file.name)
        return path


def _entries(root: Path, folder: str) -> Iterator[ExistingEntry]:
    """Yield what a folder of this machine has; nothing if it does not exist."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in Path(root, folder).iterdir():
            is_folder = path.is_dir() and not path.is_symlink()
            yield ExistingEntry(f"{folder}/{path.name}", is_folder)


def ignores_case(folder: Path) -> bool:
    """Return whether the file system of a folder, which may not exist yet, takes `a` and `A` for one name."""
    while not folder.is_dir():
        folder = folder.parent
    try:
        with tempfile.NamedTemporaryFile(prefix="deeplearning-case-", dir=folder) as file:
            path = Path(file.name)
            return path.with_name(path.name.upper()).exists()
    except OSError:
        # Nothing can be written to it either, which is reported later.
        return False


def _begins_with(path: Path, beginning: Path) -> bool:
    with path.open("rb") as longer, beginning.open("rb") as shorter:
        while data := shorter.read(run_files.CHUNK):
            if longer.read(len(data)) != data:
                return False
    return True


@dataclass(frozen=True)
class S3Folder:
    """Objects that have the checksum of their content in their metadata."""

    bucket: Bucket
    partial: Path
    transfer: Transfer

    @property
    def place(self) -> str:
        return self.bucket.url

    def existing(self, file: RunFile) -> str:
        recorded = self.bucket.recorded(file.name)
        if recorded is None:
            return ""
        size, sha256 = recorded
        if size != file.size or not sha256:
            raise conflict(self.place, file.name)
        return sha256

    def entries(self, folders: Iterable[str]) -> Iterator[ExistingEntry]:
        for folder in folders:
            yield from _entries(self.partial, folder)
            for name, is_folder in self.bucket.entries(folder):
                yield ExistingEntry(f"{folder}/{name}", is_folder)

    def ignores_case(self) -> bool:
        # Objects with names that differ in case are distinct, but the files pass through this machine.
        return ignores_case(self.partial)

    def require_room(self, sizes: Iterable[int]) -> None:
        # Each is removed when it is sent.
        _require_room(self.partial, max(sizes, default=0), ".")

    def store(self, file: RunFile, part: Path, sha256: str) -> None:
        if self.bucket.recorded(file.name) is not None:
            raise conflict(self.place, file.name)
        self.bucket.send(part, file.name, sha256, self.transfer)
        part.unlink()


ResultTarget = LocalFolder | S3Folder


def _require_room(folder: Path, needed: int, advice: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{needed / 2**30:.1f} GiB are still to come, and {folder} has {free / 2**30:.1f} GiB left: "
            f"make room{advice}"
        )
