"""Files that others read at any moment: each is replaced whole, and only if it differs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import stat
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TypeVar

from deeplearning import Refusal

T = TypeVar("T")
BEING_REPLACED = (errno.ENOENT, errno.ESTALE)
"""What a shared file system may say for a moment while a file is replaced: who replaces it moves an open one aside."""
MORE_LOOKS = 3
BETWEEN_LOOKS = 0.05

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

BEGIN = "# BEGIN deeplearning (written by `deeplearning members apply`)\n"
END = "# END deeplearning\n"


class OtherKind(Refusal):
    """A file of our own is where a folder has to be, or a folder where a file has to be."""


def text_of(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return None


def settled(look: Callable[[], T]) -> T:
    """Of a file that is replaced now and then: it is looked for again before it counts as missing."""
    for _unused in range(MORE_LOOKS):
        try:
            return look()
        except OSError as error:
            if error.errno not in BEING_REPLACED:
                raise
        time.sleep(BETWEEN_LOOKS)
    return look()


def put(path: str, text: str, mode: int = 0o644) -> bool:
    """Whether it had to be written."""
    path = os.path.realpath(path)
    if text_of(path) == text:
        return False
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = f"{path}.deeplearning-new"
    write(new, text.encode("utf-8", "surrogateescape"), mode)
    os.rename(new, path)
    return True


def write(path: str, content: bytes, mode: int) -> None:
    """A new file that is on the disk when this returns."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(handle, "wb") as file:
        os.fchmod(handle, mode)
        file.write(content)
        file.flush()
        os.fsync(handle)


def remove(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def own_folder(path: str, owner: int | None = None, mode: int = 0o755) -> None:
    """Create the folder, or check that an existing one belongs to `owner` and that nobody else can write in it.

    Every user of the shared file system can make folders there, and so prepare links and files for somebody else. The
    folder above has to be one that passes here or in `shared_folder`: then nobody can exchange this one afterwards.
    """
    _create(path, mode)
    check_folder(path, os.geteuid() if owner is None else owner)


def shared_folder(path: str) -> None:
    """Create the folder, or check that in an existing one nobody can replace what belongs to us."""
    _create(path, 0o1777)
    check_folder(path, 0, os.geteuid(), shared=True)


def folder_for_all(path: str) -> None:
    """As root, create the folder or take it over, so that no user of the file system can lock others out of it."""
    _create(path, 0o1777)
    with _opened(path) as handle:
        os.fchown(handle, 0, 0)
        os.fchmod(handle, 0o1777)


def create_path(path: str) -> None:
    """Create the folder and those above it, if need be; refuse a path on which another user can exchange a folder."""
    for folder in _on_the_way(path):
        _create(folder, 0o755)
        _check_on_the_way(folder, path)


def check_path(path: str) -> None:
    for folder in _on_the_way(path):
        _check_on_the_way(folder, path)


def _on_the_way(path: str) -> list[str]:
    return [*map(str, reversed(Path(path).parents)), path]


def _check_on_the_way(folder: str, path: str) -> None:
    seen = os.lstat(folder.rstrip("/") or "/")
    problem = _problem(seen, (0, os.geteuid()), stat.S_ISDIR)
    if problem or not _is_closed(folder, seen, shared=True):
        raise Refusal(
            f"{path} is no safe place for runs, as {folder} {problem or _mode(seen)}: give a path without links, whose "
            f"folders all belong to root or {_user(os.geteuid())}, and are sticky, like /tmp, where others can write. "
            "Example: -e runs_dir=/efs/mine"
        )


def check_folder(path: str, *owners: int, shared: bool = False) -> None:
    """Refuse a link, another owner, and a mode that lets others write. If `shared`, as in /tmp, they may add files.

    A folder of our own that others can write in, but have not, is closed instead: Ubuntu's umask leaves folders open to
    their group.
    """
    seen = os.lstat(path.rstrip("/") or "/")
    if problem := _problem(seen, owners, stat.S_ISDIR):
        if shared and stat.S_ISDIR(seen.st_mode):
            # It may be in use: it stays where it is.
            remedy = f"Give it to root, and run the same command again. Example: sudo chown root: {path} && "
            remedy += f"sudo chmod 1777 {path}"
        elif shared:
            remedy = f"Remove it, and run the same command again. Example: sudo rm {path}"
        else:
            remedy = f"Move it away, and run the same command again. Example: sudo mv {path} {path}.old"
        raise _refusal(seen, stat.S_ISREG)(
            f"{path} {problem} and has to be a folder of {' or '.join(map(_user, owners))}: somebody else may have "
            f"prepared it. {remedy}"
        )
    if not _is_closed(path, seen, shared):
        raise Refusal(
            f"{path} {_mode(seen)}, so other users can put links and files into it: look at what is in it, and close "
            f"it. Example: sudo chmod {'+t' if shared else 'go-w'} {path}"
        )


def _create(path: str, mode: int) -> None:
    """Create a folder if nothing is there, with this mode whatever the umask."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    # Where others could put a link in its place, nothing is changed.
    with contextlib.suppress(NotADirectoryError), _opened(path) as handle:
        os.fchmod(handle, mode)


@contextlib.contextmanager
def held_folder(path: str) -> Generator[str, None, None]:
    """Open a folder of our own that is closed to others, and return a path to it that stays whoever renames it."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        seen = os.fstat(handle)
        if seen.st_uid != os.geteuid() or seen.st_mode & OTHERS_WRITE:
            raise PermissionError(errno.EACCES, "Not closed to other users", path)
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)


