"""Folders and files on a file system where other users may prepare links and files of their own."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from deeplearning import safe_files
from deeplearning.contract import schema
from deeplearning.contract.errors import UserError

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class WrongKind(UserError):
    """A file of our own is where a folder has to be, or a folder where a file has to be."""


def own_folder(path: str, owner: int | None = None, mode: int = 0o755) -> None:
    """Create the folder, or check that an existing one belongs to `owner` and that no other user can write in it.

    Every user of the shared file system can create folders there, and so prepare links and files for another user. The
    folder above has to be one that passes here or in `shared_folder`: then this one cannot be exchanged afterwards.
    """
    _create(path, mode)
    check_folder(path, os.geteuid() if owner is None else owner)


def shared_folder(path: str) -> None:
    """Create the folder, or check that no other user can replace what belongs to us in an existing one."""
    _create(path, 0o1777)
    check_folder(path, 0, os.geteuid(), shared=True)


def folder_for_all(path: str) -> None:
    """As root, create the folder or take it over, so that no user of the file system can lock others out of it."""
    _create(path, 0o1777)
    with _opened(path) as handle:
        os.fchown(handle, 0, 0)
        os.fchmod(handle, 0o1777)


def check_path(path: str, create: bool = False) -> None:
    """Refuse a path on which another user can exchange a folder. On request, create the folders that are missing."""
    for folder in (*map(str, reversed(Path(path).parents)), path):
        if create:
            _create(folder, 0o755)
        seen = os.lstat(folder.rstrip("/") or "/")
        problem = _problem(seen, (0, os.geteuid()), stat.S_ISDIR)
        if problem or not _is_closed(folder, seen, shared=True):
            raise UserError(
                f"{path} is no safe place for runs, as {folder} {problem or _mode(seen)}: give a path without links, "
                f"whose folders all belong to root or {_user(os.geteuid())}, and are sticky, like /tmp, where others "
                "can write. Example: -e runs_dir=/efs/mine"
            )


def check_folder(path: str, *owners: int, shared: bool = False) -> None:
    """Refuse a link, another owner, and a mode that lets others write. If `shared`, as in /tmp, they may add files.

    A folder of our own that others can write in, but have not, is closed instead: Ubuntu's umask leaves folders open to
    their group.
    """
    seen = os.lstat(path.rstrip("/") or "/")
    if problem := _problem(seen, owners, stat.S_ISDIR):
        if not shared:
            remedy, command = "Move it away", f"mv {path} {path}.old"
        elif stat.S_ISDIR(seen.st_mode):
            # It may be in use: it stays where it is.
            remedy, command = "Give it to root", f"chown root: {path} && sudo chmod 1777 {path}"
        else:
            remedy, command = "Remove it", f"rm {path}"
        raise _refusal(seen, stat.S_ISREG)(
            f"{path} {problem} and has to be a folder of {' or '.join(map(_user, owners))}: another user may have "
            f"prepared it. {remedy}, and run the same command again. Example: sudo {command}"
        )
    if not _is_closed(path, seen, shared):
        raise UserError(
            f"{path} {_mode(seen)}, so other users can put links and files into it: look at what is in it, and close "
            f"it. Example: sudo chmod {'+t' if shared else 'go-w'} {path}"
        )


def _create(path: str, mode: int) -> None:
    """Create a folder with this mode, regardless of the umask, unless something exists at the path."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    # Where others could put a link in its place, nothing is changed.
    with contextlib.suppress(NotADirectoryError), _opened(path) as handle:
        os.fchmod(handle, mode)


@contextlib.contextmanager
def held_folder(path: str) -> Generator[str, None, None]:
    """Open a folder of our own that is closed to others. Return a path to it that stays valid if it is renamed."""
    with _opened(path, 0) as handle:
        seen = os.fstat(handle)
        if seen.st_uid != os.geteuid() or seen.st_mode & OTHERS_WRITE:
            raise PermissionError(errno.EACCES, "Not closed to other users", path)
        yield f"/proc/self/fd/{handle}"


@contextlib.contextmanager
def _opened(path: str, flags: int = os.O_NOFOLLOW) -> Generator[int, None, None]:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags)
    try:
        yield handle
    finally:
        os.close(handle)


def _is_closed(path: str, seen: os.stat_result, shared: bool) -> bool:
    """Return whether a folder is closed to other users. Close it if it is our own, and others put nothing into it."""
    if not seen.st_mode & OTHERS_WRITE or (shared and seen.st_mode & stat.S_ISVTX):
        return True
    try:
        with _opened(path) as handle:
            if not os.path.samestat(os.fstat(handle), seen):
                return False
            os.fchmod(handle, stat.S_IMODE(seen.st_mode) & ~OTHERS_WRITE)
            if _is_untouched(handle, seen):
                return True
            os.fchmod(handle, stat.S_IMODE(seen.st_mode))
    except OSError:
        # It is another user's, who has to change it.
        return False
    return False


def _is_untouched(handle: int, folder: os.stat_result) -> bool:
    """Return whether everything in a folder is its owner's. One that was writable and not sticky has to be empty."""
    if not folder.st_mode & stat.S_IWOTH:
        return True
    with os.scandir(handle) as entries:
        owners = {entry.stat(follow_symlinks=False).st_uid for entry in entries}
    return owners <= ({folder.st_uid} if folder.st_mode & stat.S_ISVTX else set())


def _mode(seen: os.stat_result) -> str:
    return f"has mode {stat.S_IMODE(seen.st_mode):04o}"


def own_file(path: str, mode: int = 0o644) -> int:
    """Open a file for reading and writing, created if needed; never through a link, and never another user's."""
    handle = None
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        seen = os.fstat(handle)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.EACCES, errno.ENXIO):
            raise
        seen = os.lstat(path)
    problem = _problem(seen, [os.geteuid()], stat.S_ISREG) or ("has a second name" if seen.st_nlink > 1 else "")
    if handle is not None and not problem:
        return handle
    if handle is not None:
        os.close(handle)
    problem = problem or "cannot be opened"
    raise _refusal(seen, stat.S_ISDIR)(
        f"{path} {problem} and has to be a file of {_user(os.geteuid())} alone: another user may have prepared it. "
        f"Remove it, and run the same command again. Example: sudo rm {path}"
    )


def json_object(path: Path, limit: int = safe_files.RECORD_BYTES) -> dict[str, Any]:
    """Return the JSON object in a regular file, or an empty one if there is no such file."""
    with contextlib.suppress(OSError, UserError):
        return schema.json_object(safe_files.read(str(path), limit))
    return {}


def _problem(seen: os.stat_result, owners: Sequence[int], is_kind: Callable[[int], bool]) -> str:
    if stat.S_ISLNK(seen.st_mode):
        return "is a link"
    if not is_kind(seen.st_mode):
        return f"is a {'folder' if stat.S_ISDIR(seen.st_mode) else 'file'}"
    return "" if seen.st_uid in owners else f"belongs to {_user(seen.st_uid)}"


def _refusal(seen: os.stat_result, is_other_kind: Callable[[int], bool]) -> type[UserError]:
    return WrongKind if is_other_kind(seen.st_mode) and seen.st_uid == os.geteuid() else UserError


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