@contextlib.contextmanager
def _opened(path: str) -> Generator[int, None, None]:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _is_closed(path: str, seen: os.stat_result, shared: bool) -> bool:
    """Whether nobody else can write in a folder. Close it if it is our own, and others have put nothing into it."""
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
        # It is another user's: whoever may change it has to.
        return False
    return False


def _is_untouched(handle: int, folder: os.stat_result) -> bool:
    """Whether all in a folder is its owner's; one that all could rename in, as it was not sticky, has to be empty."""
    if not folder.st_mode & stat.S_IWOTH:
        return True
    with os.scandir(handle) as entries:
        owners = {entry.stat(follow_symlinks=False).st_uid for entry in entries}
    return owners <= ({folder.st_uid} if folder.st_mode & stat.S_ISVTX else set())


def _mode(seen: os.stat_result) -> str:
    return f"has mode {stat.S_IMODE(seen.st_mode):04o}"


def own_file(path: str, mode: int = 0o644) -> int:
    """Open a file for reading and writing, created if need be; never through a link, and never another user's."""
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
        f"{path} {problem} and has to be a file of {_user(os.geteuid())} alone: somebody else may have prepared it. "
        f"Remove it, and run the same command again. Example: sudo rm {path}"
    )


def _problem(seen: os.stat_result, owners: Sequence[int], is_kind: Callable[[int], bool]) -> str:
    if stat.S_ISLNK(seen.st_mode):
        return "is a link"
    if not is_kind(seen.st_mode):
        return f"is a {'folder' if stat.S_ISDIR(seen.st_mode) else 'file'}"
    return "" if seen.st_uid in owners else f"belongs to {_user(seen.st_uid)}"


def _refusal(seen: os.stat_result, is_other_kind: Callable[[int], bool]) -> type[Refusal]:
    return OtherKind if is_other_kind(seen.st_mode) and seen.st_uid == os.geteuid() else Refusal


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def with_block(text: str, lines: str) -> str:
    """The text with our lines in it, in their own place or at its end. Without lines, the text without ours."""
    block = f"{BEGIN}{lines}{END}" if lines else ""
    before, begin, rest = text.partition(BEGIN)
    if begin:
        # What follows a block that has lost its end is nobody's any more.
        return before + block + rest.partition(END)[2]
    gap = "\n" if block and text and not text.endswith("\n") else ""
    return text + gap + block


@contextlib.contextmanager
def only_one(path: str, what: str, seconds: float = 20) -> Generator[None, None, None]:
    """One process at a time. One that hangs in the shared file system keeps its place, so they do not pile up."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise Refusal(
                        f"another `{what}` has been at work for {seconds:g} s: does the shared file system answer?"
                    ) from None
                time.sleep(0.1)
        yield
